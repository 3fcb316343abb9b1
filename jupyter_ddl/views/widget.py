"""The live view of a run as a widget in the cell that started it.

The snapshots travel as custom messages and never as the widget's state, so what a front end keeps
of it is small, and a page that is loaded again asks for the current one.  Front ends that cannot
show widgets find the last snapshot as HTML and text in the same output.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.protocol.telemetry import EncodedTelemetry
from jupyter_ddl.protocol.view_messages import FromBrowser
from jupyter_ddl.views.bundle import live_css, live_esm
from jupyter_ddl.views.channel import Answer, Channel, Shown

__all__ = ["WIDGET_MIME", "RunWidget", "WidgetLink", "is_live_comm", "widget_view"]

log = logging.getLogger(__name__)

_REPLACED_S = 1.5
_STAYS_S = 4.0
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"


_open_comms: set[str] = set()


def is_live_comm(comm_id: str) -> bool:
    """Whether a comm of this kernel is a live view's."""
    return comm_id in _open_comms


class RunWidget(anywidget.AnyWidget):
    """Only carries messages; what it shows is in the front end.

    Parameters
    ----------
    run_id : str
        The run whose messages its views draw.
    """

    _esm = live_esm()
    _css = live_css()
    run_id = traitlets.Unicode().tag(sync=True)

    def __init__(self, run_id: str, **names: Any) -> None:
        super().__init__(run_id=run_id, **names)
        _open_comms.add(self.model_id)
        comm = self.comm
        # ipykernel 7.4 sends a view's messages to the thread that spoke on this comm last, which
        # is the one that the cell blocks; where the front end wants them is right.
        if hasattr(comm, "_reply_subshell_for"):
            comm._reply_subshell_for = lambda _data, default: default


def widget_view(widget: anywidget.AnyWidget) -> dict[str, Any]:
    """What an output says to show a widget."""
    return {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}


class WidgetLink:
    """Feeds one widget from a thread of its own, and hands on what its views ask for.

    Parameters
    ----------
    on_request : callable
        Gets requests, on whatever thread the kernel reads them; must not wait.
    on_closed : callable
        Called once, when nothing is sent any more.
    """

    def __init__(
        self,
        run_id: str,
        on_request: Callable[[FromBrowser], bool],
        on_closed: Callable[[], None] = lambda: None,
    ) -> None:
        self.widget = RunWidget(run_id)
        self._comm_id = self.widget.model_id
        self.channel = Channel()
        self._on_request = on_request
        self._on_closed = on_closed
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._heard = threading.Event()
        self._heard_s = 0.0
        self._final_s: float | None = None
        self.widget.on_msg(self._receive)
        self._thread = threading.Thread(target=self._run, name=f"ddl-live-{run_id}", daemon=True)
        self._thread.start()

    @property
    def is_heard(self) -> bool:
        """Whether any view has spoken."""
        return self._heard.is_set()

    def show(self, snapshot: EncodedSnapshot) -> None:
        if self._final_s is None and snapshot.is_final:
            self._final_s = time.monotonic()
        self._offer(snapshot)

    def show_telemetry(self, view: EncodedTelemetry) -> None:
        self._offer(view)

    def answer(self, message: Answer) -> None:
        self.channel.answer(message)
        self._wake.set()

    def close(self) -> None:
        """Send nothing any more, and take the widget away."""
        self._closed.set()
        self._wake.set()

    def _offer(self, view: Shown) -> None:
        self.channel.offer(view)
        self._wake.set()

    def _receive(self, _widget: Any, content: Any, _buffers: Any) -> None:
        n_refused = self.channel.n_refused
        body = self.channel.receive(content)
        if self.channel.n_refused == n_refused:
            self._heard.set()
            self._heard_s = time.monotonic()
        if body is not None and not self._on_request(body):
            self.channel.refuse()
        self._wake.set()

    def _is_gone(self) -> bool:
        """Whether no view has spoken once the static form should have taken its place."""
        if self._final_s is None or time.monotonic() < self._final_s + _STAYS_S:
            return False
        return self._heard_s < self._final_s + _REPLACED_S

    def _run(self) -> None:
        """Send until the end has been seen or nobody is there to see it.

        A page that was loaded again does not find the output that is to become static; its view
        stays, and is answered as long as the kernel lives.
        """
        try:
            while not self._closed.is_set() and not (self.channel.is_over and self._is_gone()):
                for message in self.channel.due():
                    self.widget.send({}, [message])
                self._wake.wait(max(0.01, self.channel.wait_s()))
                self._wake.clear()
        except Exception:  # the wall of this thread; the run itself is not touched
            log.exception("the live view of run %s ended", self.widget.run_id)
        finally:
            self._on_closed()
            _open_comms.discard(self._comm_id)
            with contextlib.suppress(Exception):  # the kernel may be ending, its sockets closed
                self.widget.close()
