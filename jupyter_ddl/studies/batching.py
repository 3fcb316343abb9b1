"""How many short trials travel together, and when they share a process.

The size of a batch follows its duration, as in joblib's automatic batching: doubled while batches
are done sooner than sending them is worth, halved when they take so long that stopping and
balancing suffer.
"""

from __future__ import annotations

from collections import deque
from statistics import median

__all__ = ["BatchSizer", "reuse_process"]

_FAST_S = 0.2
_SLOW_S = 2.0
_LONG_TRIAL_S = 1.0
_MAX_SIZE = 256
_N_REMEMBERED = 15


def reuse_process(median_trial_s: float | None) -> bool:
    """Whether a trial may run in the process of the one before it.

    Short trials may: a fresh fork would cost more than they do.  None: not known yet.
    """
    return median_trial_s is None or median_trial_s < _LONG_TRIAL_S


class BatchSizer:
    """Adapts the batch size to how long batches take; starts with single trials."""

    def __init__(self) -> None:
        self._size = 1
        self._trial_s: deque[float] = deque(maxlen=_N_REMEMBERED)

    @property
    def median_trial_s(self) -> float | None:
        """Median duration of a trial over the last batches, in seconds."""
        return median(self._trial_s) if self._trial_s else None

    def next_size(self, n_waiting: int | None = None, n_slots: int = 1) -> int:
        """Trials to send in the next batch, in [1, 256].

        Parameters
        ----------
        n_waiting
            Trials that are ready; the batch is no larger than one slot's share of them.
        n_slots
            Slots among which they are shared (>= 1).
        """
        if n_waiting is None:
            return self._size
        return max(1, min(self._size, -(-n_waiting // n_slots)))

    def observe(self, n_trials: int, duration_s: float) -> None:
        """A batch of ``n_trials`` (>= 1) took ``duration_s`` seconds of execution."""
        self._trial_s.append(duration_s / n_trials)
        if duration_s / n_trials > _LONG_TRIAL_S:
            self._size = 1
        elif duration_s > _SLOW_S:
            # Slow for fewer trials than this, so sizes up to this number are too large.
            self._size = max(1, min(self._size, n_trials // 2))
        elif duration_s < _FAST_S and n_trials >= self._size:
            # Smaller batches were sent before the last step up: they prove nothing more.
            self._size = min(self._size * 2, _MAX_SIZE)
