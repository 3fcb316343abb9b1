"""What crosses the websockets between a page and its kernels, or the panel's server."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page, WebSocket

__all__ = ["Frames"]

_ANSWER = re.compile(rb'"kind": ?"log", ?"id": ?(\d+)')


class Frames:
    """Counts what websockets bring, and times answers to questions for logs.

    With the panel's extension a view asks the server, which answers past a busy kernel.
    """

    def __init__(self, page: Page) -> None:
        self.n_messages = 0
        self.n_bytes = 0
        self.answers_s: list[float] = []
        self._asked: dict[bytes, float] = {}
        page.on("websocket", self._open)

    def _open(self, socket: WebSocket) -> None:
        if "/channels" in socket.url or "/jupyter-ddl/" in socket.url:
            socket.on("framereceived", self._received)
            socket.on("framesent", self._sent)

    def _received(self, payload: bytes | str) -> None:
        self.n_messages += 1
        self.n_bytes += len(payload)
        data = payload if isinstance(payload, bytes) else payload.encode()
        for number in _ANSWER.findall(data):
            if number in self._asked:
                self.answers_s.append(time.perf_counter() - self._asked.pop(number))

    def _sent(self, payload: bytes | str) -> None:
        data = payload if isinstance(payload, bytes) else payload.encode()
        if b'"get_log"' in data:
            number = data.rpartition(b'"id":')[2]
            digits = number[: len(number) - len(number.lstrip(b"0123456789"))]
            self._asked.setdefault(digits, time.perf_counter())
