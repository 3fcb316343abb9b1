"""A connection to one controller: requests with replies, and pushed snapshots."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from jupyter_ddl import errors
from jupyter_ddl.errors import ControllerError, JupyterDDLError, ProtocolError
from jupyter_ddl.protocol.codec import decoder_of
from jupyter_ddl.protocol.framing import encode_frame, read_frame
from jupyter_ddl.protocol.replies import Refused, Reply, Result, SnapshotResult, Upward
from jupyter_ddl.protocol.requests import (
    PROTOCOL_VERSION,
    Body,
    Hello,
    Request,
    UnwatchRun,
    WatchRun,
)
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.store.connection import ConnectionInfo

__all__ = ["ClientLoop", "ControllerLink", "Mailbox", "client_loop", "close_client_loop"]


# The client's one background event loop, and the only way into it from synchronous code.

T = TypeVar("T")

_INTERRUPT_S = 0.5
_UPWARD = decoder_of(Upward)


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


OnSnapshot = Callable[[EncodedSnapshot], None]


class Mailbox:
    """Keeps one snapshot, the newest; older ones and repeats are dropped."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._snapshot: EncodedSnapshot | None = None
        self._fresh = False
        self._broken = False

    def put(self, snapshot: EncodedSnapshot) -> None:
        with self._changed:
            if self._snapshot is None or snapshot.seq >= self._snapshot.seq:
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


class ControllerLink:
    """Used on the client's loop only.  Closed by itself when the controller goes."""

    def __init__(
        self, info: ConnectionInfo, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.info = info
        self._reader = reader
        self._writer = writer
        self.closed = asyncio.Event()
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Result]] = {}
        self._watchers: dict[str, list[OnSnapshot]] = {}
        self._on_closed: list[Callable[[], None]] = []
        self._task = asyncio.create_task(self._read(), name=f"link {info.name}")

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
        try:
            await link.request(Hello(PROTOCOL_VERSION), timeout_s)
        except BaseException:
            await link.close()
            raise
        return link

    async def request(self, body: Body, timeout_s: float | None = 30.0) -> Result:
        """Ask, and wait for the answer; without a deadline, the end of the link ends the wait.

        Raises
        ------
        JupyterDDLError
            What the controller refused with, or :class:`ControllerError` when it doesn't answer.
        """
        if self.closed.is_set():
            raise self._gone()
        number = next(self._ids)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._send(Request(number, body))
            async with asyncio.timeout(timeout_s):
                await self._writer.drain()
                result = await future
        except TimeoutError:
            raise ControllerError(
                f"the controller of cluster {self.info.name} did not answer "
                f"{type(body).__name__} within {timeout_s or 0:.0f} s; see `%cluster logs`"
            ) from None
        except OSError:
            raise self._gone() from None
        finally:
            self._waiting.pop(number, None)
        if isinstance(result, Refused):
            raise _error_of(result)
        return result

    def watch(self, run_id: str, on_snapshot: OnSnapshot, on_closed: Callable[[], None]) -> None:
        """Call ``on_snapshot`` (on the loop's thread) for every pushed snapshot of a run.

        ``on_closed`` is called once when the link ends, now if it has.
        """
        self._watchers.setdefault(run_id, []).append(on_snapshot)
        if self.closed.is_set():
            on_closed()
        else:
            self._on_closed.append(on_closed)

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

    def unwatch(self, run_id: str, on_snapshot: OnSnapshot, on_closed: Callable[[], None]) -> None:
        """Forget both callbacks, and have nothing sent that nobody here looks at."""
        with contextlib.suppress(ValueError):
            self._on_closed.remove(on_closed)
        callbacks = self._watchers.get(run_id)
        if callbacks is None:
            return
        with contextlib.suppress(ValueError):
            callbacks.remove(on_snapshot)
        if not callbacks:
            del self._watchers[run_id]
            if not self.closed.is_set():
                # Its answer is dropped: who goes waits for nothing.
                self._send(Request(next(self._ids), UnwatchRun(run_id)))

    def _send(self, request: Request) -> None:
        self._writer.write(encode_frame(msgspec.msgpack.encode(request)))

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _read(self) -> None:
        try:
            while True:
                self._dispatch(_UPWARD(await read_frame(self._reader)))
        except (asyncio.IncompleteReadError, OSError, ProtocolError):
            pass  # the link is over either way; waiting requests are told below
        finally:
            # Not by who asks next: perhaps nobody does, and the descriptor would stay.
            self._writer.close()
            self.closed.set()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(self._gone())
            for callback in tuple(self._on_closed):
                callback()

    def _dispatch(self, message: Upward) -> None:
        if isinstance(message, Reply):
            future = self._waiting.get(message.id)
            if future is not None and not future.done():
                future.set_result(message.result)
            return
        for callback in tuple(self._watchers.get(message.snapshot.run_id, ())):
            callback(message.snapshot)

    def _gone(self) -> ControllerError:
        return ControllerError(
            f"the controller of cluster {self.info.name} (pid {self.info.process.pid}) is gone; "
            f"its runs are on disk: start the cluster again and they go on",
            cluster=self.info.name,
        )


def _error_of(refused: Refused) -> JupyterDDLError:
    kind = getattr(errors, refused.error, ControllerError)
    if not (isinstance(kind, type) and issubclass(kind, JupyterDDLError)):
        kind = ControllerError
    error: JupyterDDLError = kind(refused.message, **refused.fields)
    return error
