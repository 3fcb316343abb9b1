"""Answers, while a cell waits for its run, what a front end asks the kernel in the meantime.

The kernel reads its shell channel on the thread that the cell occupies.  So a page that is loaded
again would learn nothing of the widgets before the cell's end, and front ends without subshells
could not press a button.  The wait is ours, so it reads the channel now and then: what concerns
the live view is answered at once, all else goes on in its order behind the cell.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["ShellService"]

log = logging.getLogger(__name__)

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
