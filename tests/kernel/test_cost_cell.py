"""A search that its budget ends, and that goes on with a larger one, in a real kernel."""

from __future__ import annotations

import pytest

from tests.kernel.cells import STEADY
from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel

_EURO_A_SECOND = 'currency = "EUR"\n[hour]\ncpu = 3600\n'
_BRIEF = STEADY.replace("range(600)", "range(12)")


def test_a_budget_ends_a_search_and_a_larger_one_lets_it_go_on(
    attached_kernel: LiveKernel,
) -> None:
    kernel = attached_kernel
    (kernel.home.work / "prices.toml").write_text(_EURO_A_SECOND)
    line = "%%distribute search --metric acc --trials 3 --max-parallel 1"
    refused = kernel.run(f"{line} --budget 1\n{_BRIEF}")
    assert "there is no table of prices" in refused.everything
    kernel.run("%env JUPYTER_DDL_PRICES=prices.toml").check()

    stopped = kernel.run(f"{line} --budget 1 -o run\n{_BRIEF}", timeout_s=60).check()

    assert "stopped by its budget of € 1.00, which is spent" in stopped.everything
    assert "goes on, with a larger --budget" in stopped.text
    assert kernel.value("run.state") == "'cancelled'"
    spent = float(kernel.value("run.cost.amount"))
    assert spent >= 1.0
    assert "€" in kernel.run("%runs").check().everything

    again = kernel.run(f"{line} --resume {{run.id}}\n{_BRIEF}")
    assert "its budget of € 1.00 is spent already" in again.everything
    kernel.run(f"{line} --resume {{run.id}} --budget 10000\n{_BRIEF}", timeout_s=60).check()
    assert kernel.value("run.state") == "'complete'"
    assert float(kernel.value("run.cost.amount")) > spent

    dry = kernel.run(f"{line} --budget 20 --dry-run\n{_BRIEF}").check().text
    assert "Cost: € 3,600.00 an hour for each trial under way, on cluster local" in dry
    assert f"for 3 trials, if each takes as long as those of run {_id(kernel)} did" in dry
    assert "Budget: € 20.00" in dry


def _id(kernel: LiveKernel) -> str:
    return kernel.value("run.id").strip("'")
