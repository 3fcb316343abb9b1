"""One connection to a controller: requests with replies, and pushed snapshots."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable

import msgspec

from jupyter_ddl import errors
from jupyter_ddl.errors import ControllerError, JupyterDDLError, ProtocolError
from jupyter_ddl.protocol.codec import decoder_of
from jupyter_ddl.protocol.framing import encode_frame, read_frame
from jupyter_ddl.protocol.replies import Refused, Reply, Result, Upward
from jupyter_ddl.protocol.requests import (
    MAX_REQUEST_BYTES,
    PROTOCOL_VERSION,
    Body,
    Hello,
    Request,
    UnwatchRun,
)
from jupyter_ddl.protocol.snapshot import EncodedSnapshot

__all__ = ["Link", "OnSnapshot"]

_UPWARD = decoder_of(Upward)

_CLOSE_S = 1.0

OnSnapshot = Callable[[EncodedSnapshot], None]


class Link:
    """One connection, used on one loop only.  Closed by itself when the controller goes."""

    def __init__(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.name = name
        """Of the cluster."""
        self._reader = reader
        self._writer = writer
        self.closed = asyncio.Event()
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Result]] = {}
        self._watchers: dict[str, list[OnSnapshot]] = {}
        self.on_every: OnSnapshot = lambda _: None
        """Gets the pushed snapshots of all runs."""
        self._on_closed: list[Callable[[], None]] = []
        self._task = asyncio.create_task(self._read(), name=f"link {name}")

    async def greet(self, timeout_s: float) -> None:
        """Say hello; a link that is not answered is closed.

        Raises
        ------
        ControllerError
            Nobody answers, or the controller speaks another protocol version.
        """
        try:
            await self.request(Hello(PROTOCOL_VERSION), timeout_s)
        except BaseException:
            await self.close()
            raise

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
                f"the controller of cluster {self.name} did not answer "
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
        payload = msgspec.msgpack.encode(request)
        if len(payload) > MAX_REQUEST_BYTES:  # it would be cut off, and seem to be gone
            kind = type(request.body).__name__
            raise ProtocolError(
                f"a {kind} of {len(payload):,} bytes is over the limit of {MAX_REQUEST_BYTES:,} of "
                f"one request; put large values into variables, which a cell brings along"
            )
        self._writer.write(encode_frame(payload))

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._writer.close()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            # TLS waits for the other end's farewell: half a minute where the network is lost.
            self._writer.transport.abort()

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
        self.on_every(message.snapshot)
        for callback in tuple(self._watchers.get(message.snapshot.run_id, ())):
            callback(message.snapshot)

    def _gone(self) -> ControllerError:
        return ControllerError(
            f"the controller of cluster {self.name} is gone; "
            f"its runs are on disk: start the cluster again and they go on",
            cluster=self.name,
        )


def _error_of(refused: Refused) -> JupyterDDLError:
    kind = getattr(errors, refused.error, ControllerError)
    if not (isinstance(kind, type) and issubclass(kind, JupyterDDLError)):
        kind = ControllerError
    error: JupyterDDLError = kind(refused.message, **refused.fields)
    return error
