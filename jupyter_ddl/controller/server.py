"""The controller's clients: their Unix socket, replies to each, snapshots of runs to all who watch.

The only throttle on a snapshot's way to a screen stands here, because only here the drawing can be
saved as well: whoever comes behind passes bytes on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from jupyter_ddl.errors import ControllerError, JupyterDDLError, ProtocolError
from jupyter_ddl.protocol.codec import UNWRITABLE, decoder_of
from jupyter_ddl.protocol.framing import encode_frame, read_frame
from jupyter_ddl.protocol.replies import Refused, Reply, Result, SnapshotPush
from jupyter_ddl.protocol.requests import MAX_REQUEST_BYTES, Body, Request
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.store.connection import remove_socket
from jupyter_ddl.store.exhaustion import used_up

__all__ = [
    "N_SOON",
    "PUSH_INTERVAL_S",
    "SOON_S",
    "Fanout",
    "Handler",
    "Server",
    "Session",
    "Timers",
    "Watcher",
]

log = logging.getLogger(__name__)

_REQUEST = decoder_of(Request, "a client sent something that is not a request")
_UCRED = struct.Struct("3i")
PUSH_INTERVAL_S = 0.25
"""Between two pushes of a run that goes on.  Jupyter's server drops what comes much faster."""
_HANDSHAKE_S = 10.0
SOON_S = 0.05
N_SOON = 3
"""So many pushes behind a pause need not keep the interval: who has just begun something looks
whether it runs, and the first trial's begin must not hold up its first report."""
_MAX_UNSENT_BYTES = 8 << 20
"""A client that reads nothing is cut off rather than fed from a growing buffer."""


class Handler(Protocol):
    """Answers the requests of all sessions."""

    async def handle(self, body: Body, session: Session) -> Result:
        """The result of one request; a :class:`JupyterDDLError` becomes a ``Refused``."""
        ...

    def closed(self, session: Session) -> None:
        """A client has gone."""
        ...


