"""Roads to a controller that are slower than its disk: few parts are on their way at a time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.backends.base import ControllerHost, OnPhase
from jupyter_ddl.controller.server import Server, Session
from jupyter_ddl.errors import ControllerError
from jupyter_ddl.mirror import remote as module
from jupyter_ddl.mirror.remote import Remote
from jupyter_ddl.mirror.runs import RunCopies
from jupyter_ddl.mirror.window import Window
from jupyter_ddl.protocol import requests as ask
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.mirroring import PART_BYTES, ReadBlob
from jupyter_ddl.protocol.replies import Accepted, Result
from tests.unit.mirror.elsewhere import CLUSTER, Elsewhere, contents

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_BYTES, _PAUSE_S = 1 << 16, 0.004


class Road(ControllerHost):
    """Leads to a controller, at 16 MB/s."""

    def __init__(self, root: Path, there: Elsewhere) -> None:
        self._there = there
        self._place, self._controllers = root / "road", root / "controller"
        self._pumps: list[asyncio.Task[None]] = []
        self.n_connections = 0

    async def open(self) -> None:
        self._server = Server(self._controllers, self)
        await self._server.start()
        self._road = await asyncio.start_unix_server(self._lead, self._place)

    async def shut(self) -> None:
        self._road.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        await self._server.close()

    async def _lead(self, *near: Any) -> None:
        self.n_connections += 1
        far = await asyncio.open_unix_connection(self._controllers)
        for reader, writer in ((near[0], far[1]), (far[0], near[1])):
            self._pumps.append(asyncio.create_task(self._pump(reader, writer)))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                while data := await reader.read(_BYTES):
                    writer.write(data)
                    await writer.drain()
                    await asyncio.sleep(_PAUSE_S)
        finally:
            writer.close()

    # -- the controller --

    async def handle(self, body: ask.Body, session: Session) -> Result:
        if isinstance(body, ask.Hello):
            return Accepted()
        return await self._there.stored.answer(body, session)  # type: ignore[arg-type]

    def closed(self, session: Session) -> None:
        self._there.stored.closed(session)

    # -- the host --

    async def start(self, on_phase: OnPhase) -> None: ...

    async def join(self) -> ClusterSpec | None:
        return None

    async def connect(self) -> Streams:
        return await asyncio.open_unix_connection(self._place)

    async def missing(self) -> str:
        return ""

    async def end(self) -> None: ...

    async def close(self) -> None: ...


async def _nothing(_: Any) -> None:
    return


def test_many_large_files_break_no_connection(tmp_path: Path) -> None:
    """Asked for all at once, their parts fill the buffer of a controller, which cuts off then."""

    async def main() -> None:
        there = Elsewhere(tmp_path)
        there.begin()
        for number in range(5):
            there.write(f"checkpoints/{number}", bytes([number]) * (4 * PART_BYTES))
        here = tmp_path / "here"
        here.mkdir()
        road = Road(tmp_path, there)
        await road.open()
        remote = Remote(road, CLUSTER, _nothing)
        keeping = asyncio.create_task(remote.keep())
        copies = RunCopies(remote.ask, CLUSTER, runs=here, checkpoint_bytes=1 << 30)
        try:
            async with asyncio.timeout(120):
                await copies.bring("r1")
        finally:
            copies.close()
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await road.shut()
        assert contents(here / "r1") == contents(there.runs / "r1")
        assert road.n_connections == 1

    asyncio.run(main())


def test_a_beat_is_waited_for_behind_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part may take longer than the silence by which a lost network is noticed."""
    deadlines: list[float | None] = []

    class Link:
        closed = asyncio.Event()

        async def request(self, body: ask.Body, timeout_s: float | None) -> Result:
            if isinstance(body, ask.Hello):
                deadlines.append(timeout_s)
                self.closed.set()
            else:
                await self.closed.wait()
            return Accepted()

    async def main() -> None:
        monkeypatch.setattr(module, "_BEAT_S", 0.0)
        remote, link = Remote(ControllerHost(), "far", _nothing), Link()  # type: ignore[abstract]
        remote._link = link  # type: ignore[assignment]
        remote._decided.set()
        asking = asyncio.create_task(remote.ask(ReadBlob("0" * 64)))
        await asyncio.sleep(0)
        await remote._listen(link)  # type: ignore[arg-type]
        await asking
        link.closed.clear()
        await remote._listen(link)  # type: ignore[arg-type]

    monkeypatch.setattr(ControllerHost, "__abstractmethods__", frozenset())
    asyncio.run(main())
    assert deadlines == [module._ASK_S, module._SILENT_S]


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now_s)


async def _one(window: Window, clock: Clock, took_s: float) -> None:
    async with window.place():
        clock.now_s += took_s


def test_the_window_follows_how_long_answers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        clock, window = Clock(monkeypatch), Window()
        for _ in range(20):
            await _one(window, clock, 0.1)
        assert window._most == 7
        await _one(window, clock, 1.0)
        assert window._most == 7
        await _one(window, clock, 3.0)
        assert window._most == 3
        with pytest.raises(ControllerError):
            async with window.place():
                raise ControllerError("the connection broke")
        assert window._most == 1
        for _ in range(3):
            await _one(window, clock, 3.0)
        assert window._most == 1

    asyncio.run(main())


def test_who_comes_first_goes_first_and_who_is_cancelled_keeps_no_place() -> None:
    async def main() -> None:
        window, told, may_go = Window(), [], asyncio.Event()

        async def part(number: int) -> None:
            async with window.place():
                told.append(number)
                await may_go.wait()

        tasks = [asyncio.create_task(part(number)) for number in range(6)]
        await asyncio.sleep(0)
        assert told == [0]
        tasks[2].cancel()  # it waits
        may_go.set()
        tasks[0].add_done_callback(lambda _: tasks[1].cancel())  # it was let in just now
        async with asyncio.timeout(30):
            await asyncio.gather(*tasks, return_exceptions=True)
        assert told == [0, 3, 4, 5] or told == [0, 1, 3, 4, 5]
        assert not window.is_used

    asyncio.run(main())
