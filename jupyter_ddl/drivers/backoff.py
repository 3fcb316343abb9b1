"""How long a trial that lost its worker waits until it is tried again.  Pure."""

from __future__ import annotations

from jupyter_ddl.ledger.run_state import TrialState
from jupyter_ddl.protocol.events import AttemptFinished

__all__ = ["Backoff"]

_FIRST_S = 0.1
_LONGEST_S = 10.0


class Backoff:
    """Doubles the wait from loss to loss; progress sets it back.

    A worker that goes while it is still known to the scheduler, or a host that can't start a rank,
    would else use up the budget of losses within a second.
    """

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, float]] = {}  # trial -> how far it had come, last wait

    def delay_s(self, trial: TrialState, event: AttemptFinished) -> float:
        """Seconds until the trial may be sent again, after an attempt that did not end it."""
        if event.outcome != "evicted":
            self._last.pop(trial.number, None)
            return 0.0
        far = _progress(trial)
        before, waited_s = self._last.get(trial.number, (-1, 0.0))
        # An attempt that ran for longer than any wait is no part of a series of early losses.
        is_new = far > before or event.duration_s > _LONGEST_S or not waited_s
        delay_s = _FIRST_S if is_new else min(2 * waited_s, _LONGEST_S)
        self._last[trial.number] = (max(far, before), delay_s)
        return delay_s

    def forget(self, number: int) -> None:
        """A trial is over."""
        self._last.pop(number, None)


def _progress(trial: TrialState) -> int:
    saved = -1 if trial.checkpoint is None else trial.checkpoint.step
    return max(saved, -1 if trial.step is None else trial.step)
