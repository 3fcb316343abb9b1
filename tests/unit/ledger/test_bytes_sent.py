"""What the ranks of a training have sent, added up over ranks and rounds."""

from __future__ import annotations

from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.snapshots import snapshot_of
from jupyter_ddl.ledger.tables import RANK_COLUMNS, ranks_table
from jupyter_ddl.protocol.events import (
    AttemptStarted,
    Event,
    RankStarted,
    RunStarted,
    RunSubmitted,
    StepsTimed,
    TrialCreated,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.verbs.ddp import Ddp

_BEGUN: list[Event] = [
    RunSubmitted(RunSpec("r", Ddp(2), Program("train()", "In [1]"), 7, "local", 1000.0), 1.0),
    RunStarted(1.0, 1, 2, 1, 1),
    TrialCreated(0, {}, 1.0),
]


def _round(number: int) -> list[Event]:
    ranks = [RankStarted(0, number, r, 1.0, f"w{r}", "h", 1, "a.log", 0) for r in range(2)]
    return [AttemptStarted(0, number, 1.0, "w0", 10, "a.log", 0), *ranks]


def _told(attempt: int, rank: int, bytes_sent: int | None) -> StepsTimed:
    n_updates, peak_memory_bytes = 5, 1000 + rank
    return StepsTimed(
        0, attempt, rank, 2.0, 4, 0.1, 0.0, None, 8, bytes_sent=bytes_sent,
        n_updates=n_updates, peak_memory_bytes=peak_memory_bytes,
    )  # fmt: skip


def _sent(*events: Event) -> int | None:
    state = fold_all([*_BEGUN, *events])
    found = snapshot_of(state, 3.0).bytes_sent
    assert found == state.group.bytes_sent
    return found


def test_later_sums_of_a_rank_hold_the_earlier_and_rounds_add_up() -> None:
    first = [*_round(1), _told(1, 0, 100), _told(1, 1, 70), _told(1, 0, 300)]
    assert _sent(*first) == 370
    assert _sent(*first, *_round(2), _told(2, 0, 10), _told(2, 1, 20), _told(2, 1, 25)) == 405


def test_a_training_whose_strategy_does_not_count_has_no_sum() -> None:
    assert _sent(*_round(1), _told(1, 0, None)) is None


def test_each_rank_of_the_latest_round_has_its_bytes_of_a_step_and_its_peak_of_memory() -> None:
    earlier = [*_round(1), _told(1, 0, 9000), _told(1, 1, 9000)]
    state = fold_all([*_BEGUN, *earlier, *_round(2), _told(2, 0, 50), _told(2, 0, 100)])
    first, second = snapshot_of(state, 3.0).ranks
    # All five steps have sent something, also the first, which is not timed.
    assert (first.bytes_per_step, first.peak_memory_bytes) == (20.0, 1000)
    assert (second.bytes_per_step, second.peak_memory_bytes) == (None, None)
    told, silent = ranks_table(state)
    assert tuple(told) == tuple(silent) == RANK_COLUMNS
    assert (told["steps"], told["bytes_per_step"], told["peak_memory_bytes"]) == (5, 20.0, 1000)
    assert told["step_ms"] == 25.0
    assert told["exchange_ms"] is None
    assert {silent[name] for name in RANK_COLUMNS[4:]} == {None}


def test_a_parameter_server_has_bytes_and_memory_and_no_step_of_its_own() -> None:
    spec = RunSpec(
        "r", Ddp(2, strategy="ps-sync"), Program("train()", "In [1]"), 7, "local", 1000.0
    )
    begun = [RunSubmitted(spec, 1.0), *_BEGUN[1:]]
    rows = ranks_table(fold_all([*begun, *_round(1), _told(1, 0, 50), _told(1, 1, 200)]))
    assert [row["bytes_per_step"] for row in rows] == [10.0, 40.0]
    assert [row["peak_memory_bytes"] for row in rows] == [1000, 1001]
    assert [row["step_ms"] for row in rows] == [25.0, None]
