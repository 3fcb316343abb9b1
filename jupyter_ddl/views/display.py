"""The live view of a run while its cell waits: in a notebook, in a terminal, in a pipe.

A notebook shows one output that is redrawn in place and ends as static HTML and text, so that
the saved notebook needs neither this package nor a running kernel to be read.
"""

from __future__ import annotations

import shutil
import sys
import time
import uuid
from collections.abc import Callable
from typing import Protocol, TextIO

from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.views.columns import cell_width, fits_encoding
from jupyter_ddl.views.html import render_html
from jupyter_ddl.views.pump import Pump
from jupyter_ddl.views.text import render_line, render_text

__all__ = ["LiveDisplay", "NotebookScreen", "Screen", "TerminalScreen", "in_notebook"]

_PIPE_INTERVAL_S = 5.0


class Screen(Protocol):
    """Where a live view is drawn.  Called on one thread; ``close`` is the last call."""

    def draw(self, snapshot: RunSnapshot, now_s: float) -> None:
        """Show the run as it is now (``now_s`` in Unix seconds)."""

    def close(self, snapshot: RunSnapshot, now_s: float) -> None:
        """Leave what stays."""


class LiveDisplay:
    """Shows one run; has no thread, so whoever waits for snapshots hands them in.

    Parameters
    ----------
    screen : Screen, optional
        By default the notebook's output if this is a kernel, else standard output.
    rate_hz : float
        Redraws per second, at most 10.
    now : callable
        Unix seconds, for elapsed times and ages.
    clock : callable
        Monotonic seconds, for the rate.
    """

    def __init__(
        self,
        screen: Screen | None = None,
        *,
        rate_hz: float = 4.0,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._screen: Screen = screen or _default_screen()
        self._now = now
        self._last: RunSnapshot | None = None
        self._closed = False
        self._pump = Pump(self._draw, rate_hz=rate_hz, clock=clock)

    def offer(self, snapshot: RunSnapshot) -> bool:
        """Hand in a snapshot; True when it was drawn now.  Nothing happens after ``finish``."""
        if self._closed:
            return False
        if self._last is None or snapshot.seq >= self._last.seq:
            self._last = snapshot
        return self._pump.offer(snapshot)

    def tick(self) -> bool:
        """Draw a snapshot that had come too early, once its time has come."""
        return not self._closed and self._pump.tick()

    def finish(self, snapshot: RunSnapshot | None = None) -> None:
        """Replace the live view by its static form; the second call does nothing.

        Parameters
        ----------
        snapshot : RunSnapshot, optional
            The last one; by default the newest that was offered.  It may be of a run that
            goes on without this view.
        """
        last = self._last if snapshot is None else snapshot
        if self._closed or last is None:
            return
        self._closed = True
        self._screen.close(last, self._now())

    def _draw(self, snapshot: RunSnapshot) -> None:
        self._screen.draw(snapshot, self._now())


class NotebookScreen:
    """One output of the cell that runs now, updated by its display id.

    Parameters
    ----------
    display_id : str, optional
        Of an output that is there already; by default a new one is made.
    """

    def __init__(self, display_id: str | None = None) -> None:
        self._display_id = display_id or f"ddl-{uuid.uuid4().hex}"
        self._shown = display_id is not None

    def draw(self, snapshot: RunSnapshot, now_s: float) -> None:
        self._publish(snapshot, now_s, live=True)

    def close(self, snapshot: RunSnapshot, now_s: float) -> None:
        self._publish(snapshot, now_s, live=False)

    def _publish(self, snapshot: RunSnapshot, now_s: float, *, live: bool) -> None:
        from IPython.display import display, update_display

        bundle = {
            "text/html": render_html(snapshot, now_s=now_s, live=live),
            "text/plain": render_text(snapshot, now_s),
        }
        if self._shown:
            update_display(bundle, raw=True, display_id=self._display_id)
        else:
            display(bundle, raw=True, display_id=self._display_id)
        self._shown = True


class TerminalScreen:
    """One line that rewrites itself on a terminal; a line now and then in a pipe or a file.

    Parameters
    ----------
    stream : text stream, optional
        Standard output by default.
    clock : callable
        Monotonic seconds, for the lines in a pipe.
    """

    def __init__(
        self, stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._clock = clock
        self._rewrites = self._stream.isatty()
        self._ascii_only = not fits_encoding(self._stream.encoding)
        self._drawn_width = 0
        self._next_s: float | None = None

    def draw(self, snapshot: RunSnapshot, now_s: float) -> None:
        line = render_line(snapshot, now_s, self._width(), ascii_only=self._ascii_only)
        if self._rewrites:
            self._rewrite(line)
            return
        at_s = self._clock()
        if self._next_s is None or at_s >= self._next_s:
            self._next_s = at_s + _PIPE_INTERVAL_S
            self._write(line + "\n")

    def close(self, snapshot: RunSnapshot, now_s: float) -> None:
        if self._rewrites and self._drawn_width:
            self._rewrite("")
            self._write("\r")
        text = render_text(snapshot, now_s, self._width(), ascii_only=self._ascii_only)
        self._write(text + "\n")

    def _rewrite(self, line: str) -> None:
        # Spaces and not an erase sequence: they also work where escape sequences do not.
        width = cell_width(line)
        self._write("\r" + line + " " * (self._drawn_width - width))
        self._drawn_width = width

    def _width(self) -> int:
        # The last column stays free: some terminals wrap when it is written.
        return shutil.get_terminal_size((80, 24)).columns - 1

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def in_notebook() -> bool:
    """Whether this process is a Jupyter kernel, whose front ends show HTML."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


def _default_screen() -> Screen:
    return NotebookScreen() if in_notebook() else TerminalScreen()
