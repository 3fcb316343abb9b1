"""How a run ended, as its last record.  Pure."""

from __future__ import annotations

from jupyter_ddl.events.messages import RunFinished
from jupyter_ddl.events.reducer import with_totals
from jupyter_ddl.events.run_state import RunState
from jupyter_ddl.spec.run import RunSpec, SearchSpec

__all__ = ["final_event"]


def final_event(
    spec: RunSpec, state: RunState, verdict: tuple[bool, str, bool], now_s: float
) -> RunFinished:
    """The run's last record.

    Parameters
    ----------
    verdict
        Whether the run was stopped, the reason, and whether it was hopeless.
    """
    stopped, reason, hopeless = verdict
    first = state.first_failure
    failure, trial = (None, None) if first is None else (first.failure, first.number)
    if stopped and not hopeless:
        return with_totals(state, RunFinished(at_s=now_s, state="cancelled", reason=reason))
    counts = state.counts
    if hopeless or _failed(spec, state):
        if not hopeless:
            reason = f"{counts.failed} of {spec.n_trials} trials failed"
        event = RunFinished(now_s, "failed", reason, failure=failure, failed_trial=trial)
        return with_totals(state, event)
    return with_totals(state, RunFinished(at_s=now_s, state="complete"))


def _failed(spec: RunSpec, state: RunState) -> bool:
    """A map needs every element, a group its ranks; a search needs one trial that has a value."""
    if not isinstance(spec.verb, SearchSpec):
        return state.counts.failed > 0
    return state.counts.complete == 0
