"""A connection that breaks at any moment: what is asked again, and what is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_ddl.backends.base import ControllerHost, OnPhase
from jupyter_ddl.controller.server import Server, Session
from jupyter_ddl.errors import ControllerError, JupyterDDLError, ProtocolError, SpecError
from jupyter_ddl.mirror import remote as module
from jupyter_ddl.mirror.remote import Remote
from jupyter_ddl.protocol import requests as ask
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.mirroring import ListRuns, RunMark, RunsResult
from jupyter_ddl.protocol.replies import Accepted, Result
from tests.unit.ledger.event_makers import search_spec


class Controller:
    """Answers requests, and breaks a connection in the middle of one."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.runs: list[str] = []
        self.breaks_at: dict[str, int] = {}
        """How many connections break at a request, before or after it was carried out."""
        self.does_before_it_breaks = False
        self.server: Server | None = None
        self.refuses = ""
        """Whom it is greeted by, as another version does."""
        self.speaks = asyncio.Event()
        self.speaks.set()

    async def handle(self, body: ask.Body, session: Session) -> Result:
        await self.speaks.wait()
        kind = type(body).__name__
        self.asked.append(kind)
        breaks = self.breaks_at.get(kind, 0) > 0
        if not breaks or self.does_before_it_breaks:
            result = self._result(body)
        if breaks:
            self.breaks_at[kind] -= 1
            session.close()
            return Accepted()
        return result

    def _result(self, body: ask.Body) -> Result:
        match body:
            case ask.Hello() if self.refuses:
                raise ProtocolError(self.refuses)
            case ask.SubmitRun(spec=spec):
                if spec.run_id in self.runs:
                    raise SpecError(f"run {spec.run_id} exists already")
                self.runs.append(spec.run_id)
                return Accepted(run_id=spec.run_id)
            case ListRuns():
                return RunsResult(tuple(RunMark(run_id, 16, True) for run_id in self.runs), "home")
        return Accepted()

    def closed(self, session: Session) -> None:
        return


class Host(ControllerHost):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_there = True
        self.gone = ""

    async def start(self, on_phase: OnPhase) -> None: ...

    async def join(self) -> ClusterSpec | None:
        return None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if not self.is_there:
            raise ControllerError("the road is closed")
        return await asyncio.open_unix_connection(self.path)

    async def missing(self) -> str:
        return self.gone

    async def end(self) -> None: ...

    async def close(self) -> None: ...


Story = Callable[[Remote, Controller, Host], Coroutine[Any, Any, None]]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Story], None]:
    """Play a story with a connected remote."""
    for name in ("_FIRST_PAUSE_S", "_LONGEST_PAUSE_S", "_LOOK_S"):
        monkeypatch.setattr(module, name, 0.0)

    async def played(story: Story) -> None:
        controller, host = Controller(), Host(tmp_path / "socket")
        server = controller.server = Server(host.path, controller)
        await server.start()

        async def connected(_: Any) -> None:
            return

        remote = Remote(host, "there", connected)
        keeping = asyncio.create_task(remote.keep())
        try:
            await remote.connected(30.0)
            await story(remote, controller, host)
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await server.close()

    return lambda story: asyncio.run(played(story))


def test_a_question_is_asked_again(play: Callable[[Story], None]) -> None:
    async def story(remote: Remote, controller: Controller, host: Host) -> None:
        controller.breaks_at["GetLog"] = 3
        assert await remote.ask(ask.GetLog()) == Accepted()
        assert controller.asked.count("GetLog") == 4

    play(story)


@pytest.mark.parametrize("is_done", [True, False])
def test_a_run_is_submitted_once(play: Callable[[Story], None], *, is_done: bool) -> None:
    """Whether the first connection broke before the controller heard of it, or after."""

    async def story(remote: Remote, controller: Controller, host: Host) -> None:
        controller.breaks_at["SubmitRun"] = 1
        controller.does_before_it_breaks = is_done
        spec = msgspec.structs.replace(search_spec(), run_id="r1-abcde")
        assert await remote.ask(ask.SubmitRun(spec)) == Accepted(run_id="r1-abcde")
        assert controller.runs == ["r1-abcde"]
        assert controller.asked.count("SubmitRun") == (1 if is_done else 2)

    play(story)


