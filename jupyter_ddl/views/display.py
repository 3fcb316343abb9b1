"""The live view of a run while its cell waits: in a notebook, in a terminal, in a pipe.

A notebook shows one output that is redrawn in place.  It names the run, so that JupyterLab with the
panel goes on to show it from the run's record, whatever becomes of the kernel; what stands beside
the name are static HTML and text, so that the saved notebook needs neither to be read.
"""

from __future__ import annotations

import shutil
import sys
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import msgspec

from jupyter_ddl.protocol.snapshot import EncodedSnapshot, RunSnapshot
from jupyter_ddl.views.drawing import cell_width, fits_encoding
from jupyter_ddl.views.html import render_html
from jupyter_ddl.views.text import render_line, render_text

if TYPE_CHECKING:
    from jupyter_ddl.client.session import Session
    from jupyter_ddl.views.answers import RunRequests
    from jupyter_ddl.views.widget import WidgetLink

__all__ = [
    "RUN_MIME",
    "CellScreen",
    "LiveDisplay",
    "NotebookScreen",
    "Screen",
    "TerminalScreen",
    "cell_screen",
    "decoded",
    "default_screen",
    "in_notebook",
    "is_watched",
    "run_bundle",
]

RUN_MIME = "application/vnd.jupyter-ddl.run+json"
"""Which run an output shows; the panel asks its own server for the rest."""

_PIPE_INTERVAL_S = 5.0
_REFRESH_S = 1.0
_UNHEARD_S = 8.0
"""A front end that can show widgets, and reach the kernel past a cell, has spoken by then."""


class Screen(Protocol):
    """Where a live view is drawn.  Called on one thread; ``close`` is the last call."""

    def draw(self, snapshot: EncodedSnapshot, now_s: float) -> None:
        """Show the run as it is now (``now_s`` in Unix seconds)."""

    def close(self, snapshot: EncodedSnapshot, now_s: float) -> None:
        """Leave what stays."""


class LiveDisplay:
    """Shows one run; has no thread, so whoever waits for snapshots hands them in.

    What is handed in is drawn: how often a run is drawn is decided once, by its controller.

    Parameters
    ----------
    screen : Screen, optional
        By default the notebook's output if this is a kernel, else standard output.
    now : callable
        Unix seconds, for elapsed times and ages.
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self,
        screen: Screen | None = None,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._screen: Screen = screen or default_screen()
        self._now = now
        self._clock = clock
        self._last: EncodedSnapshot | None = None
        self._drawn_s = 0.0
        self._closed = False

    def offer(self, snapshot: EncodedSnapshot) -> None:
        """Draw a snapshot, unless it is older than the last one or comes after ``finish``."""
        if self._closed or (self._last is not None and snapshot.seq < self._last.seq):
            return
        self._last = snapshot
        self._draw(snapshot)

    def tick(self) -> None:
        """Draw the last snapshot again when a second has passed: elapsed times grow."""
        if self._closed or self._last is None or self._clock() < self._drawn_s + _REFRESH_S:
            return
        self._draw(self._last)

    def finish(self, snapshot: EncodedSnapshot | None = None) -> None:
        """Replace the live view by its static form; the second call does nothing.

        Parameters
        ----------
        snapshot : EncodedSnapshot, optional
            The last one; by default the newest that was offered.  It may be of a run that
            goes on without this view.
        """
        last = self._last if snapshot is None else snapshot
        if self._closed or last is None:
            return
        self._closed = True
        self._screen.close(last, self._now())

    def _draw(self, snapshot: EncodedSnapshot) -> None:
        self._drawn_s = self._clock()
        self._screen.draw(snapshot, self._now())


class NotebookScreen:
    """One output of the cell that runs now, updated by its display id.

    Parameters
    ----------
    display_id : str, optional
        Of an output that is there already; by default a new one is made.
    tracebacks : bool
        Whether to show that of a failure; below a cell stands the exception's own.
    """

    def __init__(self, display_id: str | None = None, *, tracebacks: bool = True) -> None:
        self._display_id = display_id or f"ddl-{uuid.uuid4().hex}"
        self._shown = display_id is not None
        self._tracebacks = tracebacks

    def draw(self, snapshot: EncodedSnapshot, now_s: float) -> None:
        self._publish(snapshot, now_s, live=True)

    def close(self, snapshot: EncodedSnapshot, now_s: float) -> None:
        self._publish(snapshot, now_s, live=False)

    def _publish(self, snapshot: EncodedSnapshot, now_s: float, *, live: bool) -> None:
        from IPython.display import display, update_display

        shown = decoded(snapshot, tracebacks=self._tracebacks)
        bundle = run_bundle(shown, now_s, live=live)
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
    tracebacks : bool
        Whether to show that of a failure.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        tracebacks: bool = True,
    ) -> None:
        self._tracebacks = tracebacks
        self._stream = sys.stdout if stream is None else stream
        self._clock = clock
        self._rewrites = self._stream.isatty()
        self._ascii_only = not fits_encoding(self._stream.encoding)
        self._drawn_width = 0
        self._next_s: float | None = None

    def draw(self, snapshot: EncodedSnapshot, now_s: float) -> None:
        line = render_line(snapshot.decode(), now_s, self._width(), ascii_only=self._ascii_only)
        if self._rewrites:
            self._rewrite(line)
            return
        at_s = self._clock()
        if self._next_s is None or at_s >= self._next_s:
            self._next_s = at_s + _PIPE_INTERVAL_S
            self._write(line + "\n")

    def close(self, snapshot: EncodedSnapshot, now_s: float) -> None:
        if self._rewrites and self._drawn_width:
            self._rewrite("")
            self._write("\r")
        shown = decoded(snapshot, tracebacks=self._tracebacks)
        text = render_text(shown, now_s, self._width(), ascii_only=self._ascii_only)
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


def run_bundle(snapshot: RunSnapshot, now_s: float, *, live: bool) -> dict[str, Any]:
    """A run as an output: its name, and what stands for it where nobody can follow it.

    Parameters
    ----------
    live : bool
        Whether newer ones will take its place.
    """
    return {
        RUN_MIME: {"run_id": snapshot.run_id},
        "text/html": render_html(snapshot, now_s=now_s, live=live),
        "text/plain": render_text(snapshot, now_s),
    }


def in_notebook() -> bool:
    """Whether this process is a Jupyter kernel, whose front ends show HTML."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


