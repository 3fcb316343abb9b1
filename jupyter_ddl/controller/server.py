"""The controller's Unix socket: frames in, typed requests handled, replies and snapshots out."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from pathlib import Path
from typing import Protocol

import msgspec

from jupyter_ddl.errors import JupyterDDLError, ProtocolError
from jupyter_ddl.protocol.framing import encode_frame, read_frame
from jupyter_ddl.protocol.replies import Refused, Reply, Result
from jupyter_ddl.protocol.requests import MAX_REQUEST_BYTES, Body, Request
from jupyter_ddl.store.connection import remove_socket

__all__ = ["Handler", "Server", "Session"]

log = logging.getLogger(__name__)

_UCRED = struct.Struct("3i")
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


class Server:
    """Listens on one path; only this user's processes are let in."""

    def __init__(self, path: Path, handler: Handler) -> None:
        self._path = path
        self._handler = handler
        self._decoder = msgspec.msgpack.Decoder(Request)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sessions: set[Session] = set()

    async def start(self) -> None:
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._serve, path=self._path)
        self._path.chmod(0o600)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for session in tuple(self._sessions):
            session.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        remove_socket(self._path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer_uid = _peer_uid(writer.get_extra_info("socket"))
        if peer_uid != os.getuid():
            log.warning("refused a connection of user id %d", peer_uid)
            writer.close()
            return
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
        payload = await read_frame(reader, MAX_REQUEST_BYTES)
        try:
            return self._decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"a client sent something that is not a request: {error}") from None

    async def _answer(self, request: Request, session: Session) -> None:
        try:
            result = await self._handler.handle(request.body, session)
        except JupyterDDLError as error:
            result = Refused(type(error).__name__, error.message, _plain(error.fields))
        except Exception as error:
            log.exception("request %s failed", type(request.body).__name__)
            result = Refused("ControllerError", f"the controller failed: {error!r}; see its log")
        session.reply(request.id, result)


def _plain(fields: dict[str, object]) -> dict[str, object]:
    return {k: v if isinstance(v, int | float | str | None) else str(v) for k, v in fields.items()}


def _peer_uid(sock: socket.socket) -> int:
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    _pid, uid, _gid = _UCRED.unpack(credentials)
    return int(uid)
