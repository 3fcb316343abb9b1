"""The examples of docs/coming-from/frameworks.md run as they stand there, in order."""

from __future__ import annotations

import pytest

from tests.kernel.test_coming_from import FRAMEWORKS, cells_here
from tests.live_kernel import LiveKernel

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


def test_every_cell_of_the_page_of_frameworks_runs(real_kernel: LiveKernel) -> None:
    for name in ("transformers", "accelerate", "lightning", "lightgbm"):
        pytest.importorskip(name)
    cells = cells_here(FRAMEWORKS)
    assert len(cells) > 8
    real_kernel.run("%reset -f")
    for cell in cells:
        real_kernel.run(cell, timeout_s=200).check()
