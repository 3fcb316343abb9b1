"""What a run's state and its snapshot tell of a rank group and its rounds."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.run_state import N_POINTS
from jupyter_ddl.ledger.snapshots import encoded_snapshot, snapshot_of, with_totals
from jupyter_ddl.ledger.tables import metrics_table
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    Event,
    Failure,
    HangVerdict,
    Outcome,
    RankEnded,
    RankStarted,
    Reported,
    RunFinished,
    StepsTimed,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import Limits, RunSpec
from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.verbs.ddp import Ddp
from jupyter_ddl.verbs.search import Search
from tests.unit.ledger.event_makers import begun, checkpointed, created, ended, started, submitted

KILLED = Failure("crash", "SIGKILL", "rank 1: killed", rank=1)


def ddp_spec(n_ranks: int = 2) -> RunSpec:
    program = Program("x = 1", "In [3]")
    limits = Limits(max_own_failures=4)
    return RunSpec("d1", Ddp(n_ranks), program, 7, "local", 1000.0, limits=limits)


def rank_begun(rank: int, attempt: int = 1, trial: int = 0, world_size: int = 2) -> RankStarted:
    return RankStarted(
        trial, attempt, rank, 1003.0, f"w{rank}", "127.0.0.1", 100 + rank, f"{rank}.log", 0,
        world_size=world_size,
    )  # fmt: skip


def rank_over(rank: int, outcome: Outcome, attempt: int = 1, at_s: float = 1005.0) -> RankEnded:
    failure = KILLED if outcome == "failed" else None
    return RankEnded(0, attempt, rank, outcome, at_s, 2.0, 50, None, failure)


def told(step: int, rank: int = 0, attempt: int = 1, **metrics: float) -> Reported:
    return Reported(0, attempt, step, metrics or {"loss": 1.0 / (step + 1)}, 1004.0, rank)


def round_of(attempt: int, *between: Event) -> list[Event]:
    return [begun(0, attempt), rank_begun(0, attempt), rank_begun(1, attempt), *between]


def drawn(*events: Event) -> RunSnapshot:
    head = [submitted(ddp_spec()), started(), created(0)]
    return snapshot_of(fold_all([*head, *events]), 1010.0)


def test_how_far_a_training_came_is_in_its_last_record() -> None:
    head = [submitted(ddp_spec()), started(), created(0)]
    end = RunFinished(1010.0, "complete")
    never = with_totals(fold_all(head), end)
    assert (never.step, never.round) == (None, 0)
    rounds = [*head, *round_of(1, told(5)), ended(0, outcome="evicted")]
    rounds += round_of(2, told(9, rank=1, attempt=2))
    assert with_totals(fold_all(rounds), end).step == 9
    rounds.append(told(8, attempt=2))
    state = fold_all(rounds)
    last = with_totals(state, end)
    assert (last.step, last.round) == (8, 2)
    snapshot = snapshot_of(state, 1010.0)
    assert (snapshot.last_step, snapshot.round) == (8, 2)


def test_a_snapshot_shows_each_ranks_place_and_its_last_report() -> None:
    snapshot = drawn(*round_of(1, told(3), told(3, rank=1, loss=9.0), told(4)))
    first, second = snapshot.ranks
    assert (first.rank, first.worker, first.pid, first.state) == (0, "w0", 100, "running")
    assert (first.step, first.metrics) == (4, {"loss": 0.2})
    assert (second.step, second.metrics) == (3, {"loss": 9.0})
    assert (snapshot.round, snapshot.max_rounds, snapshot.world_size) == (1, 4, 2)


def test_only_rank_0_speaks_for_the_group() -> None:
    snapshot = drawn(*round_of(1, told(5), told(90, rank=1, other=3.0)))
    assert snapshot.series == {"loss": ((5, 1 / 6),)}
    assert snapshot.rows[0].step == 5


def test_a_restart_tells_which_rank_began_it_and_where_the_next_round_goes_on() -> None:
    events = [
        *round_of(1, told(1), msgspec.structs.replace(checkpointed(0), step=20)),
        rank_over(1, "failed"),
        rank_over(0, "cancelled"),
        AttemptFinished(0, 1, "failed", 1005.0, 2.0, failure=KILLED),
    ]
    (waiting,) = drawn(*events).restarts
    assert (waiting.round, waiting.rank, waiting.cause) == (1, 1, "died by SIGKILL")
    assert not waiting.is_over
    snapshot = drawn(*events, *round_of(2))
    (restart,) = snapshot.restarts
    assert restart.is_over
    assert restart.step == 20
    assert snapshot.round == 2
    assert all(row.state == "running" for row in snapshot.ranks)


@pytest.mark.parametrize(
    ("type_name", "cause"),
    [("SIGKILL", "was ended for its memory"), ("OutOfMemoryError", "raised OutOfMemoryError")],
)
def test_a_rank_that_ran_out_of_memory_was_ended_or_raised(type_name: str, cause: str) -> None:
    failure = Failure("memory", type_name, "too much", rank=1)
    end = AttemptFinished(0, 1, "failed", 1005.0, 2.0, failure=failure)
    (restart,) = drawn(*round_of(1), end).restarts
    assert (restart.rank, restart.cause) == (1, cause)


def test_a_lost_worker_is_a_restart_of_the_rank_that_was_there() -> None:
    events = [
        *round_of(1),
        rank_over(1, "evicted", at_s=1004.0),
        rank_over(0, "cancelled"),
        ended(0, outcome="evicted"),
    ]
    (restart,) = drawn(*events).restarts
    assert (restart.rank, restart.cause) == (1, "lost its worker")


def test_a_round_that_resumes_overwrites_the_steps_it_repeats() -> None:
    first = [told(step, loss=1.0) for step in range(6)]
    again = [told(step, attempt=2, loss=2.0) for step in (3, 4)]
    failed = AttemptFinished(0, 1, "failed", 1005.0, 2.0, failure=KILLED)
    snapshot = drawn(*round_of(1, *first), failed, *round_of(2, *again))
    assert [step for step, _ in snapshot.series["loss"]] == [0, 1, 2, 3, 4]
    assert [value for _, value in snapshot.series["loss"]] == [1.0, 1.0, 1.0, 2.0, 2.0]


def test_a_long_series_is_thinned_evenly_and_keeps_its_last_point() -> None:
    points = drawn(*round_of(1, *(told(step) for step in range(10_001)))).series["loss"]
    assert N_POINTS / 3 < len(points) <= N_POINTS + 1
    assert points[0][0] == 0
    assert points[-1][0] == 10_000
    gaps = {b[0] - a[0] for a, b in pairwise(points[:-1])}
    assert len(gaps) == 1


def test_values_that_are_not_finite_are_no_points() -> None:
    snapshot = drawn(*round_of(1, told(0, loss=float("nan")), told(1, loss=2.0)))
    assert snapshot.series == {"loss": ((1, 2.0),)}


def test_of_three_hundred_metrics_the_important_ones_have_a_curve() -> None:
    many = {f"layer{n}/norm": 1.0 for n in range(296)} | {"lr": 0.1, "train_loss": 1.0}
    late = {**many, "val_acc": 0.5, "__proto__": 0.25}
    reports = [told(step, **(late if step > 100 else many)) for step in range(400)]
    head = [submitted(ddp_spec()), started(), created(0)]
    state = fold_all([*head, *round_of(1, *reports)])
    snapshot = encoded_snapshot(state, 1010.0).decode()
    assert snapshot.n_metrics == 300
    assert len(snapshot.metrics) == 24
    assert snapshot.metrics[:3] == ("val_acc", "train_loss", "layer0/norm")
    assert snapshot.series.keys() == set(snapshot.metrics)
    assert [points[-1][0] for points in snapshot.series.values()][:2] == [399, 399]
    assert len(snapshot.series["train_loss"]) > 33
    assert list(snapshot.ranks[0].metrics)[:2] == ["val_acc", "train_loss"]
    six = {"lr": 0.1, "tokens": 5.0, "norm": 1.0, "acc": 0.5, "loss": 1.0, "val_acc": 0.4}
    few = drawn(*round_of(1, *(told(step, **six) for step in range(3))))
    assert few.metrics == ("val_acc", "loss", "lr", "tokens", "norm", "acc")
    assert few.n_metrics == 6


def test_a_group_of_many_ranks_shows_its_first_ones_and_counts_all() -> None:
    ranks = [rank_begun(rank, world_size=500) for rank in range(500)]
    snapshot = drawn(begun(0), *ranks, *(told(1, rank=rank) for rank in range(500)))
    assert 8 < len(snapshot.ranks) <= 64
    assert snapshot.world_size == 500


def test_a_hang_is_told_once_in_notices_and_as_a_card() -> None:
    verdict = HangVerdict(
        0, 1, 1, 1005.0, "rank 1 made no step for 60 s", 4, stacks_file="stacks/1.txt"
    )
    snapshot = drawn(*round_of(1), verdict)
    assert snapshot.hang == verdict
    assert snapshot.notices == (verdict.text,)


def test_a_search_keeps_the_groups_of_running_trials_and_of_the_best_only() -> None:
    verb = Search("acc", "max", 9, {"lr": Uniform(0.0, 1.0)}, ranks_per_trial=2)
    spec = msgspec.structs.replace(ddp_spec(), verb=verb)
    events: list[Event] = [submitted(spec), started()]
    for trial in range(6):
        events += [created(trial), begun(trial), rank_begun(0, trial=trial)]
        if trial < 5:
            events.append(ended(trial, value=float(trial == 2)))
    assert set(fold_all(events).ranks) == {2, 5}


def test_metrics_of_a_group_have_a_rank_column() -> None:
    events = [begun(0), told(1), told(1, rank=1), told(2)]
    rows = [(row["rank"], row["step"]) for row in metrics_table(events)]
    assert rows == [(0, 1), (0, 2), (1, 1)]
    assert "rank" not in metrics_table([begun(0), told(1)])[0]


def test_what_is_known_of_live_ranks_stands_beside_the_record() -> None:
    head = [submitted(ddp_spec()), started(), created(0)]
    state = fold_all([*head, *round_of(1, rank_over(1, "complete"))])
    liveness = {0: ("cell", 1008.5), 1: ("leaving", 1007.0)}
    first, second = encoded_snapshot(state, 1010.0, liveness=liveness).decode().ranks
    assert (first.phase, first.heard_at_s) == ("cell", 1008.5)
    assert (second.phase, second.heard_at_s) == ("", None)  # it is over


def test_ranks_that_have_not_begun_are_to_come() -> None:
    begin = [submitted(ddp_spec()), started(), created(0), begun(0, 1)]
    events = [*begin, rank_begun(0, world_size=3)]
    assert snapshot_of(fold_all(events), 1010.0).n_to_come == 2
    events += [rank_begun(rank, world_size=3) for rank in (2, 1)]
    assert snapshot_of(fold_all(events), 1010.0).n_to_come == 0


def test_a_rank_that_keeps_parameters_is_not_the_one_that_others_wait_for() -> None:
    """Between two updates it waits for gradients, which no rank that trains does."""
    verb = Ddp(3, strategy="ps-sync")
    spec = msgspec.structs.replace(ddp_spec(), verb=verb)
    ranks = [rank_begun(rank, world_size=3) for rank in range(3)]
    times = [(0.5, 0.4), (0.5, 0.4), (0.5, 0.0)]
    steps = [
        StepsTimed(0, 1, rank, 1004.0, 100, 100 * step_s, 0.0, 100 * exchange_s, 800)
        for rank, (step_s, exchange_s) in enumerate(times)
    ]
    events = [submitted(spec), started(), created(0), begun(0, 1), *ranks, *steps]
    snapshot = snapshot_of(fold_all(events), 1010.0)
    assert snapshot.step_verdict.startswith("80 % of a step exchanges gradients: try a larger")
    assert [row.parts is None for row in snapshot.ranks] == [False, False, True]
