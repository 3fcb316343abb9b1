"""Whether a worker still says that it executes what it was sent.  Pure.

A worker that is gone is missed by the scheduler, and user code may be silent for as long as it
likes.  Between the two are workers that beat and have lost what they were sent, or answer nobody:
an assignment of which nothing is heard is asked for, and is over with its lease.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from jupyter_ddl.formats import format_duration

__all__ = ["AttemptLease", "LeaseState"]

_QUIET_SHARE = 0.5
"""Of the lease, after which a silent assignment is asked for."""
_AGAIN_SHARE = 0.125
"""Of the lease, after which it is asked for again."""

LeaseState: TypeAlias = Literal["held", "asked", "unconfirmed", "over"]


class AttemptLease:
    """Of one assignment.  All times are monotonic seconds.

    Attributes
    ----------
    state : str
        ``held``: something was heard of it lately.  ``asked``: a question is on its way.
        ``unconfirmed``: the worker has denied it, or has not answered.  ``over``: nobody waits any
        more.
    """

    def __init__(self, lease_s: float, now_s: float) -> None:
        self._lease_s = lease_s
        self._heard_s = now_s
        self._is_doubted = False
        self.state: LeaseState = "held"
        self.due_s: float | None = now_s + _QUIET_SHARE * lease_s
        """When time alone changes something."""

    def heard(self, now_s: float) -> None:
        """Something has come of the assignment."""
        if self.state != "over":
            self._heard_s = now_s
            self._is_doubted = False

    def poll(self, now_s: float) -> Literal["ask", "end"] | None:
        """What is to be done now: ask its worker, or end it, which is said once."""
        if self.due_s is None or now_s < self.due_s:
            return None
        if now_s >= self._heard_s + self._lease_s:
            self.state, self.due_s = "over", None
            return "end"
        ask_s = self._heard_s + _QUIET_SHARE * self._lease_s
        if now_s < ask_s:  # heard of since the last look
            self.due_s = ask_s
            if self.state != "asked":
                self.state = "held"
            return None
        self.due_s = self._heard_s + self._lease_s
        if self.state == "asked":
            return None
        self.state = "asked"
        return "ask"

    def answered(self, now_s: float, *, is_held: bool) -> None:
        """What its worker has said; no answer in time is none that it is held."""
        if self.state != "asked":
            return
        self.state = "held" if is_held else "unconfirmed"
        if is_held:
            self.heard(now_s)
            self.due_s = now_s + _QUIET_SHARE * self._lease_s
        else:
            self._is_doubted = True
            self.due_s = min(now_s + _AGAIN_SHARE * self._lease_s, self._heard_s + self._lease_s)

    @property
    def is_over(self) -> bool:
        return self.state == "over"

    @property
    def is_doubted(self) -> bool:
        """Whether its worker has denied it, or not answered, and nothing was heard since."""
        return self._is_doubted and not self.is_over

    def text(self, worker: str, trials: str) -> str:
        """What is wrong with ``trials`` of a worker, and what comes of it."""
        lease = format_duration(self._lease_s)
        if self.is_over:
            return (
                f"worker {worker} lives, and has not said for {lease} that it runs {trials}: "
                f"repeated elsewhere"
            )
        return (
            f"worker {worker} lives, and does not say that it runs {trials}: repeated elsewhere "
            f"when the lease of {lease} is over"
        )
