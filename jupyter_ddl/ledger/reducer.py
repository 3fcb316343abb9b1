"""The one place where the states of trials and runs follow from events.

Deterministic, no clock, no I/O: folding a ledger again gives the same state.  Every other part of
the package asks here what has become of a trial.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import msgspec

from jupyter_ddl.errors import LedgerError
from jupyter_ddl.formats import shortened
from jupyter_ddl.ledger import fold_group
from jupyter_ddl.ledger.outputs import forget_outputs, output_shown
from jupyter_ddl.ledger.run_state import (
    N_RECENT,
    N_TOP,
    Losses,
    RunState,
    TrialState,
    fold_finished,
)
from jupyter_ddl.ledger.snapshots import trial_reported
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    BudgetSet,
    CellExecuted,
    CheckpointSaved,
    Event,
    Failure,
    FoldFinished,
    HangVerdict,
    Notice,
    OutputShown,
    PipelineTimed,
    ProfileTaken,
    RankEnded,
    RankStarted,
    Reported,
    RunFinished,
    RunStarted,
    RunSubmitted,
    Spent,
    StalenessCounted,
    StepsTimed,
    StopRequested,
    TrialCreated,
)
from jupyter_ddl.protocol.snapshot import CellRow, TrialStateName

__all__ = [
    "MAX_UNMET",
    "RunState",
    "TrialState",
    "after_attempt",
    "cell_executed",
    "fold",
    "fold_all",
    "is_late",
    "kept_failure",
    "lost_too_often",
    "trial_ended",
    "trial_valued",
]


# Which trials a run shows: the best ones, the curve of all values, the last ended ones.
_N_CURVE = 300
_N_BEST_CURVE = 100


def trial_valued(state: RunState, trial: TrialState, value: float | None) -> None:
    """Put a finite value on the curve and, of a complete trial, among the best ones."""
    if value is None or not math.isfinite(value):
        return
    if state.n_curve % state.curve_stride == 0:
        state.curve.append((trial.number, value))
        if len(state.curve) > _N_CURVE:
            del state.curve[1::2]
            state.curve_stride *= 2
    state.n_curve += 1
    if trial.state != "complete":
        return
    objective = state.spec.verb.objective if state.spec is not None else None
    key = value if objective is not None and objective.mode == "min" else -value
    top = state.top
    if not top or key < top[0][0]:
        state.best_curve.append((state.n_finished, value))
        if len(state.best_curve) > _N_BEST_CURVE:
            del state.best_curve[1:-1:2]
    if len(top) < N_TOP or (key, trial.number) < top[-1]:
        insort(top, (key, trial.number))
        if len(top) > N_TOP:
            _forget(state, top.pop()[1])


def trial_ended(state: RunState, number: int) -> None:
    """Put a trial among those that ended last."""
    forgotten = state.recent[0] if len(state.recent) == N_RECENT else None
    state.recent.append(number)
    if forgotten is not None:
        _forget(state, forgotten)


def _forget(state: RunState, number: int) -> None:
    """Drop metrics and curve of a finished trial that no list shows any more."""
    if not state.trials.reported and not state.learning:
        return  # no trial has reported anything
    if number not in state.recent and number not in [other for _, other in state.top]:
        state.trials[number].forget_report()
        state.learning.pop(number, None)


# Folds the cells of a persistent group: the last ones are kept, all are counted.

_MAX_SOURCE = 500
_MAX_MESSAGE = 200


def cell_executed(state: RunState, event: CellExecuted) -> None:
    """Keep what a view shows of a cell."""
    failure = event.failure
    state.cells.append(
        CellRow(
            number=event.number,
            source=shortened(event.source.strip("\n"), _MAX_SOURCE),
            targets=event.targets,
            outcome=event.outcome,
            at_s=event.at_s,
            duration_s=event.duration_s,
            failure=""
            if failure is None
            else shortened(f"{failure.type_name}: {failure.message}", _MAX_MESSAGE),
        )
    )


# What a run keeps of failures, and when it gives a trial up that others keep losing.

MAX_UNMET = 10
"""Rounds in a row whose ranks never met, until a ddp run is given up."""
_N_FULL_FAILURES = 20
_MAX_TRACEBACK = 4096
_MAX_FAILURE_MESSAGE = 1000
_SHORT_MESSAGE = 200


def kept_failure(state: RunState, failure: Failure) -> Failure:
    """The first failures in full, the others without traceback: thousands are often alike."""
    if state.n_failures_kept < _N_FULL_FAILURES:
        state.n_failures_kept += 1
        return msgspec.structs.replace(
            failure,
            message=shortened(failure.message, _MAX_FAILURE_MESSAGE),
            traceback=_ending(failure.traceback, _MAX_TRACEBACK),
        )
    message = shortened(failure.message, _SHORT_MESSAGE)
    return msgspec.structs.replace(failure, message=message, traceback="")


def lost_too_often(
    event: AttemptFinished, n_losses: int, max_evictions: int, n_unmet: int
) -> Failure | None:
    """Why an evicted trial is given up; None: it is tried again.

    Parameters
    ----------
    n_losses
        Losses of this trial since it last came further, this one included.
    n_unmet
        Rounds in a row, this one included, whose ranks never met.
    """
    cause = "" if event.failure is None else f"; the last time: {event.failure.message}"
    if n_unmet >= MAX_UNMET:
        text = f"the ranks could not be brought together {n_unmet} times in a row{cause}"
    elif n_losses > max_evictions:
        text = (
            f"the trial lost its worker {n_losses} times in a row without a further step or "
            f"checkpoint, the limit is {max_evictions}{cause}"
        )
    else:
        return None
    kind = "crash" if event.failure is None else event.failure.kind
    return Failure(kind, "Evicted", shortened(text, _MAX_FAILURE_MESSAGE))


def _ending(text: str, limit: int) -> str:
    """The end of a traceback: the innermost frames and the message."""
    return text if len(text) <= limit else "…" + text[1 - limit :]


# What becomes of a trial whose attempt has ended.


def after_attempt(state: RunState, trial: TrialState, event: AttemptFinished) -> TrialStateName:
    """What becomes of a trial whose attempt has ended; charges the right budget."""
    if event.failure is not None:
        trial.failure = kept_failure(state, event.failure)
    limits = state.spec.limits if state.spec is not None else None
    if event.outcome == "failed":
        if event.failure is None or event.failure.kind != "disk":
            trial.own_failures += 1
        over = limits is not None and trial.own_failures >= limits.max_own_failures
        over |= event.failure is not None and event.failure.type_name in _MEANT
        # Asked in any case: it keeps count.
        return "failed" if fold_group.fails_again(state, trial, event) or over else "waiting"
    if event.outcome == "moved":
        return "waiting"
    if event.outcome == "evicted":
        trial.evictions += 1
        state.n_evictions += 1
        if limits is None:
            return "waiting"
        n_unmet = state.group.n_unmet
        failure = lost_too_often(event, _losses(state, trial), limits.max_evictions, n_unmet)
        if failure is None:
            return "waiting"
        trial.failure = failure
        return "failed"
    return event.outcome


def _losses(state: RunState, trial: TrialState) -> int:
    """How often in a row, this time included, a trial was lost without having come further."""
    before = state.losses.get(trial.number, Losses(0, -1, -1))
    step = -1 if trial.step is None else trial.step
    saved_step = -1 if trial.checkpoint is None else trial.checkpoint.step
    is_further = step > before.step or saved_step > before.saved_step
    number = 1 if is_further else before.number + 1
    furthest = max(step, before.step), max(saved_step, before.saved_step)
    state.losses[trial.number] = Losses(number, *furthest)
    return number


_MEANT = ("SystemExit", "SpecError")
"""Who calls ``sys.exit(2)``, as argparse does, means it, and what this package refuses in a cell it
refuses again: another try would end there as well."""
_N_FAILED = 64
_MAX_NOTICE = 300

# Any: the table below gives each handler its own event type.
_Handler: TypeAlias = Callable[[RunState, Any], None]


def fold(state: RunState, event: Event) -> None:
    """Change ``state`` as ``event`` says; an event that no longer counts is only counted.

    Raises
    ------
    LedgerError
        The first event is not ``RunSubmitted``.
    """
    kind = type(event)
    if state.spec is None and kind is not RunSubmitted:
        raise LedgerError(
            f"folding a run failed: its first event is {kind.__name__}, expected "
            f"RunSubmitted; the ledger has lost its beginning"
        )
    state.seq += 1
    # Reports are by far the commonest: their handler has its part of is_late() written out.
    if kind is Reported:
        _HANDLERS[kind](state, event)
    elif kind in _OF_TRIALS:
        _fold_of_trial(state, event)
    elif is_late(state, event):
        state.n_late += 1
    else:
        _HANDLERS[kind](state, event)


def _fold_of_trial(state: RunState, event: Any) -> None:
    """Begin or end of an attempt.  Every trial has both: its row is looked up once for each."""
    trial = state.trials.get(event.trial)
    if trial is None or _is_of_another(state, trial, event):
        state.n_late += 1
    else:
        _OF_TRIALS[type(event)](state, trial, event)


def fold_all(events: Iterable[Event]) -> RunState:
    """The state after all ``events``."""
    state = RunState()
    for event in events:
        fold(state, event)
    return state


_OF_CURRENT = (
    AttemptStarted,
    AttemptFinished,
    Reported,
    CheckpointSaved,
    OutputShown,
    ProfileTaken,
)
"""They count only while their attempt is the trial's current one."""