def default_screen(*, tracebacks: bool = True) -> Screen:
    """The notebook's output if this is a kernel, else standard output."""
    if in_notebook():
        return NotebookScreen(tracebacks=tracebacks)
    return TerminalScreen(tracebacks=tracebacks)


def decoded(snapshot: EncodedSnapshot, *, tracebacks: bool) -> RunSnapshot:
    """A snapshot to be drawn here, with or without the traceback of its failure."""
    shown = snapshot.decode()
    if tracebacks or shown.failure is None:
        return shown
    replace = msgspec.structs.replace
    return replace(shown, failure=replace(shown.failure, traceback=""))


def is_watched() -> bool:
    """Whether a person may be at the front end: whoever executes notebooks can't be asked."""
    if not in_notebook():
        return False
    from IPython import get_ipython

    shell: Any = get_ipython()
    parent = shell.kernel.get_parent() or {}
    return bool(parent.get("content", {}).get("allow_stdin", False))


def cell_screen(session: Session, cluster: str, run_id: str) -> Screen | None:
    """Where the run of a cell is shown; None where a widget makes no sense."""
    return CellScreen(session, cluster, run_id) if is_watched() else None


class CellScreen:
    """One output, made by the first drawing, which must be on the cell's own thread.

    Where no view of the widget speaks up, because the front end has none or because its messages
    wait behind the cell, the output is redrawn as HTML instead.

    Parameters
    ----------
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self,
        session: Session,
        cluster: str,
        run_id: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._cluster = cluster
        self._run_id = run_id
        self._clock = clock
        self._display_id = f"ddl-{uuid.uuid4().hex}"
        self._plain: NotebookScreen | None = None
        self._link: WidgetLink | None = None
        self._requests: RunRequests | None = None
        self._shown_s = 0.0

    def draw(self, snapshot: EncodedSnapshot, now_s: float) -> None:
        if self._link is None:
            self._begin(snapshot, now_s)
        elif self._plain is not None:
            self._plain.draw(snapshot, now_s)
        elif not self._link.is_heard and self._clock() - self._shown_s > _UNHEARD_S:
            self._end()
            self._plain = NotebookScreen(self._display_id, tracebacks=False)
            self._plain.draw(snapshot, now_s)
        else:
            self._link.show(snapshot)

    def close(self, snapshot: EncodedSnapshot, now_s: float) -> None:
        if self._link is not None and self._plain is None:
            if snapshot.is_final:
                # The views are told as well: the static form may get lost on its way.
                self._link.show(snapshot)
                if self._requests is not None:
                    self._requests.run_ended()
            if not (snapshot.is_final and self._link.is_heard):
                self._end()
        shown = None if self._link is None else self._display_id
        screen = self._plain or NotebookScreen(shown, tracebacks=False)
        screen.close(snapshot, now_s)

    def _begin(self, snapshot: EncodedSnapshot, now_s: float) -> None:
        from IPython.display import display

        from jupyter_ddl.views.answers import RunRequests
        from jupyter_ddl.views.widget import WIDGET_MIME, WidgetLink, widget_view

        link = self._link = WidgetLink(self._run_id, self._put, on_closed=self._close_requests)
        self._requests = RunRequests(
            self._session, self._cluster, self._run_id, link.answer, link.show_telemetry
        )
        link.show(snapshot)
        shown = decoded(snapshot, tracebacks=False)
        bundle = {WIDGET_MIME: widget_view(link.widget), **run_bundle(shown, now_s, live=True)}
        display(bundle, raw=True, display_id=self._display_id)
        self._shown_s = self._clock()

    def _put(self, body: Any) -> bool:
        return self._requests is not None and self._requests.put(body)

    def _close_requests(self) -> None:
        if self._requests is not None:
            self._requests.close()

    def _end(self) -> None:
        if self._link is not None:
            self._link.close()
