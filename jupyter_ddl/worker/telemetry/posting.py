"""Sends samples from the worker's loop when that sends chunks of events anyway."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

__all__ = ["SamplePost"]

_PATIENCE_S = 0.01
"""A chunk that is due at the same time is sent within it."""


class SamplePost:
    """Sends the newest sample at whole multiples of the interval, on the loop's own clock.

    Chunks of events keep to whole seconds as well (``worker/chunks.py``).  A sample that goes with
    one costs neither the worker nor the controller a wake-up and a message of its own, and these
    are most of what it costs.

    Parameters
    ----------
    send : callable
        Called on the loop.
    """

    def __init__(self, interval_s: float, send: Callable[[bytes], None]) -> None:
        self._interval_s = interval_s
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._sample: bytes | None = None
        self._due_s = 0.0
        self._timer: asyncio.Handle = self._loop.call_soon(self._wait)

    def put(self, sample: bytes) -> None:
        """Take a sample, from any thread; one that has not been sent yet is dropped for it."""
        self._sample = sample

    def go_along(self) -> None:
        """Something else is being sent: send a sample that is due about now."""
        if self._sample is not None and self._loop.time() >= self._due_s - _PATIENCE_S:
            self._post()

    def close(self) -> None:
        """Send nothing any more."""
        self._timer.cancel()

    def _wait(self) -> None:
        now_s = self._loop.time()
        self._due_s = (math.floor(now_s / self._interval_s) + 1) * self._interval_s
        self._timer = self._loop.call_at(self._due_s + _PATIENCE_S, self._on_time)

    def _on_time(self) -> None:
        self._post()
        self._wait()

    def _post(self) -> None:
        sample, self._sample = self._sample, None
        if sample is not None:
            self._send(sample)
