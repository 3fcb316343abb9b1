"""The one place where the states of trials and runs follow from events.

Deterministic, no clock, no I/O: folding a ledger again gives the same state.  Every other part of
the package asks here what has become of a trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from sys import intern
from typing import Any, TypeAlias

from jupyter_ddl.errors import LedgerError
from jupyter_ddl.events import fold_group
from jupyter_ddl.events.fold_attempt import after_attempt
from jupyter_ddl.events.fold_best import trial_ended, trial_valued
from jupyter_ddl.events.fold_cells import cell_executed
from jupyter_ddl.events.fold_failures import shortened
from jupyter_ddl.events.fold_learning import trial_reported
from jupyter_ddl.events.fold_logs import fold_finished
from jupyter_ddl.events.messages import (
    AttemptFinished,
    AttemptStarted,
    CellExecuted,
    CheckpointSaved,
    Event,
    FoldFinished,
    HangVerdict,
    Notice,
    RankEnded,
    RankStarted,
    Reported,
    RunFinished,
    RunStarted,
    RunSubmitted,
    StopRequested,
    TrialCreated,
)
from jupyter_ddl.events.run_state import RunState, TrialState
from jupyter_ddl.events.snapshot import TrialStateName
from jupyter_ddl.spec.run import FitSpec, SearchSpec

__all__ = ["RunState", "TrialState", "fold", "fold_all", "is_late"]

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
    if state.spec is None and type(event) is not RunSubmitted:
        raise LedgerError(
            f"folding a run failed: its first event is {type(event).__name__}, expected "
            f"RunSubmitted; the ledger has lost its beginning"
        )
    state.seq += 1
    _HANDLERS[type(event)](state, event)


def fold_all(events: Iterable[Event]) -> RunState:
    """The state after all ``events``."""
    state = RunState()
    for event in events:
        fold(state, event)
    return state


def is_late(state: RunState, event: Event) -> bool:
    """Whether ``event`` belongs to something that is over, so that folding it changes nothing.

    The first terminal record of a trial wins, and only its current attempt counts.
    """
    if isinstance(event, (AttemptStarted, AttemptFinished, Reported, CheckpointSaved)):
        trial = state.trials.get(event.trial)
        if trial is None or state.end is not None:
            return True
        if trial.state == "running" and event.attempt == trial.attempt:
            return type(event) is AttemptStarted
        is_open = trial.state == "running" or trial.state == "waiting"
        begins_or_ends = isinstance(event, (AttemptStarted, AttemptFinished))
        return not (is_open and begins_or_ends and event.attempt > trial.attempt)
    if isinstance(event, TrialCreated):
        return state.end is not None or event.trial in state.trials
    if isinstance(event, RunFinished):
        return state.end is not None
    return isinstance(event, RunSubmitted) and state.spec is not None


def _run_submitted(state: RunState, event: RunSubmitted) -> None:
    if state.spec is not None:
        state.n_late += 1
        return
    state.spec = event.spec


def _run_started(state: RunState, event: RunStarted) -> None:
    """The run begins, or goes on: what was under way is waiting again, without charge."""
    for number in state.running | state.ended_with_run:
        _move(state, state.trials[number], "waiting")
    state.ended_with_run.clear()
    if state.end is not None:
        # Somebody resumes a run that was over: an earlier request to stop was obeyed.
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


def _trial_created(state: RunState, event: TrialCreated) -> None:
    if state.end is not None or event.trial in state.trials:
        state.n_late += 1
        return
    names = _shared(state, event.params)
    state.trials[event.trial] = TrialState(event.trial, names, tuple(event.params.values()))
    state.waiting.add(event.trial)
    state.numbers["waiting"] = state.numbers.get("waiting", 0) + 1
    if event.is_refit:
        state.refits.append(event.trial)


def _attempt_started(state: RunState, event: AttemptStarted) -> None:
    if is_late(state, event):
        state.n_late += 1
        return
    trial = state.trials[event.trial]
    trial.attempt = event.attempt
    trial.n_attempts += 1
    trial.worker = intern(event.worker)
    trial.log = intern(event.log)
    trial.log_start = event.log_start
    trial.log_end = None
    trial.started_at_s = event.at_s
    trial.duration_s = None
    trial.step = trial.objective = None
    trial.metric_names = trial.metric_values = ()
    state.n_attempts += 1
    fold_group.round_started(state)
    _move(state, trial, "running")


def _reported(state: RunState, event: Reported) -> None:
    trial = state.trials.get(event.trial)
    # The commonest event: is_late() written out.
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
    trial.step = event.step
    trial.metric_names = _shared(state, event.metrics)
    trial.metric_values = tuple(event.metrics.values())
    verb = state.spec.verb if state.spec is not None else None
    if isinstance(verb, SearchSpec | FitSpec) and verb.metric in event.metrics:
        trial.objective = event.metrics[verb.metric]
        trial_reported(state, event)


def _checkpoint_saved(state: RunState, event: CheckpointSaved) -> None:
    if is_late(state, event):
        state.n_late += 1
        return
    state.trials[event.trial].checkpoint = event
    fold_group.checkpoint_saved(state, event)


def _attempt_finished(state: RunState, event: AttemptFinished) -> None:
    if is_late(state, event):
        state.n_late += 1
        return
    trial = state.trials[event.trial]
    trial.attempt = event.attempt
    trial.duration_s = event.duration_s
    trial.log_end = event.log_end
    fold_group.round_ended(state, event)
    new = after_attempt(state, trial, event)
    if new == "waiting":
        _move(state, trial, "waiting")
        return
    if new == "cancelled" and state.stop is not None and event.trial not in state.trial_stops:
        state.ended_with_run.add(event.trial)  # nobody meant this trial: it ends with its run
    _end_trial(state, trial, new, event)


def _end_trial(
    state: RunState, trial: TrialState, new: TrialStateName, event: AttemptFinished
) -> None:
    _move(state, trial, new)
    if new != "cancelled":
        trial.checkpoint = None  # a trial that was stopped may go on from it
    trial.values_file = event.values_file
    trial.value = event.value
    state.trial_stops.pop(trial.number, None)
    state.marks.append(event.at_s)
    if new == "failed":
        if len(state.failed) < _N_FAILED:
            state.failed.append(trial.number)
    else:
        if new != "cancelled":
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


def _notice(state: RunState, event: Notice) -> None:
    state.notices.append(shortened(event.text, _MAX_NOTICE))


def _run_finished(state: RunState, event: RunFinished) -> None:
    if state.end is not None:
        state.n_late += 1
        return
    for number in state.waiting | state.running:
        state.ended_with_run.add(number)
        _move(state, state.trials[number], "cancelled")
    state.end = event
    state.state = event.state


def _move(state: RunState, trial: TrialState, new: TrialStateName) -> None:
    old = trial.state
    trial.state = new
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


def _shared(state: RunState, named: dict[str, Any]) -> tuple[str, ...]:
    """The keys of ``named`` as a tuple that all trials with these keys share."""
    names = tuple(named)
    found = state.shared_names.get(names)
    if found is None:
        found = state.shared_names[names] = names
    return found


_HANDLERS: dict[type, _Handler] = {
    RunSubmitted: _run_submitted,
    RunStarted: _run_started,
    TrialCreated: _trial_created,
    AttemptStarted: _attempt_started,
    RankStarted: fold_group.rank_started,
    RankEnded: fold_group.rank_ended,
    HangVerdict: fold_group.hang_verdict,
    Reported: _reported,
    CheckpointSaved: _checkpoint_saved,
    AttemptFinished: _attempt_finished,
    StopRequested: _stop_requested,
    Notice: _notice,
    CellExecuted: cell_executed,
    FoldFinished: fold_finished,
    RunFinished: _run_finished,
}
