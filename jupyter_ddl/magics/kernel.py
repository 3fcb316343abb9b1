"""The kernel around us: its notebook and cells, its end, its messages while a cell waits."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from jupyter_ddl.cell.work_folder import notebook_folder, work_folder
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.views.cell_output import say_note

__all__ = [
    "ShellService",
    "before_cell",
    "cell_number",
    "folder_of",
    "is_kernel_ending",
    "notebook_path",
    "watch_kernel_end",
]

log = logging.getLogger(__name__)


def cell_number(shell: Any) -> int | None:
    """The n of the ``In [n]`` that runs now.

    Not ``execution_count``: newer versions of IPython count up before the cell runs, older ones
    behind it.
    """
    n_inputs = len(shell.history_manager.input_hist_parsed)  # [0] is empty
    return n_inputs - 1 if n_inputs > 1 else None


def notebook_path(namespace: Mapping[str, Any]) -> Path | None:
    """The notebook's file, told by VS Code or by Jupyter's server; None where neither did."""
    told = (namespace.get("__vsc_ipynb_file__"), os.environ.get("JPY_SESSION_NAME"))
    for text in told:
        if isinstance(text, str) and text.endswith(".ipynb"):
            # A path from the server's root means nothing here, but kernels start in the folder.
            for path in (Path(text), work_folder() / Path(text).name):
                if path.is_absolute() and path.exists():
                    return path
    return None


def folder_of(shell: Any) -> Path:
    """The notebook's folder, or the working directory."""
    return notebook_folder(notebook_path(shell.user_ns))


# -- its end ---------------------------------------------------------------------------------------
# Who restarts or shuts down a kernel interrupts it first, and asks it to leave a moment later: its
# end must not be taken for a wish to stop a run.

_SHUTDOWN_WAIT_S = 0.5
"""From the interrupt to the request: milliseconds, unless the machine is busy."""

_ending = threading.Event()


def watch_kernel_end(ipython: Any) -> None:
    """Listen to requests to shut down; without effect outside a kernel, and the second time."""
    kernel = getattr(ipython, "kernel", None)
    handlers: dict[str, Callable[..., Awaitable[None]]] = getattr(kernel, "control_handlers", {})
    handler = handlers.get("shutdown_request")
    if handler is None or getattr(handler, "tells_jupyter_ddl", False):
        return

    async def listening(*args: Any) -> None:
        _ending.set()
        await handler(*args)

    listening.tells_jupyter_ddl = True  # type: ignore[attr-defined]
    handlers["shutdown_request"] = listening


def is_kernel_ending() -> bool:
    """Whether an interrupt that has just come is the beginning of the kernel's end.

    Raises
    ------
    KeyboardInterrupt
        Another interrupt came meanwhile.
    """
    return _ending.wait(_SHUTDOWN_WAIT_S)


# -- its messages while a cell waits ---------------------------------------------------------------
# The kernel reads its shell channel on the thread that the cell occupies.  So a page that is loaded
# again would learn nothing of the widgets before the cell's end, and front ends without subshells
# could not press a button.  The wait is ours, so it reads the channel now and then: what concerns
# the live view is answered at once, all else goes on in its order behind the cell.

_QUESTIONS = frozenset({"kernel_info_request", "comm_info_request"})
_CONTROL_TARGET = "jupyter.widget.control"
_MAX_AT_ONCE = 50