def is_late(state: RunState, event: Event) -> bool:
    """Whether ``event`` belongs to something that is over, so that folding it changes nothing.

    The first terminal record of a trial wins, and only its current attempt counts.
    """
    if isinstance(event, TrialCreated):
        return state.end is not None or event.trial in state.trials
    if isinstance(event, _OF_CURRENT):
        trial = state.trials.get(event.trial)
        return trial is None or _is_of_another(state, trial, event)
    if isinstance(event, RunFinished):
        return state.end is not None
    return isinstance(event, RunSubmitted) and state.spec is not None


def _is_of_another(state: RunState, trial: TrialState, event: Any) -> bool:
    """Whether an event is not of the trial's current attempt, or of one that may begin now."""
    if state.end is not None:
        return True
    is_in, current = trial.state, trial.attempt
    if is_in == "running" and event.attempt == current:
        return type(event) is AttemptStarted
    is_open = is_in == "running" or is_in == "waiting"
    return not (is_open and type(event) in _OF_TRIALS and event.attempt > current)


def _run_submitted(state: RunState, event: RunSubmitted) -> None:
    state.spec = event.spec
    state.budget = event.spec.limits.budget


def _run_started(state: RunState, event: RunStarted) -> None:
    """The run begins, or goes on: what was under way is waiting again, without charge."""
    for number in state.running | state.ended_with_run:
        _move(state, state.trials[number], "waiting")
    state.ended_with_run.clear()
    if state.end is not None:
        # Somebody resumes a run that was over: an earlier request to stop was obeyed, and the cause
        # of what failed may be gone.
        _try_failed_again(state)
        state.stop = None
        state.end = None
    state.trial_stops.clear()
    state.group.forget_failures()
    state.state = "running"
    state.session = event.session
    state.n_slots = event.n_slots
    state.max_parallel = event.max_parallel
    state.session_started_at_s = event.at_s
    if state.started_at_s is None:
        state.started_at_s = event.at_s
    state.n_finished_before = state.n_finished
    state.marks.clear()
    state.marks.append(event.at_s)
    state.rested_s = 0.0
    state.rest(event.at_s)


