"""A computer that stands still, as with a closed lid: nobody is called silent for that time."""

from __future__ import annotations

import signal
import time

import psutil
import pytest

from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import session
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.events import Notice
from tests.leaks import Home
from tests.run_tools import STEPS, assert_clean, controller_pid, start_search, starts, wait_for
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

STILL_S = 14.0
"""Longer than Dask waits for a worker here, and than what is told."""


def stand_still() -> None:
    """Stop the controller and all that is below it, as a virtual machine that is paused."""
    controller = psutil.Process(controller_pid())
    everything = [controller, *controller.children(recursive=True)]
    for process in everything:
        process.send_signal(signal.SIGSTOP)
    ends_s = time.monotonic() + STILL_S
    until(lambda: time.monotonic() > ends_s, STILL_S, "the time to stand still")
    for process in everything:  # the one that looks for silent workers first
        process.send_signal(signal.SIGCONT)


def notices(run: Run) -> list[str]:
    return [event.text for event in run.events() if isinstance(event, Notice)]


def test_a_computer_that_stands_still_evicts_nobody_and_tells_so_once(stopping: Home) -> None:
    session().start(ClusterSpec(name="test", n_workers=2, worker_timeout_s=2.0))
    cell = STEPS.replace("range(4)", "range(80)").replace("0.05", "0.1")
    run = start_search(cell, 2, seed=3)
    wait_for(run, lambda seen: seen.counts.running == 2)
    stand_still()
    run.wait(PATIENCE_S)
    assert run.state == "complete"
    assert_clean(run, 2)
    assert run.snapshot().n_evictions == 0
    assert len(starts(run)) == 2
    (told,) = [text for text in notices(run) if "stood still" in text]
    assert "counts for nobody's silence" in told
