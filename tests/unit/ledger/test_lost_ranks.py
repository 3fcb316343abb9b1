"""Ranks that were lost while the others went on, in a run's record."""

from __future__ import annotations

from jupyter_ddl.ledger.history import history_of
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.plotting.staleness import staleness_counts
from jupyter_ddl.protocol.events import (
    AttemptStarted,
    Event,
    RankEnded,
    RankStarted,
    RunSubmitted,
    StalenessCounted,
    StepsTimed,
    TrialCreated,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.staleness import Staleness
from jupyter_ddl.verbs.ddp import Ddp


def _ledger() -> list[Event]:
    spec = RunSpec("r1", Ddp(2, strategy="diloco"), Program("", ""), 0, "test", 0.0)
    begun = (0, 1, 0, 10.0, "w0", "h", 1, "log-0", 0)

    def sent(at_s: float, n_bytes: int) -> StepsTimed:
        return StepsTimed(0, 1, 1, at_s, 5, 1.0, 0.0, None, 0, bytes_sent=n_bytes)

    return [
        RunSubmitted(spec, 1.0),
        TrialCreated(0, {}, 2.0),
        AttemptStarted(0, 1, 10.0, "w0", 1, "log-0", 0),
        RankStarted(*begun, world_size=2),
        RankStarted(0, 1, 1, 10.0, "w1", "h", 2, "log-1", 0, world_size=2),
        sent(11.0, 100),
        RankEnded(0, 1, 1, "failed", 12.0, 2.0, others_go_on=True),
        RankStarted(0, 1, 1, 13.0, "w1", "h", 3, "log-1-2", 0, world_size=2, life=2),
        sent(14.0, 30),
    ]


def test_a_timeline_marks_the_loss_of_a_rank_and_its_return() -> None:
    marks = [(at_s, kind, text) for at_s, kind, _, text in history_of(_ledger(), [], None).marks]
    assert marks == [
        (11.0, "failed", "rank 1 was lost; the round goes on"),
        (12.0, "restart", "rank 1 joins"),
    ]


def test_a_rank_that_is_back_runs_and_what_it_sends_adds_to_what_it_had_sent() -> None:
    state = fold_all(_ledger())
    assert state.ranks[0].ended == {}
    assert state.ranks[0].started[1].pid == 3
    assert state.group.bytes_sent == 130
    assert state.trials[0].own_failures == 0


def test_what_a_server_has_counted_before_it_was_lost_stays_counted() -> None:
    events = _ledger()
    for at, counts in ((6, (4, 1)), (10, (2,)), (11, (3,))):
        events.insert(at, StalenessCounted(0, 1, 15.0, Staleness(1, counts, 1)))
    counted = fold_all(events).ranks[0].staleness.values()
    assert staleness_counts(counted) == [4 + 3, 1]
