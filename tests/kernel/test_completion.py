"""Tab in a real kernel: the matcher is asked, and its answers are not mixed with others'."""

from __future__ import annotations

import pytest

from tests.kernel.cells import QUICK
from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel


def test_tab_completes_options_commands_and_metrics(idle_kernel: LiveKernel) -> None:
    assert idle_kernel.complete("%%distribute se") == ["search"]
    assert idle_kernel.complete("%%distribute search --metr") == ["--metric"]
    assert idle_kernel.complete("%%distribute search --sampler tp") == ["tpe"]
    assert idle_kernel.complete("%cluster sc") == ["scale"]
    assert idle_kernel.complete("%runs comp") == ["compare"]
    line = "%%distribute search --metric "
    assert idle_kernel.complete(f"{line}\n{QUICK}", position=len(line)) == ["val_acc"]


def test_tab_elsewhere_is_pythons(idle_kernel: LiveKernel) -> None:
    idle_kernel.run("import math").check()
    assert "math.sqrt" in [m.strip() for m in idle_kernel.complete("math.sq")] or "sqrt" in (
        idle_kernel.complete("math.sq")
    )
