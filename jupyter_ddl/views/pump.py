"""The pump: how often a view is redrawn, whatever the run does.

Jupyter's server drops messages silently above its rate limits, widgets' included, so a
view draws a few complete snapshots per second and skips those in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.views.summary import is_final

__all__ = ["MAX_RATE_HZ", "Pump"]

MAX_RATE_HZ = 10.0
_DEFAULT_RATE_HZ = 4.0


class Pump:
    """Gives the newest snapshot to ``render``, at most ``rate_hz`` times per second.

    Has no thread: the one who waits for snapshots calls it, always on the same thread.  A
    snapshot that comes too early is kept, replaces the one kept before, and is drawn by a
    later :meth:`offer`, :meth:`tick` or :meth:`flush`.  The snapshot of a run that has ended is
    drawn at once, exempt from the rate, and ends the drawing: what comes after it is ignored.

    Parameters
    ----------
    render : callable
        Draws one snapshot.  What it raises goes to the caller, and the snapshot stays kept.
    rate_hz : float
        Above 0, at most 10.
    clock : callable
        Seconds; never runs backwards.

    Raises
    ------
    ValueError
        ``rate_hz`` is out of range.
    """

    def __init__(
        self,
        render: Callable[[RunSnapshot], object],
        *,
        rate_hz: float = _DEFAULT_RATE_HZ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 < rate_hz <= MAX_RATE_HZ:
            raise ValueError(f"rate_hz is {rate_hz}; give more than 0 and at most {MAX_RATE_HZ:g}")
        self._render = render
        self._interval_s = 1.0 / rate_hz
        self._clock = clock
        self._kept: RunSnapshot | None = None
        self._newest_seq = -1
        self._next_s: float | None = None
        self._ended = False

    def offer(self, snapshot: RunSnapshot, now_s: float | None = None) -> bool:
        """Hand in a snapshot; True when it was drawn now.

        An older one than the newest seen is ignored; one with the same ``seq`` counts as news,
        because elapsed times grow without events.
        """
        if self._ended or snapshot.seq < self._newest_seq:
            return False
        self._newest_seq = snapshot.seq
        self._kept = snapshot
        if is_final(snapshot):
            return self.flush(now_s)
        return self.tick(now_s)

    def tick(self, now_s: float | None = None) -> bool:
        """Draw the kept snapshot if its time has come; True when something was drawn."""
        now_s = self._clock() if now_s is None else now_s
        if self._kept is None or (self._next_s is not None and now_s < self._next_s):
            return False
        return self.flush(now_s)

    def flush(self, now_s: float | None = None) -> bool:
        """Draw the kept snapshot at once, if there is one; True when something was drawn."""
        snapshot = self._kept
        if snapshot is None:
            return False
        self._render(snapshot)
        self._kept = None
        self._ended = is_final(snapshot)
        self._next_s = (self._clock() if now_s is None else now_s) + self._interval_s
        return True
