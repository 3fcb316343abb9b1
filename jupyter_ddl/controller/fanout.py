"""The snapshots of one run, for all who watch it: drawn and encoded once per change.

The only throttle on a snapshot's way to a screen stands here, because only here the drawing can be
saved as well: whoever comes behind passes bytes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from jupyter_ddl.protocol.framing import encode_frame
from jupyter_ddl.protocol.replies import SnapshotPush
from jupyter_ddl.protocol.snapshot import EncodedSnapshot

__all__ = ["INTERVAL_S", "Fanout", "Timers", "Watcher"]

INTERVAL_S = 0.25
"""Between two pushes of a run that goes on.  Jupyter's server drops what comes much faster."""


class Watcher(Protocol):
    """Whoever is pushed snapshots; it may be slow."""

    def push(self, run_id: str, frame: bytes) -> None:
        """Take the newest snapshot of a run, framed; an older one that was not sent is void."""
        ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """What is needed of an asyncio loop."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...


class Fanout:
    """Used on the controller's loop only.  Without watchers it draws nothing and has no timer.

    Parameters
    ----------
    mark : callable
        What a snapshot of this moment would differ by: cheap to ask, and equal while nothing has
        changed.
    draw : callable
        The snapshot of this moment.
    """

    def __init__(
        self, mark: Callable[[], object], draw: Callable[[], EncodedSnapshot], timers: Timers
    ) -> None:
        self._mark = mark
        self._draw = draw
        self._timers = timers
        self._watchers: dict[Watcher, None] = {}
        self._timer: Timer | None = None
        self._drawn: EncodedSnapshot | None = None
        self._drawn_mark: object = None
        self._next_s = float("-inf")

    def join(self, watcher: Watcher) -> EncodedSnapshot:
        """What there is to see now; what comes later is pushed until the watcher leaves."""
        if self._timer is None:  # else all get the news together, a moment later
            self._push_news()
        self._watchers[watcher] = None
        return self._drawn or self._push_news()

    def leave(self, watcher: Watcher) -> None:
        """Push nothing more to this one, whether it has joined or not."""
        self._watchers.pop(watcher, None)
        if not self._watchers:
            self._cancel()

    def changed(self, *, is_last: bool = False) -> None:
        """Something may have changed.  Draws nothing yet: who tells this has other work to do.

        Parameters
        ----------
        is_last : bool
            Whether nothing will change any more; then nobody is made to wait for it.
        """
        if not self._watchers or (self._timer is not None and not is_last):
            return
        if self._mark() == self._drawn_mark:
            return
        self._cancel()
        wait_s = 0.0 if is_last else max(0.0, self._next_s - self._timers.time())
        self._timer = self._timers.call_later(wait_s, self._push_news)

    def close(self) -> EncodedSnapshot:
        """The last snapshot, which all watchers have been pushed when this returns."""
        last = self._push_news()
        self._watchers.clear()
        return last

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _push_news(self) -> EncodedSnapshot:
        self._cancel()
        mark = self._mark()
        if self._drawn is not None and mark == self._drawn_mark:
            return self._drawn
        drawn = self._drawn = self._draw()
        self._drawn_mark = mark
        self._next_s = self._timers.time() + INTERVAL_S
        if self._watchers:
            frame = encode_frame(msgspec.msgpack.encode(SnapshotPush(drawn)))
            for watcher in tuple(self._watchers):
                watcher.push(drawn.run_id, frame)
        return drawn
