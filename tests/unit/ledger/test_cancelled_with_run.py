"""Trials that were cancelled only because their run was: another session takes them up again."""

from __future__ import annotations

from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    RunFinished,
    RunStarted,
    RunSubmitted,
    StopRequested,
    TrialCreated,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.verbs.map import Map


def begun() -> list[Event]:
    verb = Map(over="items", element="item", n_items=2)
    return [
        RunSubmitted(RunSpec("r1", verb, Program("", "In [1]"), 1, "test", 0.0), 0.0),
        RunStarted(0.0, 1, 2, 2, 7),
        TrialCreated(0, {}, 0.0),
        TrialCreated(1, {}, 0.0),
        AttemptStarted(0, 1, 1.0, "w0", 1, "log", 0),
        AttemptStarted(1, 1, 1.0, "w1", 2, "log", 0),
    ]


def ended(trial: int, attempt: int = 1, outcome: str = "cancelled") -> AttemptFinished:
    return AttemptFinished(trial, attempt, outcome, 2.0, 1.0)  # type: ignore[arg-type]


def test_a_stop_of_the_run_leaves_its_trials_to_another_session() -> None:
    stopped = [*begun(), StopRequested(1.5, "now"), ended(0), ended(1)]
    stopped.append(RunFinished(3.0, "cancelled"))
    state = fold_all(stopped)
    assert state.counts.cancelled == 2
    assert [trial.number for trial in state.unfinished()] == [0, 1]
    resumed = [*stopped, RunStarted(9.0, 2, 2, 2, 8)]
    assert fold_all(resumed).counts.waiting == 2
    resumed += [AttemptStarted(0, 2, 10.0, "w0", 1, "log", 0), ended(0, 2, "complete")]
    resumed += [AttemptStarted(1, 2, 10.0, "w0", 1, "log", 0), ended(1, 2, "complete")]
    resumed.append(RunFinished(12.0, "complete"))
    assert audit(resumed) == []
    assert fold_all(resumed).counts.complete == 2


def test_a_trial_that_was_stopped_itself_stays_cancelled() -> None:
    stopped = [*begun(), StopRequested(1.2, "now", trial=0), ended(0), StopRequested(1.5, "now")]
    stopped += [ended(1), RunFinished(3.0, "cancelled"), RunStarted(9.0, 2, 2, 2, 8)]
    state = fold_all(stopped)
    assert (state.counts.cancelled, state.counts.waiting) == (1, 1)
    again = [*stopped, AttemptStarted(0, 2, 10.0, "w0", 1, "log", 0)]
    assert audit(again) == ["record 13: attempt 2 of trial 0 starts, but the trial is cancelled"]
