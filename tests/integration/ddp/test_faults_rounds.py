"""Rounds not worth repeating, ranks that die before the cell begins, slots that do not come."""

from __future__ import annotations

import contextlib
import signal
import time

import psutil
import pytest

from jupyter_ddl import train
from jupyter_ddl.client.clusters import start_cluster
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import RunFailedError
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.protocol.events import AttemptFinished, RankStarted, Reported
from jupyter_ddl.protocol.requests import GetStatus
from tests.integration.ddp.fault_runs import TRAIN, Started, kill, start
from tests.leaks import Home, processes_of
from tests.run_tools import worker_of
from tests.until import until

pytestmark = pytest.mark.integration

BRIEF = "import torch\nimport torch.distributed as dist\ndist.barrier()\nreport(step=0)\n"

RAISING = """
import torch.distributed as dist
dist.barrier()
raise ValueError("no such column: lable")
"""


def _complete(run: Started) -> None:
    until(lambda: run.run.snapshot().finished_at_s, 60.0, "the end of the run")
    assert run.run.snapshot().state == "complete"
    assert audit(run.all_events()) == []


def test_an_exception_that_repeats_ends_the_run_and_says_why(cluster: object) -> None:
    with pytest.raises(RunFailedError) as failed:
        train(RAISING, 2, namespace={}, max_restarts=10)
    assert "no such column: lable" in failed.value.message
    text = "failed twice the same way at line 5, so it was not tried a third time"
    assert text in failed.value.message


def test_slots_that_stay_busy_end_the_wait_with_the_holder(cluster: object) -> None:
    first = start("import time, torch\nreport(step=0)\ntime.sleep(60)\n")
    first.wait_for_step(1, more=1)
    second = start("import torch\n", admission_timeout_s=1.0)
    snapshot = until(
        lambda: (seen := second.run.snapshot()).finished_at_s and seen, 15.0, "the refusal"
    )
    assert snapshot.state == "failed"
    assert snapshot.reason.startswith("given up after waiting 1 s for slots (--admission-timeout)")
    assert f"(2 held by run {first.run.id})" in snapshot.reason
    assert first.run.snapshot().state == "running"
    first.stop()


def _loading(run: Started, rank: int) -> int:
    """Pid of a rank that has begun: it loads torch, which its zygote has not imported."""
    found = until(lambda: [e for e in run.events(RankStarted, 1) if e.rank == rank], 20.0, "a rank")
    return int(found[0].pid)


def _waits(pid: int) -> bool:
    """Whether a rank has loaded torch and takes no CPU time: it waits for the others."""
    process = psutil.Process(pid)
    if not any("libtorch" in each.path for each in process.memory_maps()):
        return False
    before, since_s = sum(process.cpu_times()[:2]), time.monotonic()
    until(lambda: time.monotonic() - since_s > 0.5, 5.0)
    return sum(process.cpu_times()[:2]) - before < 0.02


def test_a_rank_that_dies_while_it_loads_ends_the_round(home: Home) -> None:
    started = start_cluster(n_workers=2, name="test")
    run = start(BRIEF)
    kill(_loading(run, 1))
    end = run.end_of(1)
    assert (end.outcome, end.failure and end.failure.rank) == ("failed", 1)
    assert end.failure is not None
    assert (end.failure.kind, end.failure.type_name) == ("crash", "SIGKILL")
    _complete(run)
    started.stop()


def test_a_rank_that_dies_in_the_rendezvous_ends_the_round(home: Home) -> None:
    started = start_cluster(n_workers=2, name="test")
    run = start(BRIEF)
    stopped, victim = _loading(run, 0), _loading(run, 1)
    kill(stopped, signal.SIGSTOP)
    until(lambda: _waits(victim), 30.0, "rank 1 in its rendezvous")
    kill(victim)
    end = run.end_of(1)
    assert end.failure is not None
    assert (end.failure.rank, end.failure.type_name) == (1, "SIGKILL")
    until(lambda: not psutil.pid_exists(stopped), 10.0, "the end of the stopped rank")
    _complete(run)
    started.stop()


def test_with_fewer_ranks_a_cell_without_checkpoints_begins_at_its_start(cluster: object) -> None:
    source = TRAIN.replace("    checkpoint(step=epoch, epoch=epoch)\n", "")
    run = start(source, min_ranks=1, resize_after_s=0.5)
    run.wait_for_step(1, more=1)
    cluster.scale(1)  # type: ignore[attr-defined]
    run.wait_for_step(2, more=1)
    assert len(run.pids(2)) == 1
    notices = [getattr(event, "text", "") for event in run.all_events()]
    expected = "restarted with 1 of 2 ranks from the beginning: the cell saved no checkpoint"
    assert expected in notices
    run.stop()


def test_a_worker_that_goes_is_not_asked_again_and_again(cluster: object) -> None:
    run = start(TRAIN)
    run.wait_for_step(1)
    for pid in run.pids(1).values():
        kill(worker_of(pid).pid, signal.SIGTERM)
    run.wait_for_step(2, more=1, timeout_s=60.0)
    evicted = [e for e in run.events(AttemptFinished) if e.outcome == "evicted"]
    assert len(evicted) <= 3, [e.failure for e in evicted]
    run.stop()


PROLIFIC = """
import os, subprocess, sys, threading, time
import torch
from torch.utils.data import DataLoader, TensorDataset

sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
apart = subprocess.Popen(sleeping, start_new_session=True)

def fork_apart():
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
        os._exit(0)

thread = threading.Thread(target=fork_apart)
thread.start()
thread.join()
loader = DataLoader(TensorDataset(torch.arange(10_000)), batch_size=1, num_workers=2)
for step, _ in enumerate(loader):
    report(step=step)
    time.sleep(0.05)
"""
"""Loader processes, a program in a session of its own, and a child that a helper thread forked."""


def test_whatever_ranks_have_started_ends_with_a_killed_controller(
    cluster: object, cluster_home: Home
) -> None:
    run = start(PROLIFIC)
    until(lambda: {e.rank for e in run.events(Reported)} == {0, 1}, 60.0, "reports of both ranks")
    assert len(processes_of(cluster_home)) >= 1 + 2 + 2 + 2 * (1 + 2 + 2)
    kill(session().ask("test", GetStatus()).status.controller_pid)
    until(lambda: not _described_processes(cluster_home), 15.0, "the end of all processes")


def _described_processes(home: Home) -> list[str]:
    found = []
    for process in processes_of(home):
        with contextlib.suppress(psutil.Error):
            found.append(f"{process.pid} {process.ppid()} {' '.join(process.cmdline())[:90]}")
    return found
