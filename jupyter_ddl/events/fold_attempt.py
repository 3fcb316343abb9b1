"""What becomes of a trial whose attempt has ended."""

from __future__ import annotations

from jupyter_ddl.events import fold_group
from jupyter_ddl.events.fold_failures import kept_failure, lost_too_often
from jupyter_ddl.events.messages import AttemptFinished
from jupyter_ddl.events.run_state import RunState, TrialState
from jupyter_ddl.events.snapshot import TrialStateName

__all__ = ["after_attempt"]


def after_attempt(state: RunState, trial: TrialState, event: AttemptFinished) -> TrialStateName:
    """What becomes of a trial whose attempt has ended; charges the right budget."""
    if event.failure is not None:
        trial.failure = kept_failure(state, event.failure)
    limits = state.spec.limits if state.spec is not None else None
    if event.outcome == "failed":
        if event.failure is None or event.failure.kind != "disk":
            trial.own_failures += 1
        over = limits is not None and trial.own_failures >= limits.max_own_failures
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
        failure = lost_too_often(event, trial.evictions, limits.max_evictions, n_unmet)
        if failure is None:
            return "waiting"
        trial.failure = failure
        return "failed"
    return event.outcome
