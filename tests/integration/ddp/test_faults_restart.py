"""Rank groups whose ranks, workers or controller die: back soon, with nothing lost or left."""

from __future__ import annotations

import random
import signal
import statistics
from dataclasses import dataclass

import psutil
import pytest

from jupyter_ddl.client.session import session
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.protocol.events import CheckpointSaved, Notice, Reported
from jupyter_ddl.protocol.requests import GetStatus
from jupyter_ddl.ranks.checkpoints import newest_checkpoint
from tests.integration.ddp.fault_runs import TRAIN, Started, kill, start
from tests.run_tools import worker_of
from tests.until import until

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class _Recovery:
    """How long a group was away after a kill, and how many steps it made twice."""

    took_s: float
    n_lost_steps: int


def _kill_ranks(run: Started, n_kills: int, seed: int) -> list[_Recovery]:
    """Kill a random rank at random moments, a fourth of them before the round's first step."""
    chance = random.Random(seed)
    recoveries = []
    for attempt in range(1, n_kills + 1):
        rank = chance.randrange(2)
        if chance.random() < 0.25:
            until(lambda n=attempt: len(run.pids(n)) == 2, 30.0, "two ranks that have begun")
        else:
            run.wait_for_step(attempt, more=chance.randint(1, 6))
        killed_at_s = kill(run.pids(attempt)[rank])
        run.wait_for_step(attempt + 1, more=1)
        before = [e.step for e in run.events(Reported) if e.attempt <= attempt and not e.rank]
        saved = [e.step for e in run.events(CheckpointSaved) if e.attempt <= attempt]
        after = next(e for e in run.events(Reported, attempt + 1) if e.rank == 0)
        # A rank may die between the saving of a file and the word about it: one step further.
        newest = saved[-1] if saved else -1
        assert after.step in (newest + 1, newest + 2), f"attempt {attempt + 1} lost steps"
        n_lost = max(before, default=-1) + 1 - after.step
        recoveries.append(_Recovery(after.at_s - killed_at_s, n_lost))
    return recoveries


def _assert_all_came_back(recoveries: list[_Recovery]) -> None:
    took_s = [each.took_s for each in recoveries]
    median_s, p95_s = statistics.median(took_s), statistics.quantiles(took_s, n=20)[-1]
    n_lost = max(each.n_lost_steps for each in recoveries)
    print(
        f"{len(took_s)} killed ranks: back after {median_s:.2f} s (median), {p95_s:.2f} s (95th "
        f"percentile), {max(took_s):.2f} s at most; {n_lost} step(s) lost at most"
    )
    assert n_lost <= 1  # the cell saves at each step


def test_a_group_comes_back_from_the_last_checkpoint_whichever_rank_is_killed(
    cluster: object,
) -> None:
    run = start(TRAIN, max_own_failures=12)
    _assert_all_came_back(_kill_ranks(run, 10, seed=1))
    run.stop()
    assert run.run.snapshot().rows[0].own_failures == 10
    assert audit(run.all_events()) == []


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_hundred_killed_ranks_leave_no_group_stuck(cluster: object) -> None:
    run = start(TRAIN, max_own_failures=250)
    _assert_all_came_back(_kill_ranks(run, 200, seed=2))
    run.stop()
    assert audit(run.all_events()) == []


def test_a_killed_rank_is_charged_to_the_code_and_named_as_the_cause(cluster: object) -> None:
    run = start(TRAIN, max_own_failures=1)
    run.wait_for_step(1)
    kill(run.pids(1)[1])
    end = run.end_of(1)
    assert end.outcome == "failed"
    assert end.failure is not None
    assert (end.failure.kind, end.failure.type_name, end.failure.rank) == ("crash", "SIGKILL", 1)
    until(lambda: run.run.snapshot().state == "failed", 10.0, "the failed run")


def test_the_others_of_a_dead_round_go_though_they_swallow_their_signal(
    cluster: object,
) -> None:
    # The other rank sleeps in Python and swallows what SIGTERM raises there.
    run = start(
        "import time\nimport torch\n"
        "report(step=0)\n"
        "while True:\n"
        "    try:\n"
        "        time.sleep(60)\n"
        "    except BaseException:\n"
        "        pass\n",
        max_own_failures=1,
    )
    until(lambda: len(run.events(Reported)) == 2, 30.0)
    pids = run.pids(1)
    first, second = pids[0], pids[1]
    kill(first)
    assert run.end_of(1).outcome == "failed"
    until(lambda: not psutil.pid_exists(second), 2.0, "the end of the other rank")


def test_a_killed_worker_is_charged_to_the_machine(cluster: object) -> None:
    run = start(TRAIN, max_own_failures=1)
    run.wait_for_step(1)
    worker = worker_of(run.pids(1)[1])
    ranks = list(run.pids(1).values())
    kill(worker.pid)
    assert run.end_of(1).outcome == "evicted"
    until(lambda: not any(map(psutil.pid_exists, ranks)), 5.0, "the end of all ranks")
    run.wait_for_step(2)
    row = run.run.snapshot().rows[0]
    assert (row.own_failures, row.evictions) == (0, 1)
    (restart,) = run.run.snapshot().restarts
    assert restart.cause == "lost its worker"
    run.stop()
    assert audit(run.all_events()) == []


