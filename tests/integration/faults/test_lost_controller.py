"""A controller or a kernel that dies: no process is left, and the run goes on where it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from jupyter_ddl.client.clusters import start_cluster
from jupyter_ddl.client.history import list_runs
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import session
from jupyter_ddl.protocol.events import RunStarted, StopRequested
from jupyter_ddl.store.connection import read_connection
from tests.leaks import Home, processes_of
from tests.run_tools import (
    SLEEPING,
    STEPS,
    assert_clean,
    controller_pid,
    kill_controller,
    outcomes,
    start_map,
    start_search,
    starts,
    table,
    wait_for,
)
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

KERNEL = """
import sys
sys.path[:0] = {path!r}
from tests.run_tools import STEPS, start_search
from jupyter_ddl.client.clusters import start_cluster
start_cluster(n_workers=2, name="test")
start_search(STEPS, 16, seed=5).wait()
"""

HARD_TO_END = """
import ctypes, os, signal, subprocess, time
from pathlib import Path
Path(marks, item).touch()
if item == "gil":
    ctypes.PyDLL(None).sleep(600)
elif item == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
elif item == "child":
    subprocess.run(["sleep", "600"])
elif item == "setsid":
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        os.execvp("sleep", ["sleep", "600"])
    time.sleep(600)
"""


def test_a_run_outlives_the_kernel_that_submitted_it(stopping: Home) -> None:
    source = KERNEL.format(path=[str(Path(__file__).parents[3])])
    kernel = subprocess.Popen([sys.executable, "-c", source], cwd=stopping.work)
    (summary,) = until(list_runs, 60.0, "the run")
    run = Run(summary.run_id)
    wait_for(run, lambda seen: seen.counts.complete >= 2)
    kernel.send_signal(signal.SIGKILL)
    assert kernel.wait(PATIENCE_S) == -signal.SIGKILL
    run.wait(PATIENCE_S)
    assert_clean(run, 16)
    assert len(starts(run)) == 16
    assert len([event for event in run.events() if isinstance(event, RunStarted)]) == 1


def test_nothing_is_left_five_seconds_after_the_controller_was_killed(stopping: Home) -> None:
    start_cluster(n_workers=4, name="test")
    marks = stopping.work
    kinds = ["gil", "stopped", "child", "setsid"]
    run = start_map(f"marks = {str(marks)!r}\n{HARD_TO_END}", kinds)
    until(lambda: len(list(marks.iterdir())) == len(kinds), 30.0, "all kinds of ranks")
    wait_for(run, lambda seen: seen.counts.running == len(kinds))
    until(lambda: sum("sleep" in p.name() for p in processes_of(stopping)) == 3, 10.0, "children")
    os.kill(controller_pid(), signal.SIGKILL)
    until(lambda: not processes_of(stopping), 5.0, "the end of every process")
    assert read_connection("test") is None


def test_a_controller_that_hangs_is_ended_by_a_stop(stopping: Home) -> None:
    cluster = start_cluster(n_workers=1, name="test")
    os.kill(controller_pid(), signal.SIGSTOP)
    cluster.stop()
    until(lambda: not processes_of(stopping), 5.0, "the end of every process")
    assert read_connection("test") is None


def test_the_waiting_client_sees_a_run_through_the_death_of_its_controller(stopping: Home) -> None:
    start_cluster(n_workers=2, name="test")
    calm = start_search(STEPS.replace("0.05", "0"), 20, seed=9, sampler="tpe").wait(PATIENCE_S)
    run = start_search(STEPS, 20, seed=9, sampler="tpe")
    killed: list[int] = []

    def kill_at_five(seen: object) -> None:
        if not killed and getattr(seen, "counts").complete >= 5:  # noqa: B009
            killed.append(len(outcomes(run, "complete")))
            os.kill(controller_pid(), signal.SIGKILL)

    run.wait(60, on_snapshot=kill_at_five)
    assert killed
    assert run.state == "complete"
    assert_clean(run, 20)
    assert table(run) == table(calm)
    begun = Counter(start.trial for start in starts(run))
    assert sum(begun.values()) <= 20 + 4  # only what was under way, two batches a slot at most
    sessions = [event.session for event in run.events() if isinstance(event, RunStarted)]
    assert sessions == [1, 2]


def test_a_stop_is_obeyed_by_the_controller_that_comes_after(stopping: Home) -> None:
    start_cluster(n_workers=1, name="test")
    run = start_search(SLEEPING, 4)
    wait_for(run, lambda seen: seen.counts.running == 1)
    run.cancel("next_report")
    until(lambda: any(isinstance(event, StopRequested) for event in run.events()), 10.0)
    kill_controller()
    run.wait(PATIENCE_S)
    assert run.state == "cancelled"
    assert_clean(run)
    assert outcomes(run, "complete") == []


def test_two_clients_that_start_the_same_cluster_at_once_share_it(stopping: Home) -> None:
    start_cluster(n_workers=1, name="test")
    run = start_search(STEPS, 30, seed=1)
    wait_for(run, lambda seen: seen.counts.complete >= 2)
    kill_controller()
    source = f"from jupyter_ddl.client.run import Run\nRun({run.id!r}).wait()"
    others = [subprocess.Popen([sys.executable, "-c", source]) for _ in range(2)]
    run.wait(PATIENCE_S)
    assert [other.wait(PATIENCE_S) for other in others] == [0, 0]
    assert_clean(run, 30)
    assert session().info("test").process.pid == controller_pid()
