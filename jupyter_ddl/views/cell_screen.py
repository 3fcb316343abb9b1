"""The output of the cell that runs now: a widget while the run goes on, static HTML afterwards."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.views.display import NotebookScreen, Screen, in_notebook
from jupyter_ddl.views.summary import is_final

if TYPE_CHECKING:
    from jupyter_ddl.client.session import Session
    from jupyter_ddl.views.answers import RunRequests
    from jupyter_ddl.views.widget import WidgetLink

__all__ = ["CellScreen", "cell_screen", "is_watched"]

_UNHEARD_S = 8.0
"""A front end that can show widgets, and reach the kernel past a cell, has spoken by then."""


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

    def draw(self, snapshot: RunSnapshot, now_s: float) -> None:
        if self._link is None:
            self._begin(snapshot, now_s)
        elif self._plain is not None:
            self._plain.draw(snapshot, now_s)
        elif not self._link.is_heard and self._clock() - self._shown_s > _UNHEARD_S:
            self._end()
            self._plain = NotebookScreen(self._display_id)
            self._plain.draw(snapshot, now_s)
        else:
            self._link.show(snapshot)

    def close(self, snapshot: RunSnapshot, now_s: float) -> None:
        if self._link is not None and self._plain is None:
            if is_final(snapshot):
                # The views are told as well: the static form may get lost on its way.
                self._link.show(snapshot)
                if self._requests is not None:
                    self._requests.run_ended()
            if not (is_final(snapshot) and self._link.is_heard):
                self._end()
        shown = self._link is not None
        screen = self._plain or NotebookScreen(self._display_id if shown else None)
        screen.close(snapshot, now_s)

    def _begin(self, snapshot: RunSnapshot, now_s: float) -> None:
        from IPython.display import display

        from jupyter_ddl.views.answers import RunRequests
        from jupyter_ddl.views.widget import WidgetLink, widget_bundle

        link = self._link = WidgetLink(self._run_id, self._put, on_closed=self._close_requests)
        self._requests = RunRequests(
            self._session, self._cluster, self._run_id, link.answer, link.show_telemetry
        )
        link.show(snapshot)
        bundle = widget_bundle(link.widget, snapshot, now_s)
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
