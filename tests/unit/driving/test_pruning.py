"""Pruning and giving up, by what was committed, also over several sessions."""

from __future__ import annotations

from jupyter_ddl.driving.pruning import NoPruning, PruningByReports
from jupyter_ddl.ledger.reducer import fold, fold_all
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Failure,
    Reported,
    RunFinished,
    RunStarted,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import Limits, RunSpec
from jupyter_ddl.protocol.sampling import PrunerSpec
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.studies.pruners import make_pruner
from jupyter_ddl.verbs.search import Search

BAD = Failure("exception", "ValueError", "no", line=3)


def submitted(max_own_failures: int = 1) -> RunSubmitted:
    verb = Search("score", "max", 20, {"x": Uniform(0.0, 1.0)})
    limits = Limits(max_own_failures=max_own_failures)
    spec = RunSpec("r1", verb, Program("", "In [1]"), 1, "test", 0.0, limits=limits)
    return RunSubmitted(spec, 0.0)


def trial(number: int, score: float, outcome: str = "complete", attempt: int = 1) -> list[Event]:
    failure = BAD if outcome == "failed" else None
    created: list[Event] = [TrialCreated(number, {"x": 0.5}, 0.0)] if attempt == 1 else []
    return [
        *created,
        AttemptStarted(number, attempt, 1.0, "w0", 1, "log", 0),
        Reported(number, attempt, 0, {"score": score}, 1.0),
        AttemptFinished(number, attempt, outcome, 2.0, 1.0, score, failure=failure),  # type: ignore[arg-type]
    ]


def failing(*numbers: int) -> list[Event]:
    return [event for number in numbers for event in trial(number, 0.0, "failed")]


def median_policy() -> PruningByReports:
    spec = PrunerSpec("median", {"n_startup_trials": 2})
    return PruningByReports(1, make_pruner(spec, "max"), "score")


def start_of(number: int, score: float, attempt: int = 1) -> list[Event]:
    return trial(number, score, attempt=attempt)[:-1]


def test_a_bad_trial_is_pruned_by_what_complete_ones_reported() -> None:
    policy = median_policy()
    events: list[Event] = [submitted(), RunStarted(0.0, 1, 1, 1, 7), *trial(0, 5.0), *trial(1, 6.0)]
    state = fold_all(events)
    assert policy.to_prune(events, state) == []
    more = start_of(2, 1.0)
    for event in more:
        fold(state, event)
    assert policy.to_prune(more, state) == [2]


def test_a_failed_attempt_does_not_end_a_trial_that_is_tried_again() -> None:
    policy = median_policy()
    head: list[Event] = [submitted(max_own_failures=3), RunStarted(0.0, 1, 1, 1, 7)]
    state = fold_all(head)
    for part in (trial(0, 5.0), trial(1, 6.0), trial(2, 5.5, "failed"), start_of(2, 1.0, 2)):
        for event in part:
            fold(state, event)
        pruned = policy.to_prune(part, state)
    assert pruned == [2]


def test_a_resumed_run_prunes_by_the_reports_of_the_sessions_before() -> None:
    past: list[Event] = [submitted(), RunStarted(0.0, 1, 1, 1, 7), *trial(0, 5.0), *trial(1, 6.0)]
    past += [*start_of(2, 9.0), RunStarted(5.0, 2, 1, 1, 8)]
    state = fold_all(past)
    policy = median_policy()
    policy.begin(iter(past), state)
    again = start_of(2, 1.0, attempt=2)
    for event in again:
        fold(state, event)
    assert policy.to_prune(again, state) == [2]


def test_equal_failures_from_the_start_are_hopeless() -> None:
    policy = NoPruning(1)
    head: list[Event] = [submitted(), RunStarted(0.0, 1, 1, 1, 7)]
    assert policy.hopeless(fold_all([*head, *failing(0, 1)])) is None
    hopeless = policy.hopeless(fold_all([*head, *failing(0, 1, 2)]))
    assert hopeless is not None
    assert hopeless.type_name == "ValueError"
    assert policy.hopeless(fold_all([*head, *trial(3, 1.0), *failing(0, 1, 2)])) is None


def test_failures_of_earlier_sessions_prove_nothing() -> None:
    past: list[Event] = [submitted(), RunStarted(0.0, 1, 1, 1, 7), *failing(0, 1, 2)]
    past += [RunFinished(4.0, "failed"), RunStarted(5.0, 2, 1, 1, 8)]
    state = fold_all(past)
    policy = NoPruning(1)
    policy.begin(iter(()), state)
    assert policy.hopeless(state) is None
    for event in failing(3, 4, 5):
        fold(state, event)
    assert policy.hopeless(state) is not None
