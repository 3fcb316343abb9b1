"""What the ranks of a training have sent, added up over ranks and rounds."""

from __future__ import annotations

from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.snapshots import snapshot_of
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
    return StepsTimed(0, attempt, rank, 2.0, 4, 0.1, 0.0, None, 8, bytes_sent=bytes_sent)


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
