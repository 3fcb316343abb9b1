"""A run over time: bars that do not overlap, marks of what happened, small however long it was."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise

import msgspec
import pytest

from jupyter_ddl.ledger.history import history_of
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    CheckpointSaved,
    Event,
    Failure,
    FoldFinished,
    HangVerdict,
    RankEnded,
    RankStarted,
    RunStarted,
    RunSubmitted,
)
from jupyter_ddl.protocol.telemetry import GpuSample, WorkerSample
from tests.unit.ledger.event_makers import search_spec
from tests.unit.ledger.test_fold_group import ddp_spec

BEGAN_S = 1000.0


def begun(trial: int, at_s: float, worker: str = "0", attempt: int = 1) -> AttemptStarted:
    return AttemptStarted(trial, attempt, at_s, worker=worker, pid=1, log="l", log_start=0)


def over(trial: int, at_s: float, outcome: str = "complete", attempt: int = 1) -> AttemptFinished:
    return AttemptFinished(trial, attempt, outcome, at_s, 1.0)  # type: ignore[arg-type]


def search(*events: Event) -> list[Event]:
    return [RunSubmitted(search_spec(), BEGAN_S), RunStarted(BEGAN_S, 1, 2, 2, 1), *events]


def rank(number: int, at_s: float, attempt: int = 1) -> RankStarted:
    return RankStarted(0, attempt, number, at_s, f"w{number}", "h", 1, "l", 0, world_size=2)


def test_two_slots_of_a_worker_are_two_lanes_and_what_runs_ends_now() -> None:
    events = search(
        begun(0, 1001.0), begun(1, 1002.0), over(0, 1004.0, "pruned"), begun(2, 1005.0),
        begun(3, 1005.0, "gpu-1"),
    )  # fmt: skip
    told = history_of(events, [], now_s=1010.0)
    assert told.lanes == ("worker 0", "worker 0 · 2", "gpu-1")
    assert (told.began_s, told.length_s, told.n_bars) == (1000.0, 10.0, 4)
    assert told.bars == (
        (0, 1.0, 4.0, "pruned", 0, 1),
        (0, 5.0, 10.0, "running", 2, 1),
        (1, 2.0, 10.0, "running", 1, 1),
        (2, 5.0, 10.0, "running", 3, 1),
    )
    assert told.marks == ((4.0, "pruned", 0, "trial 0: attempt 1 pruned"),)


def test_the_units_of_a_fit_are_bars_on_the_workers_that_computed_them() -> None:
    def candidate(trial: int, at_s: float, worker: str) -> AttemptStarted:
        return AttemptStarted(trial, 1, at_s, worker, pid=1, log=f"{worker}.log", log_start=0)

    def unit(trial: int, fold: int, at_s: float, log: str, **how: bool) -> FoldFinished:
        return FoldFinished(trial, fold, b"k", at_s, 1.0, log=log, **how)

    events = search(
        candidate(0, 1001.0, "0"), candidate(1, 1001.0, "1"),
        unit(0, 0, 1002.0, "0.log"), unit(1, 0, 1002.0, "1.log"),
        unit(0, 1, 1002.98, "1.log"), unit(1, 1, 1002.5, "0.log", has_raised=True),
        unit(0, 2, 1004.0, "new.log", is_lost=True), over(0, 1004.0), over(1, 1004.0),
    )  # fmt: skip
    told = history_of(events, [], now_s=None)
    assert told.lanes == ("worker 0", "worker 0 · 2", "worker 1", "other workers")
    assert told.bars == (
        (0, 1.0, 2.0, "complete", 0, 1),
        (1, 1.5, 2.5, "failed", 1, 1),
        (2, 1.0, 2.0, "complete", 1, 1),
        (2, 2.0, 2.98, "complete", 0, 1),
        (3, 3.0, 4.0, "evicted", 0, 1),
    )
    assert told.n_bars == 5


def test_a_training_has_a_lane_for_each_rank_and_marks_of_what_befell_it() -> None:
    killed = Failure("crash", "SIGKILL", "killed")
    events: list[Event] = [
        RunSubmitted(ddp_spec(), BEGAN_S),
        begun(0, 1001.0),
        rank(0, 1001.0),
        rank(1, 1001.5),
        CheckpointSaved(0, 1, 20, "c", 9, 1003.0),
        HangVerdict(0, 1, 1, 1004.0, "rank 1 made no step"),
        RankEnded(0, 1, 1, "failed", 1005.0, 3.5),
        RankEnded(0, 1, 0, "cancelled", 1005.0, 4.0),
        AttemptFinished(0, 1, "failed", 1005.0, 4.0, failure=killed),
        begun(0, 1006.0, attempt=2),
        rank(0, 1006.0, 2),
        rank(1, 1006.0, 2),
        over(0, 1009.0, attempt=2),
    ]
    told = history_of(events, [], None)
    assert told.lanes == ("rank 0", "rank 1")
    assert [bar[:4] for bar in told.bars] == [
        (0, 1.0, 5.0, "cancelled"),
        (0, 6.0, 9.0, "complete"),
        (1, 1.5, 5.0, "failed"),
        (1, 6.0, 9.0, "complete"),
    ]
    assert [(at, kind) for at, kind, _, _ in told.marks] == [
        (3.0, "checkpoint"),
        (4.0, "hang"),
        (5.0, "failed"),
        (6.0, "restart"),
    ]
    assert told.marks[2][3] == "attempt 1 failed: SIGKILL"


def test_a_controller_that_was_lost_ends_what_ran_and_is_marked() -> None:
    events = search(begun(0, 1001.0), RunStarted(1003.0, 2, 2, 2, 1), begun(0, 1004.0, attempt=2))
    told = history_of(events, [], 1005.0)
    assert [bar[:4] for bar in told.bars] == [(0, 1.0, 3.0, "evicted"), (0, 4.0, 5.0, "running")]
    assert [(at, kind) for at, kind, _, _ in told.marks] == [(3.0, "restart"), (4.0, "restart")]


def test_usage_is_the_mean_of_the_workers_and_nothing_where_nothing_was_measured() -> None:
    gpu = GpuSample("u", 0, "H", utilization=0.5)
    samples = [
        WorkerSample("a", "h", 1001.0, cpu=2.0, n_cpus=4.0, gpus=(gpu,)),
        WorkerSample("b", "h", 1001.0, cpu=4.0, n_cpus=4.0),
        WorkerSample("a", "h", 1119.5, memory_bytes=1, memory_limit_bytes=4),
        WorkerSample("a", "h", 999.0, cpu=4.0, n_cpus=4.0),
    ]
    told = history_of(search(begun(0, 1000.0), over(0, 1120.0)), samples, None)
    assert told.usage_at_s == (1.5, 119.5)
    assert told.cpu == (0.75, None)
    assert told.gpu == (0.5, None)
    assert told.memory == (None, 0.25)


@pytest.mark.parametrize("n_trials", [0, 1, 30, 5000])
def test_bars_of_a_lane_never_overlap_and_every_attempt_counts_once(n_trials: int) -> None:
    chance = random.Random(n_trials)
    at_s, events = BEGAN_S, search()
    running: list[int] = []
    for trial in range(n_trials):
        at_s += chance.expovariate(5)
        if len(running) == 100:
            ended = running.pop(chance.randrange(100))
            events.append(over(ended, at_s, chance.choice(["complete", "pruned", "failed"])))
        events.append(begun(trial, at_s, f"w{trial % 9}"))
        running.append(trial)
    told = history_of(events, [], at_s + 1)
    assert told.n_bars + told.n_hidden == n_trials
    assert sum(bar[5] for bar in told.bars) == told.n_bars
    assert len(told.lanes) <= 64
    by_lane = defaultdict(list)
    for lane, begin, end, *_ in told.bars:
        assert begin <= end <= told.length_s + 1e-3
        by_lane[lane].append((begin, end))
    for bars in by_lane.values():
        assert all(a[1] <= b[0] + 1e-3 for a, b in pairwise(bars))
    assert len(msgspec.json.encode(told)) < 100_000


def test_marks_are_bounded_and_a_hang_is_kept_rather_than_checkpoints() -> None:
    saved = [CheckpointSaved(0, 1, step, "c", 1, 1001.0 + step) for step in range(5000)]
    hang = HangVerdict(0, 1, 1, 3000.0, "rank 1")
    told = history_of(search(begun(0, 1001.0), *saved, hang), [], None)
    assert len(told.marks) <= 300
    assert told.n_marks == 5001
    assert [mark[1] for mark in told.marks].count("hang") == 1