class ShellService:
    """Serves the kernel of a shell; made and used on the cell's own thread.

    Where the kernel is not built as this expects (it uses what ipykernel 6.29 to 7.4 have inside),
    it does nothing: then the messages wait.

    Parameters
    ----------
    is_ours : callable
        Whether a comm, by its id, is of a live view.
    """

    def __init__(self, shell: Any, is_ours: Callable[[str], bool]) -> None:
        self._kernel: Any = getattr(shell, "kernel", None)
        self._is_ours = is_ours
        self._socket: Any = None
        self._stream: Any = None
        self._later: Callable[[Any], object] = self._as_task
        self._tasks: set[asyncio.Task[None]] = set()
        try:
            self._connect()
        except AttributeError as error:
            log.debug("this kernel's messages wait behind the cell: %s", error)

    def _connect(self) -> None:
        kernel = self._kernel
        if kernel is None or threading.current_thread() is not threading.main_thread():
            return
        thread = getattr(kernel, "shell_channel_thread", None)
        if thread is None:
            self._socket = self._stream = kernel.shell_stream.socket
            self._later = lambda raw: kernel.schedule_dispatch(kernel.dispatch_shell, raw)
            return
        pair = thread.manager.get_shell_channel_to_subshell_pair(None)
        self._socket = pair.to_stream.socket
        self._stream = thread.manager.get_subshell_to_shell_channel_socket(None)

    def serve(self) -> None:
        """Answer what has come so far; never raises."""
        if self._socket is None:
            return
        try:
            for _ in range(_MAX_AT_ONCE):
                raw = self._next()
                if raw is None:
                    return
                if not self._answer(raw):
                    self._later(raw)
        except Exception:  # the wall around another package's inside; the run goes on
            log.exception("the kernel's messages wait behind the cell from now on")
            self._socket = None

    def _next(self) -> Any:
        import zmq

        try:
            return self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None

    def _answer(self, raw: Any) -> bool:
        session = self._kernel.session
        idents, frames = session.feed_identities(raw, copy=False)
        # Only looked at: to deserialize a message twice is refused as a repeated one.
        header = session.unpack(frames[1].bytes)
        kind = header.get("msg_type")
        if kind not in _QUESTIONS and not self._concerns_us(kind, session.unpack(frames[4].bytes)):
            return False
        message = session.deserialize(frames, content=True, copy=False)
        parent = self._kernel.get_parent()
        publish = self._kernel._publish_status
        publish("busy", "shell", parent=message)
        result = self._kernel.shell_handlers[kind](self._stream, idents, message)
        if asyncio.iscoroutine(result):
            _finish(result)
        publish("idle", "shell", parent=message)
        publish("busy", "shell", parent=parent)  # the cell is still running
        return True

    def _concerns_us(self, kind: str, content: dict[str, Any]) -> bool:
        comm_id = str(content.get("comm_id"))
        if kind == "comm_open":
            return content.get("target_name") == _CONTROL_TARGET
        if kind not in ("comm_msg", "comm_close"):
            return False
        comm = self._kernel.comm_manager.get_comm(comm_id)
        is_control = getattr(comm, "target_name", "") == _CONTROL_TARGET
        return is_control or self._is_ours(comm_id)

    def _as_task(self, raw: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._kernel.shell_main(None, raw))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _finish(coroutine: Any) -> None:
    """Run a handler that never really waits, without the loop that the cell occupies."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise RuntimeError("a handler of the kernel waits for something")


# -- plain Dask code -------------------------------------------------------------------------------

_DASK = re.compile(r"\bdask")


def before_cell(info: Any) -> None:
    """Connect before the first cell that uses Dask, if a cluster of ours runs.

    Not earlier: importing ``distributed`` takes half a second that most notebooks have no use for.
    """
    if "jupyter_ddl.client.session" not in sys.modules:
        return
    if not _DASK.search(info.raw_cell or ""):
        return
    from jupyter_ddl.client.session import session

    name = session().current
    if name is None:
        return
    from jupyter_ddl.client.dask_client import connect_client, connected_client

    if connected_client() is not None or _has_another():
        return
    try:
        connect_client()
    except JupyterDDLError as error:
        say_note(f"plain Dask code runs in this kernel: {error.message}")


def _has_another() -> bool:
    """Whether the notebook has connected a client of its own, which then stays the default."""
    from distributed.client import _get_global_client

    return _get_global_client() is not None
