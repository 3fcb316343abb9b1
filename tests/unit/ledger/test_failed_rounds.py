"""Which failures of a rank group are worth another round, and when it is given up."""

from __future__ import annotations

import pytest

from jupyter_ddl.driving.ending import final_event
from jupyter_ddl.ledger.fold_group import NEVER_MET
from jupyter_ddl.ledger.reducer import MAX_UNMET, fold_all
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    CheckpointSaved,
    Event,
    Failure,
    FailureKind,
    Reported,
    RunStarted,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import Limits, RunSpec
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.verbs.ddp import Ddp
from jupyter_ddl.verbs.search import Search
from tests.unit.ledger.event_makers import begun, created, started, submitted

LIMITS = Limits(max_own_failures=4, max_evictions=50)
PROGRAM = Program("x = 1", "In [3]")
DDP = RunSpec("d1", Ddp(2), PROGRAM, 7, "local", 1000.0, limits=LIMITS)


def failed(
    attempt: int,
    message: str = "boom",
    *,
    line: int = 7,
    kind: FailureKind = "exception",
    type_name: str = "ValueError",
) -> AttemptFinished:
    failure = Failure(kind, type_name, message, line=line, rank=0)
    return AttemptFinished(0, attempt, "failed", 1005.0, 1.0, failure=failure)


def lost(attempt: int, type_name: str = NEVER_MET) -> AttemptFinished:
    failure = Failure("launch", type_name, "rank 1: worker w1 is gone", rank=1)
    return AttemptFinished(0, attempt, "evicted", 1005.0, 1.0, failure=failure)


def at_step(attempt: int, step: int) -> Reported:
    return Reported(0, attempt, step, {"loss": 1.0}, 1004.0, 0)


def saved_at(attempt: int, step: int) -> CheckpointSaved:
    return CheckpointSaved(0, attempt, step, "f", 1, 1004.0)


def after(*events: Event, spec: RunSpec = DDP) -> RunState:
    return fold_all([submitted(spec), started(), created(0), *events])


def test_an_exception_that_repeats_is_not_tried_a_third_time() -> None:
    state = after(begun(0, 1), failed(1), begun(0, 2), failed(2))
    assert state.trials[0].state == "failed"
    end = final_event(DDP, state, (False, "", False), 1010.0)
    assert end.reason == "failed twice the same way at line 7, so it was not tried a third time"
    assert end.failure is not None
    assert end.failure.message == "boom"


def test_which_rank_came_first_and_how_many_followed_makes_no_difference() -> None:
    first, second = "rank 0: boom in 0 (1 more rank failed)", "rank 1: boom in 1"
    state = after(begun(0, 1), failed(1, first), begun(0, 2), failed(2, second))
    assert state.trials[0].state == "failed"


@pytest.mark.parametrize(
    "second",
    [
        failed(2, "bang"),
        failed(2, line=8),
        failed(2, type_name="KeyError"),
        AttemptFinished(0, 2, "evicted", 1005.0, 1.0),
    ],
)
def test_another_failure_is_worth_another_round(second: AttemptFinished) -> None:
    assert after(begun(0, 1), failed(1), begun(0, 2), second).trials[0].state == "waiting"


@pytest.mark.parametrize(
    ("kind", "type_name"),
    [
        ("crash", "SIGKILL"),
        ("hang", "Hang"),
        ("memory", "SIGKILL"),
        ("exception", "ConnectionResetError"),
        ("exception", "TimeoutError"),
        ("exception", "DistNetworkError"),
        ("exception", "HTTPError"),
    ],
)
def test_what_may_not_be_the_codes_own_doing_has_the_whole_budget(
    kind: FailureKind, type_name: str
) -> None:
    rounds: list[Event] = []
    for attempt in range(1, 4):
        rounds += [begun(0, attempt), failed(attempt, kind=kind, type_name=type_name)]
    assert after(*rounds).trials[0].state == "waiting"
    state = after(*rounds, begun(0, 4), failed(4, kind=kind, type_name=type_name))
    assert state.trials[0].state == "failed"
    end = final_event(DDP, state, (False, "", False), 1010.0)
    assert end.reason == "given up after 4 rounds"


def test_a_further_step_or_a_newer_checkpoint_is_progress() -> None:
    head = [begun(0, 1), at_step(1, 5), failed(1), begun(0, 2)]
    assert after(*head, at_step(2, 6), failed(2)).trials[0].state == "waiting"
    assert after(*head, at_step(2, 5), failed(2)).trials[0].state == "failed"
    saved = after(*head, saved_at(2, 3), failed(2))
    assert saved.trials[0].state == "waiting"


def test_checkpoints_of_the_same_steps_made_again_are_no_progress() -> None:
    rounds: list[Event] = []
    for attempt in (1, 2):
        rounds += [begun(0, attempt), saved_at(attempt, 3), failed(attempt)]
    assert after(*rounds).trials[0].state == "failed"


def test_who_resumes_may_have_mended_the_cause() -> None:
    again = RunStarted(at_s=1006.0, session=2, n_slots=2, max_parallel=1, controller_pid=1)
    state = after(begun(0, 1), failed(1), again, begun(0, 2), failed(2))
    assert state.trials[0].state == "waiting"


def test_trials_of_a_search_keep_their_documented_budget() -> None:
    verb = Search("score", "max", 4, {"x": Uniform(low=0, high=1)}, ranks_per_trial=2)
    spec = RunSpec("s1", verb, PROGRAM, 7, "local", 1000.0, limits=LIMITS)
    state = after(begun(0, 1), failed(1), begun(0, 2), failed(2), spec=spec)
    assert state.trials[0].state == "waiting"


def test_ranks_that_never_meet_end_the_run_with_the_cause() -> None:
    losses = [lost(attempt) for attempt in range(1, MAX_UNMET)]
    assert after(*losses).trials[0].state == "waiting"
    state = after(*losses, lost(MAX_UNMET))
    trial = state.trials[0]
    assert trial.state == "failed"
    assert trial.failure is not None
    assert trial.failure.message == (
        "the ranks could not be brought together 10 times in a row; "
        "the last time: rank 1: worker w1 is gone"
    )


def test_a_round_that_had_met_ends_the_row() -> None:
    losses = [lost(attempt) for attempt in range(1, MAX_UNMET)]
    met = [begun(0, MAX_UNMET), lost(MAX_UNMET, "WorkerLost"), lost(MAX_UNMET + 1)]
    assert after(*losses, *met).trials[0].state == "waiting"


def test_the_limit_of_losses_names_the_last_one() -> None:
    losses = [lost(attempt, "WorkerLost") for attempt in range(1, 52)]
    failure = after(*losses).trials[0].failure
    assert failure is not None
    assert failure.message == (
        "the trial lost its worker 51 times in a row without a further step or checkpoint, the "
        "limit is 50; "
        "the last time: rank 1: worker w1 is gone"
    )
