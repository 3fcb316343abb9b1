"""The relay without a process: a hub, browsers that are lists, and a pretended controller."""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from jupyter_ddl.errors import ClusterError, RunNotFoundError
from jupyter_ddl.protocol.link import OnSnapshot
from jupyter_ddl.protocol.replies import (
    Accepted,
    ClusterStatus,
    GroupStatus,
    Result,
    SnapshotResult,
    StatusResult,
    TelemetryResult,
)
from jupyter_ddl.protocol.requests import Body, GetStatus, GetTelemetry, WatchRun
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.protocol.telemetry import EncodedTelemetry
from jupyter_ddl.protocol.view_messages import ClusterElsewhere, RunList
from jupyter_ddl.server.hub import Hub
from jupyter_ddl.server.links import Links
from jupyter_ddl.server.requests import _own_lines
from jupyter_ddl.store.connection import ConnectionInfo
from jupyter_ddl.store.paths import ledger_path, run_dir
from jupyter_ddl.store.processes import ProcessIdentity
from tests.unit.server.test_run_listing import (
    ENDED,
    GONE,
    STARTED,
    go_on,
    hold,
    record,
    trial,
)

_DEADLINE_S = 60.0


def drawn(seq: int, state: Any = "running") -> EncodedSnapshot:
    """With spaces that no encoder of ours writes."""
    text = f'{{ "seq": {seq},  "run_id": "r1", "state": "{state}" }}'
    return EncodedSnapshot("r1", seq, state, text.encode())


class Controller(Links):
    """All that a hub asks of controllers, for one of cluster ``local``; also its only link."""

    def __init__(self) -> None:
        super().__init__()
        self.info = ConnectionInfo("local", "local", "/none", ProcessIdentity(1, 0, "b", "n"), "0")
        self.is_there = True
        self.trouble: Exception | None = None
        """What a look at the clusters raises."""
        self.closed = asyncio.Event()
        self.active: tuple[str, ...] = ("r1",)
        self.groups: tuple[GroupStatus, ...] = ()
        self.now = drawn(10)
        self.watched: list[tuple[OnSnapshot, Callable[[], None]]] = []
        self.asked: list[Body] = []

    # -- as the hub's links --------------------------------------------------------------------

    async def running(self) -> list[ConnectionInfo]:
        if self.trouble is not None:
            raise self.trouble
        return [self.info] if self.is_there else []

    async def get(self, name: str) -> Any:
        if not self.is_there:
            raise ClusterError(f"no cluster named {name!r} is running")
        return self

    async def ask(self, name: str, body: Body, timeout_s: float = 1.0) -> Result:
        return await (await self.get(name)).request(body)

    # -- as the link ---------------------------------------------------------------------------

    def watch(self, run_id: str, on_snapshot: OnSnapshot, on_closed: Callable[[], None]) -> None:
        self.watched.append((on_snapshot, on_closed))

    def unwatch(self, run_id: str, on_snapshot: OnSnapshot, on_closed: Callable[[], None]) -> None:
        self.watched.remove((on_snapshot, on_closed))

    async def request(self, body: Body) -> Result:
        self.asked.append(body)
        match body:
            case WatchRun() if self.groups:
                raise RunNotFoundError(f"run {body.run_id} is not active")
            case WatchRun():
                return SnapshotResult(self.now)
            case GetStatus():
                status = ClusterStatus(
                    "local", "local", "ready", 1, "", 0.0, (), 1, 1, None, self.active, 1.0, None, 1
                )
                return StatusResult(msgspec.structs.replace(status, groups=self.groups))
            case GetTelemetry():
                return TelemetryResult(EncodedTelemetry("local", "", b"{}"))
        return Accepted()

    # -- what it does --------------------------------------------------------------------------

    def push(self, snapshot: EncodedSnapshot) -> None:
        self.now = snapshot
        for on_snapshot, _ in self.watched:
            on_snapshot(snapshot)

    def die(self) -> None:
        self.is_there = False
        for _, on_closed in self.watched:
            on_closed()

    @property
    def n_watches(self) -> int:
        return sum(isinstance(body, WatchRun) for body in self.asked)

    @property
    def n_statuses(self) -> int:
        return sum(isinstance(body, GetStatus) for body in self.asked)