def _try_failed_again(state: RunState) -> None:
    """What has failed waits, with all of its tries.  Of fits the kernel says what is done again."""
    if state.spec is None or state.spec.verb.is_fed:
        return
    for trial in state.trials.values():
        if trial.state == "failed":
            trial.own_failures = 0
            _move(state, trial, "waiting")
    state.failed.clear()


def _trial_created(state: RunState, event: TrialCreated) -> None:
    state.trials.create(event.trial, event.params, state.seq)
    state.waiting.add(event.trial)
    state.numbers["waiting"] = state.numbers.get("waiting", 0) + 1
    if event.is_refit:
        state.refits.append(event.trial)


def _attempt_started(state: RunState, trial: TrialState, event: AttemptStarted) -> None:
    trial.begin(event)
    state.reported.begin(trial.row)
    forget_outputs(state, event.trial)
    fold_group.round_started(state)
    if state.rests_since_s is not None:
        state.rest_is_over(event.at_s)
    _move(state, trial, "running")


def _reported(state: RunState, event: Reported) -> None:
    trial = state.trials.get(event.trial)
    if (
        trial is None
        or trial.state != "running"
        or event.attempt != trial.attempt
        or state.end is not None
    ):
        state.n_late += 1
        return
    if state.ranks:
        fold_group.rank_reported(state, event)
        if event.rank:
            return  # the group's own figures are rank 0's
    objective = state.spec.verb.objective if state.spec is not None else None
    metric = "" if objective is None else objective.metric
    trial.report(event, metric, state.seq)
    state.reported.add(trial.row, event.metrics, metric)
    if objective is not None and metric in event.metrics:
        trial_reported(state, event)


