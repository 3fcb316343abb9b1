"""The client's loop, and its connection to a controller of this host."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from jupyter_ddl.errors import ControllerError
from jupyter_ddl.protocol.link import Link
from jupyter_ddl.protocol.replies import SnapshotResult
from jupyter_ddl.protocol.requests import WatchRun
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.store.connection import ConnectionInfo

__all__ = ["ClientLoop", "ControllerLink", "Mailbox", "client_loop", "close_client_loop"]


# The client's one background event loop, and the only way into it from synchronous code.

T = TypeVar("T")

_INTERRUPT_S = 0.5


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
            As usual, and within half a second: a signal that comes just before a wait begins does
            not end that wait.
        """
        future = self.begin(coroutine)
        deadline_s = time.monotonic() + timeout_s
        try:
            while not future.done() and time.monotonic() < deadline_s:
                concurrent.futures.wait([future], min(_INTERRUPT_S, timeout_s))
            if future.done():
                return future.result()
        except BaseException:
            future.cancel()
            raise
        future.cancel()
        raise ControllerError(
            f"the controller did not answer within {timeout_s:.0f} s; "
            f"see `%cluster logs`, or `%cluster stop` and start again"
        )

    def soon(self, callback: Callable[..., object], *values: object) -> None:
        """Call something on the loop, without waiting for it."""
        self._loop.call_soon_threadsafe(callback, *values)

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


class Mailbox:
    """Keeps one snapshot, the newest; older ones and repeats are dropped."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._snapshot: EncodedSnapshot | None = None
        self._fresh = False
        self._broken = False

    def put(self, snapshot: EncodedSnapshot) -> None:
        with self._changed:
            before = self._snapshot
            # The end counts, however short its record: a controller that has lost its disk goes on
            # from a copy, which lacks what was shown last.
            if before is None or snapshot.seq >= before.seq or snapshot.is_final:
                self._snapshot = snapshot
                self._fresh = True
                self._changed.notify_all()

    def break_off(self) -> None:
        """Nothing more will come: the controller is gone."""
        with self._changed:
            self._broken = True
            self._changed.notify_all()

    @property
    def is_broken(self) -> bool:
        return self._broken

    @property
    def newest(self) -> EncodedSnapshot | None:
        """The newest snapshot, taken or not."""
        return self._snapshot

    def take(self, timeout_s: float | None) -> EncodedSnapshot | None:
        """The newest snapshot that was not taken yet; None when there is none in time."""
        with self._changed:
            if not self._fresh and not self._broken:
                self._changed.wait(timeout_s)
            if not self._fresh:
                return None
            self._fresh = False
            return self._snapshot


class ControllerLink(Link):
    """A link to a controller of this host."""

    def __init__(
        self, info: ConnectionInfo, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        super().__init__(info.name, reader, writer)
        self.info = info

    @classmethod
    async def open(cls, info: ConnectionInfo, timeout_s: float = 5.0) -> ControllerLink:
        """Connect and say hello.

        Raises
        ------
        ControllerError
            Nobody listens, or the controller speaks another protocol version.
        """
        try:
            async with asyncio.timeout(timeout_s):
                streams = await asyncio.open_unix_connection(info.socket)
        except (OSError, TimeoutError) as error:
            raise ControllerError(
                f"the controller of cluster {info.name} (pid {info.process.pid}) does not "
                f"answer on its socket: {error!r}; `%cluster stop {info.name}`, then start it again"
            ) from error
        link = cls(info, *streams)
        await link.greet(timeout_s)
        return link

    async def follow(self, run_id: str) -> Mailbox:
        """A mailbox that receives a run's snapshots; the current one is in it already."""
        mailbox = Mailbox()
        self.watch(run_id, mailbox.put, mailbox.break_off)
        try:
            result = await self.request(WatchRun(run_id))
        except BaseException:
            self.unwatch(run_id, mailbox.put, mailbox.break_off)
            raise
        if isinstance(result, SnapshotResult):
            mailbox.put(result.snapshot)
        return mailbox

    def _gone(self) -> ControllerError:
        return ControllerError(
            f"the controller of cluster {self.name} (pid {self.info.process.pid}) is gone; "
            f"its runs are on disk: start the cluster again and they go on",
            cluster=self.name,
        )