class Tab:
    """A browser."""

    def __init__(self, hub: Hub) -> None:
        self.texts: list[bytes] = []
        self.closed: list[tuple[int, str]] = []
        self.trouble: Exception | None = None
        """What sending to it raises."""
        self.connection = hub.join(self._send, self._close)

    def _close(self, code: int, reason: str) -> None:
        self.closed.append((code, reason))

    async def _send(self, message: bytes) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.texts.append(message)

    def say(self, **message: Any) -> None:
        self.connection.receive(json.dumps(message))

    def seqs(self) -> list[int]:
        messages = [json.loads(text) for text in self.texts]
        return [each["snapshot"]["seq"] for each in messages if each["kind"] == "run"]

    def states(self) -> list[str]:
        return [each["state"] for each in self.snapshots()]

    def snapshots(self) -> list[dict[str, Any]]:
        messages = [json.loads(text) for text in self.texts]
        return [each["snapshot"] for each in messages if each["kind"] == "run"]

    def troubles(self) -> list[str]:
        messages = [json.loads(text) for text in self.texts]
        return [each["text"] for each in messages if each["kind"] == "record"]

    def newest(self, kind: str) -> dict[str, Any]:
        messages = [json.loads(text) for text in self.texts]
        return next((each for each in reversed(messages) if each["kind"] == kind), {})


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(_DEADLINE_S):
        while not is_so():  # noqa: ASYNC110 - nothing tells a test that a browser was sent something
            await asyncio.sleep(0.005)


def relay(work: Callable[[Hub, Controller], Awaitable[None]]) -> None:
    async def main() -> None:
        controller = Controller()
        hub = Hub(controller)
        try:
            await work(hub, controller)
        finally:
            await hub.close()
        assert controller.watched == []
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


@pytest.fixture(autouse=True)
def run(home: Any) -> None:
    record("r1", STARTED, *trial(0, 0.5))


def test_all_browsers_get_what_the_controller_has_encoded_byte_for_byte() -> None:
    async def work(hub: Hub, controller: Controller) -> None:
        tabs = [Tab(hub) for _ in range(3)]
        for number, tab in enumerate(tabs):
            tab.say(kind="watch", id=number, run_id="r1")
        await until(lambda: all(10 in tab.seqs() for tab in tabs))
        assert controller.n_watches == 1
        for seq in range(11, 15):
            controller.push(drawn(seq))
            await until(lambda seq=seq: all(tab.seqs()[-1] == seq for tab in tabs))  # type: ignore[misc]
        for tab in tabs:
            assert tab.seqs() == sorted(set(tab.seqs()))
            assert any(b'"snapshot":' + drawn(14).json + b"}" in text for text in tab.texts)

    relay(work)


def test_a_browser_that_can_be_told_nothing_is_closed_and_connects_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(hub: Hub, controller: Controller) -> None:
        tab, other = Tab(hub), Tab(hub)
        for each in (tab, other):
            each.say(kind="watch", id=1, run_id="r1")
        await until(lambda: 10 in tab.seqs() and 10 in other.seqs())
        tab.trouble = RuntimeError("no thread to write with")
        controller.push(drawn(11))
        await until(lambda: tab.closed)
        why = "the Jupyter server failed to tell news; its log has more"
        assert tab.closed == [(1011, why)]
        assert "no thread to write with" in caplog.text
        await hub.leave(tab.connection)  # as the websocket does when it is closed
        again = Tab(hub)
        again.say(kind="watch", id=1, run_id="r1")
        await until(lambda: again.seqs() == [11] and 11 in other.seqs())
        assert other.closed == []

    relay(work)


