"""What clients of a mirror are told, and what is here by then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from jupyter_ddl.backends.base import ControllerHost
from jupyter_ddl.controller.server import Session
from jupyter_ddl.errors import CapacityError, ClusterError, ProtocolError, RunNotFoundError
from jupyter_ddl.mirror import proxy as module
from jupyter_ddl.mirror.proxy import Proxy
from jupyter_ddl.mirror.remote import Remote
from jupyter_ddl.mirror.runs import Look, RunCopies, RunNews
from jupyter_ddl.protocol import requests as ask
from jupyter_ddl.protocol.events import RunSubmitted
from jupyter_ddl.protocol.folder import FolderFile
from jupyter_ddl.protocol.link import Link
from jupyter_ddl.protocol.mirroring import (
    HandedOver,
    HandOver,
    RemoveRun,
    RunMark,
    SettleRuns,
)
from jupyter_ddl.protocol.replies import (
    Accepted,
    ClusterStatus,
    DaskAccess,
    Result,
    SnapshotPush,
    SnapshotResult,
    StatusResult,
    Upward,
)
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from tests.unit.ledger.event_makers import search_spec

RUN = "r1-abcde"


class World:
    """The controller, its host and the copies of its runs; all that happens, in order."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.results: dict[type, Result | Exception] = {}
        self.trouble = self.gone = ""
        self.n_parts = 0
        """That have come."""
        self.keeps_runs = True
        self.runs = [RUN]
        self.refused: dict[str, Exception] = {}
        """What can't be done, by what would be told of it."""
        self.is_copied = asyncio.Event()
        """Copying takes until then."""
        self.is_copied.set()

    # -- the connection ----

    async def connected(self, timeout_s: float) -> Any:
        return SimpleNamespace(request=self.ask)

    async def ask(self, body: ask.Body) -> Result:
        self.told.append(type(body).__name__)
        result = self.results.get(type(body), Accepted())
        if isinstance(result, Exception):
            raise result
        return result

    # -- the copies ----

    async def bring(self, run_id: str) -> None:
        await self.is_copied.wait()
        self._tell(f"copied {run_id}")

    async def bring_last(self, run_id: str) -> None:
        await self.is_copied.wait()
        self._tell(f"copied all of {run_id}")

    async def fetch(self, run_id: str, path: str) -> None:
        self.told.append(f"fetched {path}")

    async def look(self) -> Look:
        return Look(tuple(RunNews(RunMark(each, 16, True), True) for each in self.runs), ())

    def _tell(self, text: str) -> None:
        if text in self.refused:
            raise self.refused[text]
        self.told.append(text)

    # -- the host ----

    async def end(self) -> None:
        self._tell("host ended")

    async def reachable(self, address: str) -> str:
        return f"{address} by a forwarded port"


class Browser:
    """A session that notes what it is pushed."""

    is_closed = False

    def __init__(self) -> None:
        self.seqs: list[int] = []

    def push(self, run_id: str, frame: bytes) -> None:
        pushed = msgspec.msgpack.decode(frame[4:], type=Upward)
        assert isinstance(pushed, SnapshotPush)
        self.seqs.append(pushed.snapshot.seq)


Story = Callable[[Proxy, World, Any], Coroutine[Any, Any, None]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Story], list[str]]:
    """Play a story with a browser; returns what has happened."""

    async def nothing(*_: object) -> None:
        return

    monkeypatch.setattr(module, "bring_up", nothing)
    monkeypatch.setattr(module, "digests_of", lambda _: ())
    monkeypatch.setattr(module, "_last_snapshot", lambda _: None)

    async def played(story: Story, world: World) -> None:
        proxy = Proxy(
            "there",
            cast(ControllerHost, world),
            cast(Remote, world),
            cast(RunCopies, world),
            lambda why: world.told.append(f"mirror ends: {why}"),
        )
        try:
            async with asyncio.timeout(30):
                await story(proxy, world, Browser())
        finally:
            await proxy.close()

    def begin(story: Story) -> list[str]:
        async def whole() -> list[str]:
            world = World()
            await played(story, world)
            return world.told

        return asyncio.run(whole())

    return begin


