"""The controller's socket, in one process: who reads slowly, who leaves, and what each is owed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from jupyter_ddl.controller.handlers import Requests
from jupyter_ddl.controller.server import Server, Session
from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.framing import MAX_FRAME_BYTES, FrameBuffer, encode_frame
from jupyter_ddl.protocol.replies import (
    Accepted,
    LogText,
    Refused,
    Reply,
    Result,
    SnapshotPush,
    Upward,
)
from jupyter_ddl.protocol.requests import Body, GetStatus, Request, StopCluster, WatchRun
from jupyter_ddl.protocol.snapshot import EncodedSnapshot

_DEADLINE_S = 60.0
_ROOM = 4 << 20
"""More than the operating system takes for a client that does not read."""


class Handler:
    """Notes who is connected, and answers."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.closed_sessions: list[Session] = []
        self.gone = asyncio.Event()
        self.answer: Result = Accepted()

    async def handle(self, body: Body, session: Session) -> Result:
        if isinstance(body, StopCluster):
            raise SpecError("not now", when="later")
        if isinstance(body, WatchRun):
            self.sessions.append(session)
        return self.answer

    def closed(self, session: Session) -> None:
        self.closed_sessions.append(session)
        self.gone.set()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        self._frames = FrameBuffer()
        self._ready: list[Upward] = []

    def ask(self, number: int, body: Body) -> None:
        self.writer.write(encode_frame(msgspec.msgpack.encode(Request(number, body))))

    async def next(self) -> Upward:
        while not self._ready:
            data = await self._reader.read(1 << 16)
            assert data, "the server has closed the connection"
            self._ready += [
                msgspec.msgpack.decode(each, type=Upward) for each in self._frames.feed(data)
            ]
        return self._ready.pop(0)


def frame(run_id: str, seq: int, *, size: int = 1000) -> bytes:
    push = SnapshotPush(EncodedSnapshot(run_id, seq, "running", b" " * size))
    return encode_frame(msgspec.msgpack.encode(push))


def serve(path: Path, work: Callable[[Handler, Client], Awaitable[None]]) -> None:
    async def main() -> None:
        handler = Handler()
        server = Server(path / "s", handler)
        await server.start()
        # Small, so that a client that does not read is soon behind.
        client = Client(*await asyncio.open_unix_connection(path / "s", limit=1024))
        try:
            async with asyncio.timeout(_DEADLINE_S):
                await work(handler, client)
        finally:
            client.writer.close()
            await server.close()

    asyncio.run(main())


async def watching(handler: Handler, client: Client) -> Session:
    client.ask(1, WatchRun("r1"))
    assert await client.next() == Reply(1, Accepted())
    return handler.sessions[-1]


def test_a_client_that_reads_gets_every_push_in_order(tmp_path: Path) -> None:
    async def work(handler: Handler, client: Client) -> None:
        session = await watching(handler, client)
        for seq in range(50):
            session.push("r1", frame("r1", seq))
            message = await client.next()
            assert isinstance(message, SnapshotPush)
            assert message.snapshot.seq == seq

    serve(tmp_path, work)


def test_a_slow_client_gets_the_newest_of_each_run_and_never_a_queue(tmp_path: Path) -> None:
    n_pushed = 2000

    async def work(handler: Handler, client: Client) -> None:
        session = await watching(handler, client)
        for seq in range(n_pushed):
            for run_id in ("r1", "r2"):
                session.push(run_id, frame(run_id, seq, size=60_000))
            assert session._writer.transport.get_write_buffer_size() < _ROOM
            await asyncio.sleep(0)
        seen: dict[str, list[int]] = {"r1": [], "r2": []}
        while not all(n_pushed - 1 in each for each in seen.values()):
            message = await client.next()
            assert isinstance(message, SnapshotPush)
            seen[message.snapshot.run_id].append(message.snapshot.seq)
        for seqs in seen.values():
            assert seqs == sorted(set(seqs))
            assert len(seqs) < 100
        # It has caught up, and is pushed what is new as before.
        session.push("r1", frame("r1", n_pushed))
        last = await client.next()
        assert isinstance(last, SnapshotPush)
        assert last.snapshot.seq == n_pushed

    serve(tmp_path, work)


def test_replies_reach_a_client_that_is_behind_with_its_snapshots(tmp_path: Path) -> None:
    async def work(handler: Handler, client: Client) -> None:
        session = await watching(handler, client)
        for seq in range(100):
            session.push("r1", frame("r1", seq, size=60_000))
        client.ask(2, GetStatus())
        client.ask(3, StopCluster())
        replies: list[Reply] = []
        last = -1
        while len(replies) < 2 or last < 99:
            message = await client.next()
            if isinstance(message, Reply):
                replies.append(message)
            else:
                last = message.snapshot.seq
        refused = Refused("SpecError", "not now", {"when": "later"})
        assert replies == [Reply(2, Accepted()), Reply(3, refused)]

    serve(tmp_path, work)


def test_a_client_that_goes_while_it_is_behind_leaves_nothing_behind(tmp_path: Path) -> None:
    async def work(handler: Handler, client: Client) -> None:
        session = await watching(handler, client)
        for seq in range(100):
            session.push("r1", frame("r1", seq, size=60_000))
        client.writer.transport.abort()
        await handler.gone.wait()
        assert handler.closed_sessions == [session]
        session.push("r1", frame("r1", 100))  # after its end: dropped
        slow = [task for task in asyncio.all_tasks() if task.get_name() == "slow client"]
        await asyncio.gather(*slow, return_exceptions=True)

    serve(tmp_path, work)


def test_who_asks_to_watch_and_has_gone_does_not_join(tmp_path: Path) -> None:
    joined: list[object] = []
    runs = SimpleNamespace(watch=lambda run_id, session: joined.append(session) or "now")
    service: Any = SimpleNamespace(lease=SimpleNamespace(touch=lambda _: None), runs=runs)
    requests = Requests(service, tmp_path / "log", lambda _: None)

    async def work() -> None:
        for is_closed in (True, False):
            session: Any = SimpleNamespace(is_closed=is_closed)
            await requests.handle(WatchRun("r1"), session)

    asyncio.run(work())
    assert [getattr(session, "is_closed", None) for session in joined] == [False]


def test_what_is_no_request_ends_the_connection(tmp_path: Path) -> None:
    async def work(handler: Handler, client: Client) -> None:
        client.writer.write(encode_frame(b"\x93\x01"))
        await handler.gone.wait()

    serve(tmp_path, work)


@pytest.mark.parametrize(
    "answer", [LogText("half of \udcff"), LogText("x" * (MAX_FRAME_BYTES + 1))], ids=["odd", "long"]
)
def test_an_answer_that_can_not_be_sent_is_a_refusal(tmp_path: Path, answer: LogText) -> None:
    """Else who asked waits until it gives the controller up."""

    async def work(handler: Handler, client: Client) -> None:
        handler.answer = answer
        client.ask(1, GetStatus())
        reply = await client.next()
        assert isinstance(reply, Reply)
        assert isinstance(reply.result, Refused)
        assert "the answer to GetStatus can't be sent" in reply.result.message
        client.ask(2, WatchRun("r1"))
        handler.answer = Accepted()
        assert await client.next() == Reply(2, Accepted())

    serve(tmp_path, work)