def test_clusters_elsewhere_are_told_until_they_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_ddl.server.feeds._CLUSTERS_INTERVAL_S", 0.01)
    found = [ClusterElsewhere(name, "rack 4", "connecting") for name in ("far", "local")]

    async def work(hub: Hub, controller: Controller) -> None:
        hub._elsewhere._known = {each.name: each for each in found}
        controller.is_there = False
        tab = Tab(hub)
        await until(lambda: len(tab.newest("clusters").get("elsewhere", ())) == 2)
        controller.is_there = True
        await until(lambda: len(tab.newest("clusters")["elsewhere"]) == 1)
        told = tab.newest("clusters")
        assert told["elsewhere"] == [msgspec.to_builtins(found[0])]
        assert [each["name"] for each in told["clusters"]] == ["local"]

    monkeypatch.setattr("jupyter_ddl.server.elsewhere.ElsewhereWatch.run", _rest)
    relay(work)


async def _rest(_: Any) -> None:
    await asyncio.Event().wait()


def test_what_the_server_can_t_look_at_is_told_and_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it is: descriptors that are used up, or what nobody has thought of."""
    monkeypatch.setattr("jupyter_ddl.server.hub._AGAIN_S", 0.01)
    monkeypatch.setattr("jupyter_ddl.server.feeds._CLUSTERS_INTERVAL_S", 0.01)

    async def work(hub: Hub, controller: Controller) -> None:
        tab = Tab(hub)
        await until(lambda: tab.newest("clusters").get("clusters"))
        controller.trouble = OSError(errno.EMFILE, "Too many open files")
        hub._poll_soon()
        await until(lambda: tab.newest("clusters")["trouble"])
        told = tab.newest("clusters")
        assert told["trouble"].startswith("clusters can't be listed now: Too many open files (a")
        assert [each["name"] for each in told["clusters"]] == ["local"]
        controller.trouble = ZeroDivisionError("nobody has thought of it")
        await until(lambda: "nobody has thought of it" in caplog.text)
        controller.trouble = None
        await until(lambda: not tab.newest("clusters")["trouble"])

    relay(work)


def test_who_comes_later_sees_the_newest_and_the_controller_is_not_asked_again() -> None:
    async def work(hub: Hub, controller: Controller) -> None:
        first, second = Tab(hub), Tab(hub)
        first.say(kind="watch", id=1, run_id="r1")
        await until(lambda: 10 in first.seqs())
        controller.push(drawn(11))
        second.say(kind="watch", id=1, run_id="r1")
        await until(lambda: second.seqs() == [11])
        assert controller.n_watches == 1

    relay(work)


def test_a_run_that_nobody_watches_any_more_is_not_pushed_to_the_server() -> None:
    async def work(hub: Hub, controller: Controller) -> None:
        first, second = Tab(hub), Tab(hub)
        for tab in (first, second):
            tab.say(kind="watch", id=1, run_id="r1")
            await until(lambda tab=tab: tab.seqs())  # type: ignore[misc]
        await until(lambda: controller.watched)
        first.say(kind="unwatch", id=2, run_id="r1")
        await asyncio.sleep(0)
        assert controller.watched
        await hub.leave(second.connection)
        await until(lambda: not controller.watched)

    relay(work)


def test_the_end_reaches_all_and_is_the_last_thing_that_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(hub: Hub, controller: Controller) -> None:
        tab = Tab(hub)
        tab.say(kind="watch", id=1, run_id="r1")
        await until(lambda: 10 in tab.seqs())
        go_on("r1", *trial(1, 0.9), ENDED)
        controller.active = ()
        controller.push(drawn(12, "complete"))
        await until(lambda: tab.states()[-1] == "complete")
        hub._poll_soon()
        await until(lambda: "r1" not in hub._clusters.driven.live)
        looks: list[str] = []
        look = hub.folds.poll
        monkeypatch.setattr(hub.folds, "poll", lambda *args: looks.append(args[0]) or look(*args))
        monkeypatch.setattr("jupyter_ddl.server.feeds._RUN_INTERVAL_S", 0.01)
        n_watches = controller.n_watches
        hub._runs["r1"].look_again()
        await until(lambda: "r1" in looks)
        del looks[:]
        for n_asked in range(controller.n_statuses, controller.n_statuses + 10):
            hub._poll_soon()
            await until(lambda n_asked=n_asked: controller.n_statuses > n_asked)  # type: ignore[misc]
        assert (looks, controller.n_watches) == ([], n_watches)
        assert tab.states().count("complete") <= 2

    relay(work)


def test_the_death_of_a_controller_is_survived_and_its_return_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jupyter_ddl.server.feeds._RUN_INTERVAL_S", 0.01)

    async def work(hub: Hub, controller: Controller) -> None:
        tab = Tab(hub)
        tab.say(kind="watch", id=1, run_id="r1")
        await until(lambda: 10 in tab.seqs())
        controller.die()
        hub._poll_soon()
        await until(lambda: "r1" not in hub._clusters.driven.live)
        controller.is_there = True
        controller.now = drawn(20)
        hub._poll_soon()
        await until(lambda: tab.seqs()[-1] == 20)
        controller.push(drawn(21, "failed"))
        await until(lambda: tab.states()[-1] == "failed")
        assert tab.seqs() == sorted(tab.seqs())

    relay(work)


def test_a_record_that_is_removed_while_it_is_watched_is_told_and_its_return_too() -> None:
    async def work(hub: Hub, controller: Controller) -> None:
        controller.is_there = False
        go_on("r1", *trial(1, 0.9), ENDED)
        tab = Tab(hub)
        tab.say(kind="watch", id=1, run_id="r1")
        await until(lambda: tab.states() == ["complete"])
        await until(lambda: hub._lists.newest.get(RunList))
        elsewhere = run_dir("r1").rename(run_dir("r1").parents[1] / "away")
        await until(lambda: tab.troubles() == ["", "there is no run r1"])
        late = Tab(hub)
        late.say(kind="watch", id=1, run_id="r1")
        await until(lambda: late.states() == ["complete"] and late.troubles())
        assert late.troubles() == ["there is no run r1"]
        elsewhere.rename(run_dir("r1"))
        await until(lambda: tab.troubles()[-1] == "" == late.troubles()[-1])

    relay(work)


def test_a_record_that_is_cut_short_is_told_and_what_was_seen_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jupyter_ddl.server.feeds._RUN_INTERVAL_S", 0.01)

    async def work(hub: Hub, controller: Controller) -> None:
        controller.is_there = False
        go_on("r1", *trial(1, 0.9))
        tab = Tab(hub)
        tab.say(kind="watch", id=1, run_id="r1")
        await until(lambda: tab.snapshots())
        whole = ledger_path("r1").read_bytes()
        os.truncate(ledger_path("r1"), len(whole) - 40)
        await until(lambda: "cut short" in (tab.troubles() or [""])[-1])
        assert {each["counts"]["complete"] for each in tab.snapshots()} == {2}
        ledger_path("r1").write_bytes(whole)
        await until(lambda: tab.troubles()[-1] == "")

    relay(work)


def test_a_run_that_nothing_drives_says_so_and_goes_on_with_its_controller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jupyter_ddl.server.feeds._RUN_INTERVAL_S", 0.01)
    monkeypatch.setattr("jupyter_ddl.server.feeds._ALONE_S", 0.0)

    async def work(hub: Hub, controller: Controller) -> None:
        tab = Tab(hub)
        tab.say(kind="watch", id=1, run_id="r1")
        await until(lambda: 10 in tab.seqs())
        go_on("r1", *trial(1, 0.9), *[trial(n, 0.1)[0] for n in range(2, 9)])
        hold("r1", GONE)
        controller.die()
        hub._poll_soon()
        await until(lambda: tab.snapshots()[-1].get("driver") == "recovering")
        paused = tab.snapshots()[-1]["paused"]
        assert "the controller of cluster local was lost" in paused
        assert "another one, and it goes on from its record" in paused
        monkeypatch.setattr("jupyter_ddl.server.feeds.RECOVERS_S", 0.0)
        until_said = "nothing drives this run now: cluster local is not running"
        await until(lambda: until_said in tab.snapshots()[-1].get("paused", ""))
        controller.is_there = True
        controller.now = drawn(99)
        hub._poll_soon()
        await until(lambda: tab.seqs()[-1] == 99)

    relay(work)


def test_a_run_whose_cluster_was_stopped_is_said_to_be_driven_by_nothing_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jupyter_ddl.server.feeds._RUN_INTERVAL_S", 0.01)

    async def work(hub: Hub, controller: Controller) -> None:
        tab = Tab(hub)
        tab.say(kind="watch", id=1, run_id="r1")
        await until(lambda: 10 in tab.seqs())
        go_on("r1", *trial(1, 0.9), *[trial(n, 0.1)[0] for n in range(2, 9)])
        controller.die()  # it gave the run's lock up before
        hub._poll_soon()
        await until(lambda: tab.snapshots()[-1].get("driver") == "none")
        assert "recovering" not in {each.get("driver") for each in tab.snapshots()}
        lines = tab.newest("runs")["runs"]
        assert not any(line.get("recovering") for line in lines)

    relay(work)


def test_a_persistent_group_is_followed_by_its_record() -> None:
    """Its controller knows no run of its name, and that is nothing to tell."""

    async def work(hub: Hub, controller: Controller) -> None:
        controller.groups = (GroupStatus("r1", "warm", 0.0, 0, False, ()),)
        tab = Tab(hub)
        await until(lambda: tab.newest("clusters").get("clusters"))
        tab.say(kind="watch", id=1, run_id="r1")
        await until(lambda: tab.snapshots())
        go_on("r1", *trial(1, 0.9))
        await until(lambda: tab.snapshots()[-1]["counts"]["complete"] == 2)
        assert set(tab.troubles()) == {""}
        assert {each.get("driver", "live") for each in tab.snapshots()} == {"live"}

    relay(work)


def test_a_run_is_compared_and_deleted_and_no_other_folder_can_be_named(home: Any) -> None:
    async def work(hub: Hub, controller: Controller) -> None:
        record("r2", *trial(0, 0.4), created_at_s=2000.0)
        tab = Tab(hub)

        ids = itertools.count(1)

        async def answer(**message: Any) -> dict[str, Any]:
            number = next(ids)
            found: list[dict[str, Any]] = []

            def is_there() -> bool:
                found[:] = [m for m in map(json.loads, tab.texts) if m.get("id") == number]
                return bool(found)

            tab.say(id=number, **message)
            await until(is_there)
            return found[0]

        told = await answer(kind="compare_runs", run_id="r1", others=["r2"])
        assert "The code is the same" in told["html"]
        three = await answer(kind="compare_runs", run_id="r1", others=["r2", "r1"])
        assert "The code is the same" in three["html"]
        for others in ([], ["r2"] * 6, [".."]):
            assert (await answer(kind="compare_runs", run_id="r1", others=others))[
                "kind"
            ] == "denied"
        for kind in ("delete_run", "tensorboard", "resume_run", "get_stacks"):
            for name in ("..", "../r2", "last", "r2/ledger.ddl", ""):
                told = await answer(kind=kind, run_id=name)
                assert (told["kind"], run_dir("r2").exists()) == ("denied", True)
        assert (await answer(kind="delete_run", run_id="r2"))["kind"] == "done"
        assert not run_dir("r2").exists()

    relay(work)


def test_lines_of_other_libraries_are_folded_and_what_follows_a_record_is_its_own() -> None:
    text = (
        "printed before anything\n"
        "2026-11-23 10:00:00,000 INFO jupyter_ddl.controller.process: ready\n"
        "2026-11-23 10:00:01,000 WARNING distributed.scheduler: Removing worker\n"
        "Traceback of it\n"
        "2026-11-23 10:00:02,000 WARNING jupyter_ddl.driving.shell: lost\n"
        "Traceback of ours\n"
        "2026-11-23 10:00:03,000 WARNING jupyter_ddl_like.other: not ours\n"
    )
    own, n_foreign = _own_lines(text)
    assert own == [
        "printed before anything",
        "2026-11-23 10:00:00,000 INFO jupyter_ddl.controller.process: ready",
        "2026-11-23 10:00:02,000 WARNING jupyter_ddl.driving.shell: lost",
        "Traceback of ours",
    ]
    assert n_foreign == 3