def a_status() -> ClusterStatus:
    return ClusterStatus(
        "there", "kube", "ready", 7, "tls://here", 0.0, (), 2, 1, None, (), 60.0, 60.0, 60.0
    )


def a_snapshot(seq: int, state: Any = "running") -> EncodedSnapshot:
    return EncodedSnapshot(RUN, seq, state, b"{}")


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - what changes it is a fake
        await asyncio.sleep(0)


def test_a_run_is_here_when_it_is_accepted(play: Callable[[Story], list[str]]) -> None:
    """Whoever has submitted it reads its record next."""

    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        spec = msgspec.structs.replace(search_spec(), run_id=RUN)
        await proxy.handle(ask.SubmitRun(spec), browser)
        assert world.told == ["SubmitRun", f"copied {RUN}"]

    play(story)


def test_the_last_snapshot_waits_for_the_files(play: Callable[[Story], list[str]]) -> None:
    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        world.results[ask.WatchRun] = SnapshotResult(a_snapshot(1))
        await proxy.handle(ask.WatchRun(RUN), browser)
        proxy.take(a_snapshot(2))
        assert browser.seqs == [2]  # others do not
        world.is_copied.clear()
        proxy.take(a_snapshot(3, "complete"))
        proxy.take(a_snapshot(3, "complete"))  # a second connection tells it again
        for _ in range(10):
            await asyncio.sleep(0)
        assert browser.seqs == [2]
        world.is_copied.set()
        await until(lambda: len(browser.seqs) == 2)
        assert browser.seqs == [2, 3]

    play(story)


def test_who_watches_a_run_that_is_over_finds_its_end(play: Callable[[Story], list[str]]) -> None:
    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        world.results[ask.WatchRun] = RunNotFoundError("not active")
        with pytest.raises(RunNotFoundError):
            await proxy.handle(ask.WatchRun(RUN), browser)
        assert world.told[:2] == ["WatchRun", f"copied {RUN}"]
        proxy.take(a_snapshot(9))
        assert browser.seqs == []  # it does not watch any more

    play(story)


def test_a_new_connection_is_told_what_is_watched(play: Callable[[Story], list[str]]) -> None:
    """The run may not be resumed at once by a controller that has just begun."""

    class NewLink:
        closed = asyncio.Event()
        answers: list[Result | Exception] = [
            RunNotFoundError("not yet"),
            SnapshotResult(a_snapshot(7)),
        ]

        async def request(self, body: ask.Body) -> Result:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        world.results[ask.WatchRun] = SnapshotResult(a_snapshot(1))
        await proxy.handle(ask.WatchRun(RUN), browser)
        link = NewLink()
        await proxy.connected(cast(Link, link))
        await until(lambda: bool(browser.seqs))
        assert browser.seqs == [7]
        link.on_every(a_snapshot(8))  # type: ignore[attr-defined]
        assert browser.seqs == [7, 8]

    play(story)