def test_a_run_whose_submission_is_still_being_answered_is_not_refused(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke with the connection was the answer: it is carried out a moment later."""

    async def story(remote: Remote, controller: Controller, host: Host) -> None:
        spec = msgspec.structs.replace(search_spec(), run_id="r1-abcde")
        controller.breaks_at["SubmitRun"] = 1
        result = controller._result

        def late(body: ask.Body) -> Result:
            found = result(body)
            if isinstance(body, ListRuns) and not controller.runs:
                controller.runs.append(spec.run_id)
            return found

        monkeypatch.setattr(controller, "_result", late)
        assert await remote.ask(ask.SubmitRun(spec)) == Accepted(run_id="r1-abcde")
        assert controller.runs == ["r1-abcde"]

    play(story)


def test_an_interrupt_is_not_repeated(play: Callable[[Story], None]) -> None:
    """It might reach the next cell."""

    async def story(remote: Remote, controller: Controller, host: Host) -> None:
        controller.breaks_at["InterruptCell"] = 1
        with pytest.raises(ControllerError, match="whether it was done is not known"):
            await remote.ask(ask.InterruptCell("g1"))
        assert controller.asked.count("InterruptCell") == 1

    play(story)


def test_what_hinders_is_told(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AWAY_S", 0.2)

    async def story(remote: Remote, controller: Controller, host: Host) -> None:
        assert remote.trouble == ""
        host.is_there = False
        controller.breaks_at["GetLog"] = 1
        told = r"out of reach since .*the road is closed.*goes on"
        with pytest.raises(ControllerError, match=told):
            await remote.ask(ask.GetLog())
        host.is_there = True
        await remote.connected(30.0)
        assert remote.trouble == ""

    play(story)


def test_silence_is_a_broken_connection(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A laptop that was carried to another network keeps a connection on which nothing comes."""
    monkeypatch.setattr(module, "_BEAT_S", 0.01)
    monkeypatch.setattr(module, "_SILENT_S", 0.1)

    async def story(remote: Remote, controller: Controller, host: Host) -> None:
        link = await remote.connected(30.0)
        controller.speaks.clear()
        async with asyncio.timeout(30):
            await link.closed.wait()
        controller.speaks.set()
        assert await remote.connected(30.0) is not link

    play(story)


def test_a_question_before_a_beat_waits_for_the_next_connection(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears of the break first, and must not ask on the connection that is over for ever."""
    monkeypatch.setattr(module, "_BEAT_S", 0.01)
    n_asked = 0

    async def story(remote: Remote, controller: Controller, host: Host) -> None:
        link = await remote.connected(30.0)
        request = link.request

        async def counted(*args: Any) -> Result:
            nonlocal n_asked
            n_asked += 1
            assert n_asked < 10
            return await request(*args)

        monkeypatch.setattr(link, "request", counted)
        controller.speaks.clear()
        asking = asyncio.create_task(remote.ask(ask.GetLog()))
        while n_asked < 2:  # noqa: ASYNC110 - the beat comes behind it
            await asyncio.sleep(0.001)
        assert controller.server is not None
        for session in tuple(controller.server._sessions):
            session.close()
        async with asyncio.timeout(30):
            await link.closed.wait()
        controller.speaks.set()
        assert await asking == Accepted()

    play(story)


def test_one_of_another_version_is_told_of_and_asked_again(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that was made anew may have another image for a while; nothing ends by it."""
    monkeypatch.setattr(module, "_AWAY_S", 0.2)

    async def story(remote: Remote, controller: Controller, host: Host) -> None:
        controller.refuses = "this client speaks protocol 1, the controller 2"
        controller.breaks_at["GetLog"] = 1
        with pytest.raises(ControllerError, match=r"out of reach .*speaks protocol 1, the contr"):
            await remote.ask(ask.GetLog())
        controller.refuses = ""
        await remote.connected(30.0)

    play(story)


def test_a_broken_connection_is_no_reason_to_start_the_cluster_again(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_BEAT_S", 0.01)

    async def story(remote: Remote, controller: Controller, host: Host) -> None:
        link = await remote.connected(30.0)
        told: list[str] = []

        async def connect() -> Any:
            told.append(remote.trouble)
            raise ControllerError("the road is closed")

        monkeypatch.setattr(host, "connect", connect)
        controller.breaks_at["Hello"] = 1
        async with asyncio.timeout(30):
            await link.closed.wait()
            while not told:  # noqa: ASYNC110 - what changes it is a fake
                await asyncio.sleep(0.001)
        assert "(the connection broke)" in told[0]

    play(story)


def test_a_refusal_is_passed_on(play: Callable[[Story], None]) -> None:
    async def story(remote: Remote, controller: Controller, host: Host) -> None:
        spec = msgspec.structs.replace(search_spec(), run_id="r1-abcde")
        await remote.ask(ask.SubmitRun(spec))
        with pytest.raises(JupyterDDLError, match="exists already"):
            await remote.ask(ask.SubmitRun(spec))

    play(story)


def test_a_cluster_that_is_gone_is_no_more_looked_for(play: Callable[[Story], None]) -> None:
    async def story(remote: Remote, controller: Controller, host: Host) -> None:
        host.gone, host.is_there = "it was deleted", False
        controller.breaks_at["GetLog"] = 1
        with pytest.raises(ControllerError, match="it was deleted"):
            await remote.ask(ask.GetLog())
        assert remote.gone == remote.trouble == "it was deleted"

    play(story)
