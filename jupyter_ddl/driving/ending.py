"""When a run is to end before its time, and what its last record says.  Pure."""

from __future__ import annotations

from jupyter_ddl.driving.machine import Now, earliest
from jupyter_ddl.formats import format_counted
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import with_totals
from jupyter_ddl.protocol.assignment import StopWhen
from jupyter_ddl.protocol.events import RunFinished
from jupyter_ddl.protocol.run import Limits, RunSpec

__all__ = ["RunStop", "final_event"]

_STOP_MARGIN_S = 35.0
"""Beyond the stop ladder's own grace: then a worker that does not answer is given up."""


class RunStop:
    """The stop of one run; ``now`` follows on ``next_report``, never the other way."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.when: StopWhen | None = None
        self.reason = ""
        self.finishes = False
        """Whether the run is to count as complete with what it has."""
        self._give_up_at_s: float | None = None
        self._timeout_at_s: float | None = None

    def begin(self, state: RunState, now: Now) -> None:
        """Start the timeout: it counts from the run's first session, unless that had ended.

        Called before this session's own first record is folded.
        """
        if self._limits.timeout_s is None:
            return
        spent_s = 0.0
        if state.started_at_s is not None and state.end is None:
            spent_s = max(0.0, now.wall_s - state.started_at_s)
        self._timeout_at_s = now.mono_s + max(0.0, self._limits.timeout_s - spent_s)

    def request(self, when: StopWhen, reason: str, now: Now, *, finishes: bool = False) -> bool:
        """Ask for a stop; False when that changes nothing."""
        if self.when == "now" or self.when == when:
            return False
        self.when = when
        self.finishes = finishes
        self.reason = self.reason or reason
        if when == "now":
            self._give_up_at_s = now.mono_s + self._limits.stop_grace_s + _STOP_MARGIN_S
        return True

    def is_timed_out(self, now: Now) -> bool:
        """Whether the run has taken longer than it may, and nobody has stopped it yet."""
        at_s = self._timeout_at_s
        return self.when is None and at_s is not None and now.mono_s >= at_s

    def is_given_up(self, now: Now) -> bool:
        """Whether what still runs had its time to stop."""
        return self._give_up_at_s is not None and now.mono_s >= self._give_up_at_s

    def deadline_s(self, now: Now) -> float | None:
        """When there is something new to see here."""
        timeout_at_s = self._timeout_at_s if self.when is None else None
        given_up = self.is_given_up(now)
        return earliest(timeout_at_s, None if given_up else self._give_up_at_s)


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
    return f"given up after {format_counted(n_rounds, 'round')}"


def _failed(spec: RunSpec, state: RunState) -> bool:
    """A map needs every element, a group its ranks; a search needs one trial that has a value."""
    if spec.verb.needs_all:
        return state.counts.failed > 0
    return state.counts.complete == 0
