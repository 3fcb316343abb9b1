"""The client's one background event loop, and the only way into it from synchronous code."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from jupyter_ddl.errors import ControllerError

__all__ = ["ClientLoop", "client_loop", "close_client_loop"]

T = TypeVar("T")

_POLL_S = 0.1


class ClientLoop:
    """An asyncio loop on a daemon thread.

    The kernel's own loop is never used, so a cell that blocks, or that runs inside a running loop,
    makes no difference.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="jupyter_ddl-client", daemon=True
        )
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run a coroutine on the loop and wait for its result.

        Raises
        ------
        ControllerError
            Called on the loop's own thread, or nothing came within ``timeout_s``.
        KeyboardInterrupt
            As usual: the wait is cut into short pieces so that an interrupt is seen at once.
        """
        future = self.begin(coroutine)
        try:
            return self._wait(future, timeout_s)
        except BaseException:
            future.cancel()
            raise

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine on the loop; who waits for the future sees to the deadline.

        Raises
        ------
        ControllerError
            Called on the loop's own thread.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise ControllerError("a synchronous call was made on the client's own event loop")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _wait(self, future: concurrent.futures.Future[T], timeout_s: float) -> T:
        waited = 0.0
        while True:
            try:
                return future.result(timeout=_POLL_S)
            except concurrent.futures.TimeoutError:
                if future.done():
                    raise
                waited += _POLL_S
                if waited >= timeout_s:
                    raise ControllerError(
                        f"the controller did not answer within {timeout_s:.0f} s; "
                        f"see `%cluster logs`, or `%cluster stop` and start again"
                    ) from None

    def close(self) -> None:
        """Stop the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=5)
        if not self._thread.is_alive():
            self._loop.close()


_loop: ClientLoop | None = None
_lock = threading.Lock()


def client_loop() -> ClientLoop:
    """The process's loop, started on first use."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = ClientLoop()
        return _loop


def close_client_loop() -> None:
    """End the loop thread; the next use starts another one."""
    global _loop
    with _lock:
        if _loop is not None:
            _loop.close()
            _loop = None
