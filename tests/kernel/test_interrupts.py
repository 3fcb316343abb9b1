"""The stop button during ``%%distribute`` and ``%runs attach``."""

from __future__ import annotations

import pytest

from tests.kernel.cells import SILENT, STEADY
from tests.live_kernel import LiveKernel

pytestmark = pytest.mark.kernel

_SEARCH = "%%distribute search --metric acc --trials 10 -o r\n"


@pytest.fixture
def kernel(attached_kernel: LiveKernel) -> LiveKernel:
    return attached_kernel


def test_one_interrupt_stops_at_the_next_reports_and_says_what_is_kept(kernel: LiveKernel) -> None:
    cell = kernel.start(_SEARCH + STEADY)
    kernel.finish(cell, until_text="2 running")

    kernel.interrupt()
    out = kernel.finish(cell).check()

    assert "Stopped: 0 of 10 trials are finished" in out.text
    assert "--resume r" in out.text
    assert kernel.value("r.state") == "'cancelled'"
    assert kernel.value("{t.state for t in r.trials.itertuples()}") == "{'cancelled'}"


def test_two_interrupts_stop_a_cell_that_never_reports(kernel: LiveKernel) -> None:
    cell = kernel.start(_SEARCH + SILENT)
    kernel.finish(cell, until_text="2 running")

    kernel.interrupt()
    kernel.finish(cell, until_text="stopping")
    kernel.interrupt()
    kernel.finish(cell).check()

    assert kernel.value("r.state") == "'cancelled'"


def test_an_interrupted_attach_leaves_the_run_alone(kernel: LiveKernel) -> None:
    begun = kernel.run("%%distribute search --metric acc --trials 4 -a -o r\n" + STEADY).check()
    assert "goes on in the background" in begun.text
    cell = kernel.start("%runs attach last")
    kernel.finish(cell, until_text="2 running")

    kernel.interrupt()
    out = kernel.finish(cell)

    assert out.error is not None
    assert out.error[2] == "KeyboardInterrupt"
    assert "goes on without this cell" in out.text
    assert kernel.value("r.state") == "'running'"
    assert "stops at once" in kernel.run("%runs stop last --now").check().text
    assert "cancelled" in kernel.run("%runs attach last").check().everything
    refused = kernel.run("%runs stop last")
    assert refused.error is not None
    assert "no controller drives run" in refused.error[1]
