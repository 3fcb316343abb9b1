"""Whether, how and why a run is to stop before all its trials are through."""

from __future__ import annotations

import time

from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.assignment import StopWhen
from jupyter_ddl.protocol.run import Limits

__all__ = ["RunStop"]

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
        self._given_up_at_s: float | None = None
        self._timeout_at_s: float | None = None

    def begin(self, state: RunState) -> None:
        """Start the timeout: it counts from the run's first session, unless that had ended.

        Called before this session's own first record is folded.
        """
        if self._limits.timeout_s is None:
            return
        spent_s = 0.0
        if state.started_at_s is not None and state.end is None:
            spent_s = max(0.0, time.time() - state.started_at_s)
        self._timeout_at_s = time.monotonic() + max(0.0, self._limits.timeout_s - spent_s)

    def request(self, when: StopWhen, reason: str, *, finishes: bool = False) -> bool:
        """Ask for a stop; False when that changes nothing."""
        if self.when == "now" or self.when == when:
            return False
        self.when = when
        self.finishes = finishes
        self.reason = self.reason or reason
        if when == "now":
            grace_s = self._limits.stop_grace_s + _STOP_MARGIN_S
            self._given_up_at_s = time.monotonic() + grace_s
        return True

    @property
    def is_timed_out(self) -> bool:
        """Whether the run has taken longer than it may, and nobody has stopped it yet."""
        return (
            self.when is None
            and self._timeout_at_s is not None
            and time.monotonic() > self._timeout_at_s
        )

    @property
    def is_given_up(self) -> bool:
        """Whether what still runs had its time to stop."""
        return self._given_up_at_s is not None and time.monotonic() > self._given_up_at_s
