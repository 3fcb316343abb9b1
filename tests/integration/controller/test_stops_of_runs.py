"""Stopping runs and trials, and going on with them."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from jupyter_ddl.client.clusters import Cluster
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import session
from jupyter_ddl.client.submit import resume_run
from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.events import RunStarted, StopRequested
from jupyter_ddl.protocol.requests import ResumeRun
from tests.leaks import Home
from tests.run_tools import (
    SLEEPING,
    STEPS,
    assert_clean,
    outcomes,
    start_map,
    start_search,
    starts,
    wait_for,
)
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

STUBBORN = """
import signal, time
from jupyter_ddl import uniform
x = uniform(0.0, 1.0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(600)
score = x
"""
REPORTING = """
import time
from jupyter_ddl import report
for step in range(item):
    time.sleep(0.05)
    report(step=step, done=step)
item
"""
ENDLESS = STEPS.replace("range(4)", "range(10_000)")


class Interrupts:
    """SIGINT to this very thread while it waits: at the first snapshot, then after each stop."""

    def __init__(self, run: Run, count: int) -> None:
        self._run = run
        self._count = count
        self._waiting = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def waits(self, _: object) -> None:
        self._waiting.set()

    def whens(self) -> list[str]:
        return [e.when for e in self._run.events() if isinstance(e, StopRequested)]

    def _work(self) -> None:
        self._waiting.wait(PATIENCE_S)
        for number in range(self._count):
            until(lambda at=number: len(self.whens()) == at, 30.0)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def join(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()


def test_a_stop_at_the_next_report_lets_trials_report_once_more(cluster: Cluster) -> None:
    run = start_search(ENDLESS, 6)
    wait_for(run, lambda seen: seen.counts.running == 2)
    run.cancel("next_report")
    run.wait(PATIENCE_S)
    assert run.state == "cancelled"
    assert_clean(run)
    assert run.snapshot().counts.cancelled >= 2
    assert "stopped by user" in run.snapshot().reason
    run.cancel()  # of a run that has ended: nothing happens
    assert run.state == "cancelled"


def test_a_stop_now_ends_a_cell_that_ignores_sigterm(cluster: Cluster) -> None:
    run = start_search(STUBBORN, 4)
    wait_for(run, lambda seen: seen.counts.running == 2)
    begun_s = time.monotonic()
    run.cancel("now")
    run.wait(PATIENCE_S)
    assert run.state == "cancelled"
    assert time.monotonic() - begun_s > 4.0  # the grace is 5 s
    assert_clean(run)


def test_one_interrupt_stops_at_the_next_report_and_a_second_one_now(cluster: Cluster) -> None:
    for cell, whens in ((ENDLESS, ["next_report"]), (SLEEPING, ["next_report", "now"])):
        run = start_search(cell, 4)
        wait_for(run, lambda seen: seen.counts.running == 2)
        interrupts = Interrupts(run, len(whens))
        assert run.wait(20, on_snapshot=interrupts.waits).state == "cancelled"
        interrupts.join()
        assert interrupts.whens() == whens
        assert_clean(run)


def test_one_trial_is_stopped_and_the_others_go_on(cluster: Cluster) -> None:
    run = start_map(REPORTING, [20, 10_000, 5])
    wait_for(run, lambda seen: seen.counts.running == 2)
    run.stop_trial(1)
    run.wait(PATIENCE_S)
    assert run.state == "complete"
    assert run.values == [20, None, 5]
    assert run.snapshot().counts.cancelled == 1
    assert_clean(run)


def test_a_trial_that_does_not_run_cannot_be_stopped(cluster: Cluster) -> None:
    run = start_search(SLEEPING, 2)
    wait_for(run, lambda seen: seen.counts.running == 2)
    with pytest.raises(SpecError, match=r"trial 7 of run .* is not running"):
        run.stop_trial(7)
    run.cancel("now")
    assert run.wait(PATIENCE_S).state == "cancelled"


def test_a_timeout_ends_a_run_and_begins_anew_when_it_is_resumed(cluster: Cluster) -> None:
    run = start_search(ENDLESS.replace("10_000", "25"), 4, timeout_s=2.0).wait(PATIENCE_S)
    assert run.state == "cancelled"
    assert "timeout of 2 s" in run.snapshot().reason
    n_before = run.snapshot().counts.complete
    resume_run(run.id, None).wait(PATIENCE_S)
    assert run.snapshot().counts.complete > n_before
    assert_clean(run)


def test_a_cancelled_run_goes_on_with_what_it_had_not_finished(cluster: Cluster) -> None:
    run = start_search(STEPS.replace("0.05", "0.1"), 14, seed=4, sampler="tpe")
    wait_for(run, lambda seen: seen.counts.complete >= 4)
    run.cancel("now")
    run.wait(PATIENCE_S)
    done = {end.trial for end in outcomes(run, "complete")}
    assert run.state == "cancelled"
    again = resume_run(run.id, None)
    wait_for(again, lambda seen: seen.counts.running > 0, 4.0)
    again.wait(PATIENCE_S)
    assert again.state == "complete"
    assert_clean(again, 14)
    second = [start.trial for start in starts(again)]
    assert all(second.count(trial) == 1 for trial in done)
    calm = start_search(STEPS.replace("0.05", "0"), 14, seed=4, sampler="tpe").wait(PATIENCE_S)
    assert list(calm.trials["x"]) == list(again.trials["x"])


def test_resuming_a_complete_run_does_nothing(cluster: Cluster) -> None:
    run = start_search(STEPS, 2).wait(PATIENCE_S)
    n_events = len(run.events())
    resume_run(run.id, None).wait(PATIENCE_S)
    session().ask("test", ResumeRun(run.id))
    assert len(run.events()) == n_events
    assert cluster.status().active_runs == ()


def test_a_failed_map_is_resumed_for_the_elements_that_failed(cluster: Cluster, home: Home) -> None:
    cure = home.work / "cure"
    cell = f"from pathlib import Path\nitem if Path({str(cure)!r}).exists() else 1 / item"
    run = start_map(cell, [1, 0, 2])
    with pytest.raises(Exception, match="1 of 3 trials failed"):
        run.wait(PATIENCE_S)
    with pytest.raises(Exception, match="1 of 3 trials failed"):
        resume_run(run.id, None).wait(PATIENCE_S)
    assert [start.trial for start in starts(run)].count(1) == 6
    cure.touch()
    assert resume_run(run.id, None).wait(PATIENCE_S).values == [1.0, 0, 0.5]
    assert len(starts(run)) == 9
    assert [e.session for e in run.events() if isinstance(e, RunStarted)] == [1, 2, 3]
    assert_clean(run)
