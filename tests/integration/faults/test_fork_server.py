"""Workers of this host are copies of their controller, made by a process beside it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from jupyter_ddl.client.clusters import Cluster
from tests.run_tools import (
    STEPS,
    assert_clean,
    controller_pid,
    kill_controller,
    sources,
    start_search,
    starts,
    wait_for,
    workers,
    zygotes,
)
from tests.until import until

pytestmark = pytest.mark.integration

CELL = """
import os
from jupyter_ddl import uniform
x = uniform(0.0, 1.0)
print("threads", os.environ["OMP_NUM_THREADS"], "trim", os.environ.get("MALLOC_TRIM_THRESHOLD_"))
score = x
"""


def test_workers_are_copies_and_come_back_when_what_makes_them_is_killed(
    own_cluster: Cluster,
) -> None:
    controller = psutil.Process(controller_pid())
    first = workers()
    server = first[0].parent()
    assert len(first) == 2
    assert server.parent() == controller
    assert [each.cmdline() for each in (server, *first)] == [controller.cmdline()] * 3
    assert not _shared_files(server.pid) & _shared_files(controller.pid), "it holds the name's lock"

    os.kill(server.pid, signal.SIGKILL)
    psutil.wait_procs(first)  # the kernel ends them with it
    until(lambda: len(workers()) == 2, 20.0, "other workers")
    assert not {each.pid for each in workers()} & {each.pid for each in first}
    run = start_search(CELL, 2, seed=1)
    run.wait()
    assert_clean(run, 2)
    assert "threads 1 trim None" in run.logs(0)


def test_zygotes_are_forked_from_one_process_which_is_nothing_to_lose(own_cluster: Cluster) -> None:
    (first,) = until(sources, 20.0, "a source")
    until(lambda: len(zygotes()) == 2, 20.0, "both zygotes")
    run = start_search(STEPS, 20, seed=1)
    wait_for(run, lambda seen: seen.counts.complete >= 2)
    first.kill()
    first.wait()
    until(sources, 20.0, "another source")
    workers()[0].kill()
    until(lambda: len(zygotes()) == 1, 20.0, "the zygote of the worker's successor")
    run.wait()
    assert_clean(run, 20)
    assert len([each for each in starts(run) if each.attempt > 1]) <= 2, (
        "of the killed worker alone"
    )


def test_a_controller_that_comes_back_imports_at_once_what_its_runs_need(
    own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = until(sources, 20.0, "a source")
    assert "wave" not in first.cmdline()
    monkeypatch.setenv("JUPYTER_DDL_PREWARM", "wave")
    run = start_search(STEPS, 20, seed=1)
    monkeypatch.setenv("JUPYTER_DDL_PREWARM", "")
    wait_for(run, lambda seen: seen.counts.complete >= 2)
    kill_controller()
    run.wait()
    (second,) = until(sources, 20.0, "a source of the next controller")
    assert "wave" in second.cmdline()
    assert_clean(run, 20)


def _shared_files(pid: int) -> set[str]:
    """Files and sockets that a process holds, but for its log."""
    held = {str(each.readlink()) for each in Path(f"/proc/{pid}/fd").iterdir()}
    return {each for each in held if each.endswith(".lock") or each.startswith("socket:")}
