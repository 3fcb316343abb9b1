"""What is left in a kernel of controllers that have gone: nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jupyter_ddl.client import session as module
from jupyter_ddl.client.link import client_loop
from jupyter_ddl.client.session import Session
from jupyter_ddl.errors import ProtocolError
from jupyter_ddl.protocol.framing import encode_frame, read_frame
from jupyter_ddl.protocol.replies import Accepted, Reply
from jupyter_ddl.protocol.requests import MAX_REQUEST_BYTES, GetLog, GetStatus, Request
from jupyter_ddl.store.connection import ConnectionInfo
from jupyter_ddl.store.processes import this_process
from tests.leaks import Home
from tests.until import until

_N_RECONNECTS = 200


class Controller:
    """Agrees to everything, and can be cut off from all who are connected."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connected: set[asyncio.StreamWriter] = set()

    async def serve(self) -> None:
        self._server = await asyncio.start_unix_server(self._answer, path=self._path)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connected.add(writer)
        try:
            while True:
                request = msgspec.msgpack.decode(await read_frame(reader), type=Request)
                writer.write(encode_frame(msgspec.msgpack.encode(Reply(request.id, Accepted()))))
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._connected.discard(writer)
            writer.close()

    async def cut(self) -> None:
        for writer in tuple(self._connected):
            writer.close()

    async def close(self) -> None:
        self._server.close()
        await self._server.wait_closed()


@pytest.fixture
def controller(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Controller]:
    path = home.root / "s"
    info = ConnectionInfo("test", "local", str(path), this_process(), "0")
    monkeypatch.setattr(module, "read_connection", lambda _: info)
    served = Controller(path)
    client_loop().call(served.serve(), 10)
    yield served
    client_loop().call(served.close(), 10)


def left() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    return sum(1 for _ in Path("/dev/fd").iterdir()), threading.active_count()


def is_within(before: tuple[int, int]) -> bool:
    return all(now <= then for now, then in zip(left(), before, strict=True))


def test_two_hundred_lost_connections_leave_no_descriptor_and_no_thread(
    controller: Controller,
) -> None:
    session = Session()
    before = left()
    for _ in range(_N_RECONNECTS):
        session.ask("test", GetStatus())
        link = session._links["test"]
        client_loop().call(controller.cut(), 10)
        client_loop().call(link.closed.wait(), 10)
    # What tests before this one have left may end meanwhile.
    until(lambda: is_within(before), 10, "no more than before")
    session.close()


def test_a_request_that_is_too_large_is_named_and_breaks_no_connection(
    controller: Controller,
) -> None:
    session = Session()
    session.ask("test", GetStatus())
    link = session._links["test"]
    with pytest.raises(
        ProtocolError, match=r"a GetLog of 4,.* bytes is over the limit of 4,194,304"
    ):
        session.ask("test", GetLog("x" * MAX_REQUEST_BYTES))
    session.ask("test", GetStatus())
    assert session._links["test"] is link
    session.close()
