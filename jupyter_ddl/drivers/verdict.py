"""How a run ended, as its last record.  Pure."""

from __future__ import annotations

from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import with_totals
from jupyter_ddl.protocol.events import RunFinished
from jupyter_ddl.protocol.run import RunSpec

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
    if hopeless or _failed(spec, state):
        if not hopeless:
            reason = _why(spec, state)
        event = RunFinished(now_s, "failed", reason, failure=failure, failed_trial=trial)
        return with_totals(state, event)
    # With a reason, when it was told to finish early.
    return with_totals(state, RunFinished(at_s=now_s, state="complete", reason=reason))


def _why(spec: RunSpec, state: RunState) -> str:
    if not spec.verb.can.has_ranks:
        return f"{state.counts.failed} of {spec.n_trials} trials failed"
    group = state.trials.get(0)
    n_rounds = 0 if group is None else group.n_attempts
    if state.group.failed_again and state.group.failed is not None:
        line = state.group.failed.cause[2]
        where = "" if line is None else f" at line {line}"
        return f"failed twice the same way{where}, so it was not tried a third time"
    return f"given up after {n_rounds} {'round' if n_rounds == 1 else 'rounds'}"


def _failed(spec: RunSpec, state: RunState) -> bool:
    """A map needs every element, a group its ranks; a search needs one trial that has a value."""
    if spec.verb.needs_all:
        return state.counts.failed > 0
    return state.counts.complete == 0
