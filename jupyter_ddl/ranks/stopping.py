"""How a rank learns that an attempt must end: a flag that ``report`` looks at, and an exception.

Control messages are read by a daemon thread, which only sets the flag; ``report`` raises
:class:`TrialStopped` in the main thread.  SIGTERM, the first rung of the stop ladder, raises
the same exception at the next Python boundary, so ``finally`` blocks of the cell run either way.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

__all__ = ["StopFlag", "StopReason", "TrialStopped", "stop_flag"]

StopReason: TypeAlias = Literal["pruned", "cancelled", "moved", "complete"]


class TrialStopped(BaseException):
    """The attempt in progress ends here.  Like ``KeyboardInterrupt``, no ``Exception``.

    Parameters
    ----------
    reason : str
        Becomes the attempt's outcome.
    """

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason: StopReason = reason


class StopFlag:
    """Attempts of this rank that were asked to end.

    Written by the control thread, read by the main thread; every method is one dictionary
    operation, so none needs a lock.
    """

    __slots__ = ("_at_checkpoint", "_for_all", "_reasons")

    def __init__(self) -> None:
        self._reasons: dict[tuple[int, int], StopReason] = {}
        self._at_checkpoint: dict[tuple[int, int], StopReason] = {}
        self._for_all: StopReason | None = None

    def request(self, trial: int, attempt: int, reason: StopReason) -> None:
        """Ask an attempt to end at its next report; the first reason given stays."""
        self._reasons.setdefault((trial, attempt), reason)

    def request_at_checkpoint(self, trial: int, attempt: int, reason: StopReason) -> None:
        """Ask an attempt to end behind its next checkpoint."""
        self._at_checkpoint.setdefault((trial, attempt), reason)

    def pending_at_checkpoint(self, trial: int, attempt: int) -> StopReason | None:
        """Return why this attempt must end now that it has saved a checkpoint, or None."""
        return self._at_checkpoint.get((trial, attempt)) or self.pending(trial, attempt)

    def pending(self, trial: int, attempt: int) -> StopReason | None:
        """Return why this attempt must end, or None to go on."""
        return self._reasons.get((trial, attempt), self._for_all)

    def request_all(self, reason: StopReason) -> None:
        """Ask every attempt of this rank to end, those to come included."""
        self._for_all = reason

    def clear(self) -> None:
        """Forget all requests (between assignments)."""
        self._reasons.clear()
        self._at_checkpoint.clear()
        self._for_all = None


stop_flag = StopFlag()
"""The flag of this rank process."""