class Session:
    """One connected client.

    It is owed every reply, and of each run that it watches the newest snapshot only: while it has
    not read what was sent, a newer snapshot takes the place of one that waits.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        # So that draining ends when all is with the operating system, and not before.
        writer.transport.set_write_buffer_limits(0)
        self._newest: dict[str, bytes] = {}
        """Snapshots that wait, by run."""
        self._catching_up: asyncio.Task[None] | None = None

    @property
    def is_closed(self) -> bool:
        return self._writer.is_closing()

    def push(self, run_id: str, frame: bytes) -> None:
        """Send a snapshot of a run, now or when the client has read what it was sent before."""
        if self._writer.is_closing():
            return
        unread = self._catching_up is not None or self._writer.transport.get_write_buffer_size()
        if not unread:
            self._writer.write(frame)
            return
        self._newest[run_id] = frame
        if self._catching_up is None:
            self._catching_up = asyncio.create_task(self._catch_up(), name="slow client")

    def reply(self, number: int, result: Result) -> None:
        """Answer a request."""
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > _MAX_UNSENT_BYTES:
            log.warning("a client does not read; closing its connection")
            self._writer.transport.abort()
            return
        self._writer.write(encode_frame(msgspec.msgpack.encode(Reply(number, result))))

    def close(self) -> None:
        """The connection is over: what waits is not sent any more."""
        self._newest.clear()
        if self._catching_up is not None:
            self._catching_up.cancel()
        self._writer.close()

    async def _catch_up(self) -> None:
        try:
            while self._newest:
                await self._writer.drain()
                if self._newest:
                    self._writer.write(self._newest.pop(next(iter(self._newest))))
        except ConnectionError:
            pass  # whoever reads from it notices as well
        finally:
            self._catching_up = None


class Watcher(Protocol):
    """Whoever is pushed snapshots; it may be slow."""

    def push(self, run_id: str, frame: bytes) -> None:
        """Take the newest snapshot of a run, framed; an older one that was not sent is void."""
        ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class Timers(Protocol):
    """What is needed of an asyncio loop."""

    def time(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...


class Fanout:
    """Used on the controller's loop only.  Without watchers it draws nothing and has no timer.

    Parameters
    ----------
    mark : callable
        What a snapshot of this moment would differ by: cheap to ask, and equal while nothing has
        changed.
    draw : callable
        The snapshot of this moment.
    """

    def __init__(
        self, mark: Callable[[], object], draw: Callable[[], EncodedSnapshot], timers: Timers
    ) -> None:
        self._mark = mark
        self._draw = draw
        self._timers = timers
        self._watchers: dict[Watcher, None] = {}
        self._timer: Timer | None = None
        self._drawn: EncodedSnapshot | None = None
        self._drawn_mark: object = None
        self._next_s = float("-inf")
        self._paced_s = float("-inf")
        """When the next one would be due had all of them kept the interval."""

    def join(self, watcher: Watcher) -> EncodedSnapshot:
        """What there is to see now; what comes later is pushed until the watcher leaves."""
        if self._timer is None:  # else all get the news together, a moment later
            self._push_news()
        self._watchers[watcher] = None
        return self._drawn or self._push_news()

    def leave(self, watcher: Watcher) -> None:
        """Push nothing more to this one, whether it has joined or not."""
        self._watchers.pop(watcher, None)
        if not self._watchers:
            self._cancel()

    def changed(self, *, is_last: bool = False) -> None:
        """Something may have changed.  Draws nothing yet: who tells this has other work to do.

        Parameters
        ----------
        is_last : bool
            Whether nothing will change any more; then nobody is made to wait for it.
        """
        if not self._watchers or (self._timer is not None and not is_last):
            return
        if self._mark() == self._drawn_mark:
            return
        self._cancel()
        wait_s = 0.0 if is_last else max(0.0, self._next_s - self._timers.time())
        self._timer = self._timers.call_later(wait_s, self._push_news)

    def close(self) -> EncodedSnapshot:
        """The last snapshot, which all watchers have been pushed when this returns."""
        last = self._push_news()
        self._watchers.clear()
        return last

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _push_news(self) -> EncodedSnapshot:
        self._cancel()
        mark = self._mark()
        if self._drawn is not None and mark == self._drawn_mark:
            return self._drawn
        drawn = self._drawn = self._draw()
        self._drawn_mark = mark
        self._pace(self._timers.time())
        if self._watchers:
            frame = encode_frame(msgspec.msgpack.encode(SnapshotPush(drawn)))
            for watcher in tuple(self._watchers):
                watcher.push(drawn.run_id, frame)
        return drawn

    def _pace(self, now_s: float) -> None:
        """One is pushed now: when may the next one be?"""
        self._paced_s = max(self._paced_s, now_s) + PUSH_INTERVAL_S
        self._next_s = max(now_s + SOON_S, self._paced_s - N_SOON * PUSH_INTERVAL_S)


class Server:
    """Lets in this user's processes on one path, and on a port who shows a certificate."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self._path = path
        self._handler = handler
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._sessions: set[Session] = set()

    @property
    def n_sessions(self) -> int:
        """Clients that are connected."""
        return len(self._sessions)

    async def start(self) -> None:
        self._path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._serve_neighbour, path=self._path)
        self._servers.append(server)
        self._path.chmod(0o600)

    async def listen(self, context: ssl.SSLContext, port: int, host: str | None = None) -> int:
        """Let in mirrors, by TLS; returns the port.

        Parameters
        ----------
        context : ssl.SSLContext
            Requires a certificate of whoever connects.
        port : int
            0: any that is free.
        host : str, optional
            By default all interfaces: a forwarded port arrives at the loopback.
        """
        if context.verify_mode is not ssl.CERT_REQUIRED:
            raise ControllerError(f"port {port} is not opened to clients without a certificate")
        server = await asyncio.start_server(
            self._serve, host, port, ssl=context, ssl_handshake_timeout=_HANDSHAKE_S
        )
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for session in tuple(self._sessions):
            session.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        remove_socket(self._path)

    async def _serve_neighbour(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        peer_uid = _peer_uid(writer.get_extra_info("socket"))
        if peer_uid != os.getuid():
            log.warning("refused a connection of user id %d", peer_uid)
            writer.close()
            return
        await self._serve(reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session = Session(writer)
        self._sessions.add(session)
        try:
            while True:
                request = await self._read(reader)
                # Answered beside each other: a slow request must not hold up a stop button.
                task = asyncio.create_task(self._answer(request, session))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except ProtocolError as error:
            log.warning("closing a connection: %s", error.message)
        finally:
            self._sessions.discard(session)
            session.close()
            self._handler.closed(session)

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        request: Request = _REQUEST(await read_frame(reader, MAX_REQUEST_BYTES))
        return request

    async def _answer(self, request: Request, session: Session) -> None:
        try:
            result = await self._handler.handle(request.body, session)
        except JupyterDDLError as error:
            result = Refused(type(error).__name__, error.message, _plain(error.fields))
        except Exception as error:
            log.exception("request %s failed", type(request.body).__name__)
            result = Refused("ControllerError", f"the controller failed: {error!r}; see its log")
            if limit := used_up(error):
                result = Refused("CapacityError", f"the controller can't do that: {error}{limit}")
        try:
            session.reply(request.id, result)
        except (ProtocolError, *UNWRITABLE) as error:  # whoever asked would wait for ever
            kind = type(request.body).__name__
            log.exception("the answer to %s can't be sent", kind)
            told = ascii(error.message if isinstance(error, ProtocolError) else str(error))
            text = f"the answer to {kind} can't be sent: {told}"
            session.reply(request.id, Refused("ProtocolError", text))


def _plain(fields: dict[str, object]) -> dict[str, object]:
    return {k: v if isinstance(v, int | float | str | None) else str(v) for k, v in fields.items()}


def _peer_uid(sock: socket.socket) -> int:
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    _pid, uid, _gid = _UCRED.unpack(credentials)
    return int(uid)