def test_no_rank_survives_a_killed_controller_for_five_seconds(cluster: object) -> None:
    run = start(TRAIN)
    run.wait_for_step(1)
    ranks = list(run.pids(1).values())
    status = session().ask("test", GetStatus()).status
    kill(status.controller_pid)
    until(lambda: not any(map(psutil.pid_exists, ranks)), 5.0, "the end of all ranks")


def test_a_worker_that_is_told_to_go_saves_first_and_costs_nothing(cluster: object) -> None:
    run = start(TRAIN, max_own_failures=1)
    run.wait_for_step(1)
    worker = worker_of(run.pids(1)[1])
    kill(worker.pid, signal.SIGTERM)
    end = run.end_of(1)
    assert end.outcome == "moved"
    saved = run.events(CheckpointSaved, 1)[-1]
    run.wait_for_step(2)
    assert run.events(Reported, 2)[0].step == saved.step + 1
    assert max(e.step for e in run.events(Reported, 1) if e.rank == 0) == saved.step
    row = run.run.snapshot().rows[0]
    assert (row.own_failures, row.evictions) == (0, 0)
    (restart,) = run.run.snapshot().restarts
    assert restart.cause == "moved elsewhere"
    until(lambda: not worker.is_running(), 10.0, "the end of the worker")
    run.stop()
    assert audit(run.all_events()) == []


def test_a_group_shrinks_when_slots_are_lost_and_grows_when_they_return(cluster: object) -> None:
    run = start(TRAIN, min_ranks=1, resize_after_s=1.0)
    run.wait_for_step(1)
    cluster.scale(1)  # type: ignore[attr-defined]
    run.wait_for_step(2)
    assert run.end_of(1).outcome == "evicted"
    assert len(run.pids(2)) == 1
    cluster.scale(2)  # type: ignore[attr-defined]
    assert run.end_of(2).outcome == "moved"
    last = run.events(CheckpointSaved, 2)[-1].step
    run.wait_for_step(3)
    assert len(run.pids(3)) == 2
    assert run.events(Reported, 3)[0].step == last + 1
    run.stop()
    assert audit(run.all_events()) == []


SAMPLES = """
import time
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

loader = prepare(DataLoader(TensorDataset(torch.arange(400)), batch_size=4, shuffle=True))
state = resume() or {"step": 0, "seen": []}
step, seen = state["step"], state["seen"]
for (batch,) in loader:
    parts = [None] * world_size()
    dist.all_gather_object(parts, batch.tolist())
    seen = [*seen, *(sample for part in parts for sample in part)]
    step += 1
    report(step=step)
    checkpoint(step=step, seen=seen)
    time.sleep(0.05)
"""


def test_an_epoch_sees_each_sample_once_while_its_group_shrinks_and_grows(cluster: object) -> None:
    run = start(SAMPLES, min_ranks=1, resize_after_s=0.5)
    run.wait_for_step(1)
    cluster.scale(1)  # type: ignore[attr-defined]
    run.wait_for_step(2)
    cluster.scale(2)  # type: ignore[attr-defined]
    run.wait_for_step(3)
    assert [len(run.pids(attempt)) for attempt in (1, 2, 3)] == [2, 1, 2]
    until(lambda: run.run.snapshot().finished_at_s, 60.0, "the end of the epoch")
    told = "restarted with 1 of 2 ranks from the checkpoint at step"
    assert any(told in text for text in run.run.snapshot().notices)
    state = newest_checkpoint(run.run.directory / "checkpoints", 0, print)
    assert state is not None
    seen = state["seen"]
    assert set(seen) == set(range(400))
    assert len(seen) - 400 <= 4 * 2, "more than one batch of all ranks was seen twice"


def test_a_cell_without_a_checkpoint_is_told_that_it_begins_anew(cluster: object) -> None:
    source = "import time\nimport torch\nreport(step=0)\ntime.sleep(60)\n"
    run = start(source, min_ranks=1)
    until(lambda: len(run.events(Reported)) == 2, 30.0)
    kill(run.pids(1)[0])
    until(lambda: run.pids(2), 15.0, "the second round")
    notices = [e.text for e in run.all_events() if isinstance(e, Notice)]
    assert "restarted from the beginning: the cell saved no checkpoint" in notices
    run.stop()


def test_twenty_runs_submitted_at_once_all_come_through(cluster: object) -> None:
    source = (
        "import torch\nimport torch.distributed as dist\n"
        "mine = torch.tensor([float({number}), 1.0])\ndist.all_reduce(mine)\n"
        "assert mine.tolist() == [2.0 * {number}, 2.0]\nreport(step=0)\n"
    )
    runs = [start(source.format(number=number)) for number in range(20)]
    for run in runs:
        until(lambda run=run: run.run.snapshot().finished_at_s, 120.0, "the end of a run")
        assert run.run.snapshot().state == "complete"
        assert audit(run.all_events()) == []
