"""A front end with widgets, as far as the live view needs one: its comm, both ways."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from queue import Empty
from typing import Any

from tests.column_frames import read_frame
from tests.live_kernel import LiveKernel
from tests.until import PATIENCE_S

_WIDGETS = "jupyter.widget"


@dataclass
class FrontEnd:
    """Drives cells of a kernel as a person's browser would.

    Attributes
    ----------
    comm_id : str
        Of the newest run's widget; empty before there is one.
    closed : list of str
        Comms that the kernel has closed.
    messages : list of dict
        What the widget was told, oldest first.
    bundles : list of dict
        What the cells displayed, updates included.
    """

    kernel: LiveKernel
    comm_id: str = ""
    state: dict[str, Any] = field(default_factory=dict)
    closed: list[str] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    bundles: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""
    n_updates: int = 0
    _subshell: str | None = None
    _started: set[str] = field(default_factory=set)
    _idle: set[str] = field(default_factory=set)

    @property
    def _client(self) -> Any:
        return self.kernel._client

    def start(self, code: str) -> str:
        """Begin a cell, as somebody who can be asked."""
        message_id = str(self._client.execute(code, allow_stdin=True))
        self._started.add(message_id)
        return message_id

    def leave(self) -> None:
        """End what a test that failed has left running: the next one has the same kernel."""
        left = self._started - self._idle
        if left:
            self.kernel.interrupt()
            self.kernel.interrupt()
            self.until(lambda: left <= self._idle, "the end of what was left")

    def until(self, is_true: Any, what: str) -> None:
        """Take messages until something holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_true():
            left = deadline - time.monotonic()
            assert left > 0, f"{what} did not come within {PATIENCE_S:g} s; text: {self.text!r}"
            try:
                self._take(self._client.get_iopub_msg(timeout=min(left, 0.2)))
            except Empty:
                continue

    def finish(self, message_id: str) -> dict[str, Any]:
        """The reply to a cell, once it has ended and all its output is here."""
        self.until(lambda: message_id in self._idle, "the cell's end")
        while True:
            reply = dict(self._client.get_shell_msg(timeout=PATIENCE_S))
            if reply["parent_header"].get("msg_id") == message_id:
                return dict(reply["content"])

    def open_subshell(self) -> None:
        """From now on messages of the widget go through a subshell, as JupyterLab sends them."""
        request = self._client.session.msg("create_subshell_request", {})
        self._client.control_channel.send(request)
        while True:
            reply = self._client.get_control_msg(timeout=PATIENCE_S)
            if reply["parent_header"].get("msg_id") == request["header"]["msg_id"]:
                self._subshell = reply["content"]["subshell_id"]
                return

    def send(self, content: Any) -> None:
        """One message of the view to the kernel."""
        data = {"method": "custom", "content": content}
        message = self._client.session.msg("comm_msg", {"comm_id": self.comm_id, "data": data})
        if self._subshell is not None:
            message["header"]["subshell_id"] = self._subshell
        self._client.shell_channel.send(message)

    def comms(self) -> list[str]:
        """Ids of the kernel's open comms, as a page asks for them when it is loaded."""
        request = self._client.session.msg("comm_info_request", {"target_name": _WIDGETS})
        self._client.shell_channel.send(request)
        while True:
            reply = self._client.get_shell_msg(timeout=PATIENCE_S)
            if reply["parent_header"].get("msg_id") == request["header"]["msg_id"]:
                return list(reply["content"]["comms"])

    def newest(self, kind: str = "run") -> dict[str, Any] | None:
        """The last message of a kind."""
        return next((each for each in reversed(self.messages) if each["kind"] == kind), None)

    def snapshot(self) -> dict[str, Any]:
        """The newest snapshot; empty before the first."""
        view = self.newest()
        return {} if view is None else dict(view["snapshot"])

    def _take(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        if kind == "comm_open" and content["target_name"] == _WIDGETS:
            state = content["data"]["state"]
            if "run_id" in state:
                self.comm_id, self.state = content["comm_id"], state
        elif kind == "comm_close":
            self.closed.append(content["comm_id"])
        elif kind == "comm_msg" and content["comm_id"] == self.comm_id:
            frames = map(bytes, message.get("buffers", ()))
            self.messages += [
                read_frame(each) if each.startswith(b"\0") else json.loads(each) for each in frames
            ]
        elif kind in ("display_data", "update_display_data"):
            self.bundles.append(content["data"])
        elif kind == "stream":
            self.text += content["text"]
        elif kind == "error":
            self.text += "\n".join(content["traceback"])
        elif kind == "status" and content["execution_state"] == "idle":
            self._idle.add(message["parent_header"].get("msg_id", ""))