def test_who_watches_a_run_that_ended_while_nobody_was_connected_is_told(
    play: Callable[[Story], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller has begun anew since, and knows nothing of runs that were over by then."""

    class NewLink:
        closed = asyncio.Event()

        async def request(self, body: ask.Body) -> Result:
            raise RunNotFoundError("not active")

    monkeypatch.setattr(module, "_last_snapshot", lambda _: a_snapshot(9, "complete"))

    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        world.results[ask.WatchRun] = SnapshotResult(a_snapshot(1))
        await proxy.handle(ask.WatchRun(RUN), browser)
        await proxy.connected(cast(Link, NewLink()))
        await until(lambda: bool(browser.seqs))
        assert browser.seqs == [9]
        assert world.told == ["WatchRun", f"copied {RUN}"]

    play(story)


def test_nobody_is_sent_what_nobody_watches(play: Callable[[Story], list[str]]) -> None:
    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        world.results[ask.WatchRun] = SnapshotResult(a_snapshot(1))
        other = cast(Session, Browser())
        await proxy.handle(ask.WatchRun(RUN), browser)
        await proxy.handle(ask.WatchRun(RUN), other)
        proxy.closed(other)
        await asyncio.sleep(0)
        assert "UnwatchRun" not in world.told
        proxy.closed(browser)
        await until(lambda: "UnwatchRun" in world.told)

    play(story)


def test_who_watches_in_the_moment_when_the_last_one_goes_is_sent_what_is_new(
    play: Callable[[Story], list[str]],
) -> None:
    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        world.results[ask.WatchRun] = SnapshotResult(a_snapshot(1))
        await proxy.handle(ask.WatchRun(RUN), browser)
        proxy.closed(browser)
        await proxy.handle(ask.WatchRun(RUN), cast(Session, Browser()))
        for _ in range(10):
            await asyncio.sleep(0)
        assert world.told == ["WatchRun", "WatchRun"]

    play(story)


def test_a_run_that_is_removed_is_copied_to_its_end_before(
    play: Callable[[Story], list[str]],
) -> None:
    """Else its copy would count as lost there, and be given back."""

    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        assert await proxy.handle(RemoveRun(RUN), browser) == Accepted()

    assert play(story) == [f"copied {RUN}", "RemoveRun"]


def test_event_files_are_written_beside_the_copy(
    play: Callable[[Story], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the controller are where nobody looks, if it writes any."""

    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        monkeypatch.setattr(
            module.EventFileWriters,
            "start",
            lambda _, spec: world.told.append(f"event files of {spec.run_id}"),
        )
        spec = msgspec.structs.replace(search_spec(), run_id=RUN)
        record = RunSubmitted(spec, 1000.0)
        monkeypatch.setattr(module, "ledger_path", lambda run_id: Path(run_id))
        monkeypatch.setattr(module, "read_submitted", {Path(RUN): record}.__getitem__)
        await proxy.handle(ask.SubmitRun(spec), browser)

    assert play(story)[-2:] == [f"copied {RUN}", f"event files of {RUN}"]


def test_a_stop_copies_what_there_is_before_all_goes(play: Callable[[Story], list[str]]) -> None:
    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        assert await proxy.handle(ask.StopCluster(), browser) == Accepted()
        await until(lambda: any("mirror ends" in each for each in world.told))

    told = play(story)
    assert told == [
        SettleRuns.__name__,
        f"copied {RUN}",
        "StopCluster",
        "host ended",
        "mirror ends: a client asked for it",
    ]


def test_runs_that_would_be_lost_are_copied_as_long_as_something_comes(
    play: Callable[[Story], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long that takes; and whoever asks is told so."""
    monkeypatch.setattr(module, "_END_S", 0.01)

    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        world.keeps_runs = False
        world.is_copied.clear()
        world.results[ask.GetStatus] = StatusResult(a_status())
        await proxy.handle(ask.StopCluster(), browser)
        for _ in range(30):
            world.n_parts += 1
            await asyncio.sleep(0.002)
        result = await proxy.handle(ask.GetStatus(), browser)
        assert isinstance(result, StatusResult)
        assert result.status.state == "stopping"
        assert result.status.trouble.endswith("before it ends, 30 MiB so far")
        world.is_copied.set()
        await until(lambda: any("mirror ends" in each for each in world.told))

    told = [each for each in play(story) if each != "GetStatus"]
    assert told[1:3] == [f"copied all of {RUN}", "StopCluster"]


@pytest.mark.parametrize("keeps_runs", [False, True])
def test_a_copy_that_stands_still_does_not_keep_a_cluster(
    play: Callable[[Story], list[str]], monkeypatch: pytest.MonkeyPatch, *, keeps_runs: bool
) -> None:
    monkeypatch.setattr(module, "_END_S", 0.01)

    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        world.keeps_runs = keeps_runs
        world.is_copied.clear()
        await proxy.handle(ask.StopCluster(), browser)
        await until(lambda: any("mirror ends" in each for each in world.told))

    assert "host ended" in play(story)


@pytest.mark.parametrize("error", [CapacityError("the disk is full"), OSError(5, "I/O error")])
def test_a_stop_ends_the_cluster_and_copies_what_can_be(
    play: Callable[[Story], list[str]], error: Exception
) -> None:
    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        world.runs = [RUN, "r2"]
        world.refused[f"copied {RUN}"] = error
        await proxy.handle(ask.StopCluster(), browser)
        await until(lambda: any("mirror ends" in each for each in world.told))

    told = play(story)
    assert "host ended" in told
    assert ("copied r2" in told) == isinstance(error, CapacityError)


@pytest.mark.parametrize("error", [ClusterError("it does not answer"), OSError(5, "I/O error")])
def test_a_cluster_that_could_not_be_ended_is_not_said_to_be(
    play: Callable[[Story], list[str]], error: Exception
) -> None:
    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        world.refused["host ended"] = error
        for _ in range(2):
            n_asked = world.told.count("StopCluster")
            await proxy.handle(ask.StopCluster(), browser)
            await until(lambda n=n_asked: world.told.count("StopCluster") > n)  # type: ignore[misc]
            await until(lambda: not proxy.is_ending)
        world.refused.clear()
        assert not any("mirror ends" in each for each in world.told)
        await proxy.handle(ask.StopCluster(), browser)
        await until(lambda: any("mirror ends" in each for each in world.told))

    play(story)


def test_a_file_from_a_worker_is_here_when_it_is_said_to_be(
    play: Callable[[Story], list[str]],
) -> None:
    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        file = FolderFile("notes.txt", 5, 1.0, worker="w 1")
        await proxy.handle(ask.FetchFile(RUN, file), browser)
        assert world.told == ["FetchFile", "fetched files/w_1/notes.txt"]

    play(story)


def test_two_that_hand_over_the_same_are_told_the_same(
    play: Callable[[Story], list[str]],
) -> None:
    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        digests = ("a" * 64,)
        answers = (proxy.handle(HandOver(digests), browser) for _ in range(2))
        assert await asyncio.gather(*answers) == [HandedOver()] * 2

    play(story)


def test_the_status_of_one_that_is_out_of_reach(play: Callable[[Story], list[str]]) -> None:
    """A panel shows what was there, and why it may not be so any more; nobody waits."""

    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        status = a_status()
        world.results[ask.GetStatus] = StatusResult(status)
        assert await proxy.handle(ask.GetStatus(), browser) == StatusResult(status)
        world.trouble = "its controller is out of reach since 3 s"
        result = await proxy.handle(ask.GetStatus(), browser)
        assert isinstance(result, StatusResult)
        assert (result.status.state, result.status.trouble) == ("degraded", world.trouble)
        assert world.told == ["GetStatus"]

    play(story)


def test_plain_dask_code_is_given_a_way_to_the_scheduler(
    play: Callable[[Story], list[str]],
) -> None:
    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        world.results[ask.GetDask] = DaskAccess("tls://10.0.0.1:8786", "ca", "cert", "key")
        result = await proxy.handle(ask.GetDask(), browser)
        assert isinstance(result, DaskAccess)
        assert result.address == "tls://10.0.0.1:8786 by a forwarded port"

    play(story)


def test_another_version_is_refused_here(play: Callable[[Story], list[str]]) -> None:
    async def story(proxy: Proxy, world: World, browser: Any) -> None:
        with pytest.raises(ProtocolError, match="speaks protocol 99"):
            await proxy.handle(ask.Hello(99), browser)
        assert world.told == []

    play(story)
