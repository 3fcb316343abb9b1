"""Waits for a run with its live view in the cell, and tells how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from jupyter_ddl.events.snapshot import RunSnapshot
from jupyter_ddl.magics.saying import say
from jupyter_ddl.views.display import LiveDisplay

if TYPE_CHECKING:
    from jupyter_ddl.client.run import Run
    from jupyter_ddl.client.waiting import OnInterrupt

__all__ = ["watch"]

_REFRESH_S = 1.0
"""Elapsed times grow while nothing happens."""


class _Live:
    """Feeds a display from the callbacks of a wait."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._display = LiveDisplay()
        self._clock = clock
        self._last: RunSnapshot | None = None
        self._drawn_s = 0.0

    def snapshot(self, snapshot: RunSnapshot) -> None:
        snapshot = self._last = _without_traceback(snapshot)
        self._mark(self._display.offer(snapshot))

    def tick(self) -> None:
        if self._last is not None and self._clock() - self._drawn_s > _REFRESH_S:
            self._mark(self._display.offer(self._last))
        else:
            self._mark(self._display.tick())

    def finish(self, snapshot: RunSnapshot | None = None) -> None:
        self._display.finish(None if snapshot is None else _without_traceback(snapshot))

    def _mark(self, drawn: bool) -> None:
        if drawn:
            self._drawn_s = self._clock()


def _without_traceback(snapshot: RunSnapshot) -> RunSnapshot:
    """The exception below the view shows it; nobody wants to read it twice."""
    failure = snapshot.failure
    if failure is None:
        return snapshot
    replace = msgspec.structs.replace
    return replace(snapshot, failure=replace(failure, traceback=""))


def watch(run: Run, on_interrupt: OnInterrupt = "stop") -> RunSnapshot:
    """Show a run until its end; returns its last snapshot, whatever its state.

    Raises
    ------
    KeyboardInterrupt
        The watching was left; one line says that the run goes on.
    """
    from jupyter_ddl.client.session import session
    from jupyter_ddl.client.waiting import wait_for_run

    live = _Live()
    try:
        last = wait_for_run(
            session(),
            run.id,
            None,
            live.snapshot,
            on_tick=live.tick,
            on_interrupt=on_interrupt,
        )
    except BaseException as error:
        live.finish()
        if isinstance(error, KeyboardInterrupt):
            say(f"Run {run.id} goes on without this cell: `%runs attach {run.id}`.")
        raise
    live.finish(last)
    return last