def _checkpoint_saved(state: RunState, event: CheckpointSaved) -> None:
    state.trials[event.trial].checkpoint = event
    fold_group.checkpoint_saved(state, event)


def _attempt_finished(state: RunState, trial: TrialState, event: AttemptFinished) -> None:
    trial.attempt_ended(event)
    fold_group.round_ended(state, event)
    new = after_attempt(state, trial, event)
    if new == "waiting":
        _move(state, trial, "waiting")
        _rest_if_idle(state, event.at_s)
        return
    if new == "cancelled" and state.stop is not None and event.trial not in state.trial_stops:
        state.ended_with_run.add(event.trial)  # nobody meant this trial: it ends with its run
    _end_trial(state, trial, new, event)


def _end_trial(
    state: RunState, trial: TrialState, new: TrialStateName, event: AttemptFinished
) -> None:
    if not state.running:
        state.rests_since_s = None  # it has run, and nobody has told when it began
    _move(state, trial, new)
    if state.trials.checkpoint and new not in ("cancelled", "failed"):
        trial.checkpoint = None  # one that was stopped or has failed may go on from it
    trial.end(event)
    state.trial_stops.pop(trial.number, None)
    state.losses.pop(trial.number, None)
    state.marks.append(state.busy_s(event.at_s))
    _rest_if_idle(state, event.at_s)
    if new == "failed":
        if len(state.failed) < _N_FAILED:
            state.failed.append(trial.number)
    else:
        if state.trials.failure and new != "cancelled":
            trial.failure = None
        trial_valued(state, trial, event.value)
    trial_ended(state, trial.number)
    if state.ranks:
        fold_group.forget_ended(state)


def _stop_requested(state: RunState, event: StopRequested) -> None:
    if event.trial is not None:
        state.trial_stops[event.trial] = event.when
    elif state.stop is None or event.when == "now":
        state.stop = event


def _profile_taken(state: RunState, event: ProfileTaken) -> None:
    state.profiles[event.trial, event.rank] = event


def _spent(state: RunState, event: Spent) -> None:
    state.spent, state.spent_at_s = event.held, event.at_s


def _budget_set(state: RunState, event: BudgetSet) -> None:
    state.budget = event.budget
    if state.stop is not None and state.stop.by == "budget":
        state.stop = None  # of the former one


def _notice(state: RunState, event: Notice) -> None:
    text = shortened(event.text, _MAX_NOTICE)
    if text not in state.notices:  # trials say the same of the same cell
        state.notices.append(text)


def _run_finished(state: RunState, event: RunFinished) -> None:
    for number in state.waiting | state.running:
        state.ended_with_run.add(number)
        _move(state, state.trials[number], "cancelled")
    state.end = event
    state.state = event.state
    if event.spent is not msgspec.UNSET:
        state.spent, state.spent_at_s = event.spent, event.at_s


def _rest_if_idle(state: RunState, at_s: float) -> None:
    if not state.running:
        state.rest(at_s)


def _move(state: RunState, trial: TrialState, new: TrialStateName) -> None:
    old = trial.move(new, state.seq)
    numbers = state.numbers
    numbers[old] -= 1
    numbers[new] = numbers.get(new, 0) + 1
    if old == "running":
        state.running.discard(trial.number)
    elif old == "waiting":
        state.waiting.discard(trial.number)
    if new == "running":
        state.running.add(trial.number)
    elif new == "waiting":
        state.waiting.add(trial.number)


_OF_TRIALS: dict[type, Callable[[RunState, TrialState, Any], None]] = {
    AttemptStarted: _attempt_started,
    AttemptFinished: _attempt_finished,
}
_HANDLERS: dict[type, _Handler] = {
    RunSubmitted: _run_submitted,
    RunStarted: _run_started,
    TrialCreated: _trial_created,
    RankStarted: fold_group.rank_started,
    RankEnded: fold_group.rank_ended,
    StepsTimed: fold_group.steps_timed,
    PipelineTimed: fold_group.pipeline_timed,
    StalenessCounted: fold_group.staleness_counted,
    HangVerdict: fold_group.hang_verdict,
    Reported: _reported,
    CheckpointSaved: _checkpoint_saved,
    OutputShown: output_shown,
    ProfileTaken: _profile_taken,
    StopRequested: _stop_requested,
    Spent: _spent,
    BudgetSet: _budget_set,
    Notice: _notice,
    CellExecuted: cell_executed,
    FoldFinished: fold_finished,
    RunFinished: _run_finished,
}
