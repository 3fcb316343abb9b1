"""A real ipykernel as a test drives it: cells in, what a front end would show out."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager

from tests.leaks import Home
from tests.until import PATIENCE_S

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_STOP_CLUSTERS = (
    "from jupyter_ddl.client.clusters import list_clusters as _all\n"
    "for _each in _all():\n    _each.stop()\n"
)


@dataclass
class CellOutput:
    """What a cell showed.

    Attributes
    ----------
    status : str
        ``ok`` or ``error`` as the kernel replied.
    text : str
        Standard output, ``stderr`` likewise.
    displays : list of dict
        MIME bundles in their places, as they are after all updates.
    n_updates : int
        How often a display was redrawn.
    error : tuple of (str, str, str) or None
        Class, message and traceback (without colours).
    """

    status: str = ""
    text: str = ""
    stderr: str = ""
    displays: list[dict[str, Any]] = field(default_factory=list)
    n_updates: int = 0
    error: tuple[str, str, str] | None = None
    result: str | None = None
    duration_s: float = 0.0

    def check(self) -> CellOutput:
        """This output; fails unless the cell succeeded."""
        assert self.status == "ok", f"{self.status}: {self.everything}"
        return self

    @property
    def everything(self) -> str:
        """All text that a reader sees."""
        shown = [str(bundle.get("text/plain", "")) for bundle in self.displays]
        error = self.error[2] if self.error else ""
        return "\n".join(
            part for part in (self.text, self.stderr, *shown, self.result or "", error) if part
        )


class LiveKernel:
    """Owns one kernel process; :meth:`close` stops its clusters and ends it."""

    def __init__(self, home: Home) -> None:
        self.home = home
        # Of free ports of this host, which are chosen before they are bound, another process may
        # have taken one by then.
        place = home.runtime / f"kernel-{uuid.uuid4().hex[:12]}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        self._manager = KernelManager(transport="ipc", connection_file=str(place))
        env = {**os.environ, **home.variables()}
        # Warnings of the kernel's own libraries are none of these tests' business.
        env.pop("PYTHONWARNINGS", None)
        env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', '')}"
        self._manager.start_kernel(env=env, cwd=str(home.work))
        self._client: BlockingKernelClient = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=PATIENCE_S)
        self._outputs: dict[str, CellOutput] = {}
        self._places: dict[str, list[dict[str, Any]]] = {}

    @property
    def pid(self) -> int:
        provisioner: Any = self._manager.provisioner
        return int(provisioner.pid)

    def run(self, code: str, timeout_s: float = 30.0) -> CellOutput:
        """Execute a cell and return what it showed."""
        return self.finish(self.start(code), timeout_s)

    def start(self, code: str) -> str:
        """Begin to execute a cell; returns its message id for :meth:`finish`."""
        return self._client.execute(code, allow_stdin=False)

    def finish(self, message_id: str, timeout_s: float = 30.0, until_text: str = "") -> CellOutput:
        """Collect what a cell shows until its end.

        Parameters
        ----------
        timeout_s : float
            How long it may take on a quiet machine.
        until_text : str
            Return as soon as this is shown; the cell goes on, and so does its output with
            the next call.
        """
        out = self._outputs.setdefault(message_id, CellOutput())
        began = time.monotonic()
        deadline = began + max(timeout_s, PATIENCE_S)
        while True:
            message = self._next(deadline, out)
            if message["parent_header"].get("msg_id") != message_id:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            self._take(kind, content, out)
            if until_text and until_text in out.everything:
                out.duration_s = time.monotonic() - began
                return out
        if until_text:
            raise AssertionError(f"the cell ended without showing {until_text!r}: {out!r}")
        reply = self._reply(message_id, deadline)
        out.status = reply["content"]["status"]
        out.duration_s = time.monotonic() - began
        return out

    def poll(self, message_id: str, timeout_s: float) -> CellOutput | None:
        """Take one message of a cell that :meth:`start` began; None when none came.

        Its ``status`` is set once the cell has ended.
        """
        out = self._outputs.setdefault(message_id, CellOutput())
        try:
            message = self._client.get_iopub_msg(timeout=timeout_s)
        except Empty:
            return None
        kind, content = message["msg_type"], message["content"]
        if message["parent_header"].get("msg_id") != message_id:
            return None
        if kind == "status" and content["execution_state"] == "idle":
            reply = self._reply(message_id, time.monotonic() + PATIENCE_S)
            out.status = reply["content"]["status"]
        else:
            self._take(kind, content, out)
        return out

    def value(self, expression: str, timeout_s: float = 30.0) -> str:
        """The ``repr`` of an expression in the notebook."""
        out = self.run(f"print(repr(({expression})))", timeout_s).check()
        return out.text.strip()

    def complete(
        self, code: str, position: int | None = None, timeout_s: float = 10.0
    ) -> list[str]:
        """What Tab offers at a position, by default the end of ``code``."""
        reply = self._client.complete(
            code, position, reply=True, timeout=max(timeout_s, PATIENCE_S)
        )
        return list(reply["content"]["matches"])

    def interrupt(self) -> None:
        """What the front end's stop button does."""
        self._manager.interrupt_kernel()

    def kill(self) -> None:
        """SIGKILL, as the host does it when memory is short."""
        os.kill(self.pid, signal.SIGKILL)
        self._manager.shutdown_kernel(now=True)
        self._client.stop_channels()

    def restart(self) -> None:
        """As a front end does it: an interrupt, a request to shut down, a new process."""
        self._manager.restart_kernel()
        self._client.wait_for_ready(timeout=PATIENCE_S)

    def close(self, *, stop_clusters: bool = True) -> None:
        """Stop all clusters of the home from inside, then end the kernel."""
        if self._manager.is_alive():
            try:
                if stop_clusters:
                    self.run(_STOP_CLUSTERS, timeout_s=30)
            finally:
                self._manager.shutdown_kernel(now=True)
        self._client.stop_channels()
        self._manager.cleanup_resources()
        self._manager.context.destroy(linger=0)

    def _next(self, deadline: float, out: CellOutput) -> dict[str, Any]:
        left = deadline - time.monotonic()
        try:
            return dict(self._client.get_iopub_msg(timeout=max(0.01, left)))
        except Empty:
            raise AssertionError(f"the cell did not end in time; it showed: {out!r}") from None

    def _reply(self, message_id: str, deadline: float) -> dict[str, Any]:
        while True:
            left = max(0.01, deadline - time.monotonic())
            reply = self._client.get_shell_msg(timeout=left)
            if reply["parent_header"].get("msg_id") == message_id:
                return dict(reply)

    def _take(self, kind: str, content: dict[str, Any], out: CellOutput) -> None:
        if kind == "stream":
            if content["name"] == "stdout":
                out.text += content["text"]
            else:
                out.stderr += content["text"]
        elif kind == "display_data":
            bundle = dict(content["data"])
            out.displays.append(bundle)
            display_id = content.get("transient", {}).get("display_id")
            if display_id:
                self._places.setdefault(display_id, []).append(bundle)
        elif kind == "update_display_data":
            out.n_updates += 1
            for bundle in self._places.get(content["transient"]["display_id"], []):
                bundle.clear()
                bundle.update(content["data"])
        elif kind == "execute_result":
            out.result = content["data"].get("text/plain")
            out.displays.append(dict(content["data"]))
        elif kind == "error":
            text = _ANSI.sub("", "\n".join(content["traceback"]))
            out.error = (content["ename"], content["evalue"], text)
