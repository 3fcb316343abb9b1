"""What a mirror does by itself: copies all runs that can be, and gives back what was lost."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_ddl.errors import ControllerError, JupyterDDLError, ProtocolError
from jupyter_ddl.mirror import process as module
from jupyter_ddl.mirror.process import _Mirror
from jupyter_ddl.mirror.runs import Look, RunNews
from jupyter_ddl.protocol.mirroring import RunMark


class World:
    """The controller, its connection and the copies."""

    def __init__(self) -> None:
        self.trouble = ""
        self.active: frozenset[str] = frozenset()
        self.runs = ["r1", "r2", "r3"]
        self.lost: list[str] = []
        self.refused: dict[str, Exception] = {}
        self.told: list[str] = []

    async def look(self) -> Look:
        news = (RunNews(RunMark(each, 16, True), True) for each in self.runs)
        can = SimpleNamespace(can_resume=True)
        lost: Any = tuple(SimpleNamespace(run_id=each, can=can) for each in self.lost)
        return Look(tuple(news), lost)

    async def bring(self, run_id: str) -> None:
        self._tell("copied", run_id)

    async def resume(self, run_id: str) -> None:
        self._tell("given", run_id)
        self.lost.remove(run_id)

    async def write_event_files(self, run_id: str) -> None:
        return

    def _tell(self, what: str, run_id: str) -> None:
        if run_id in self.refused:
            raise self.refused[run_id]
        self.told.append(f"{what} {run_id}")


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def mirror(world: World) -> Any:
    made: Any = _Mirror.__new__(_Mirror)
    made._put_off = frozenset()
    made._due_s = {}
    made._copies = made._proxy = made._remote = world
    return made


@pytest.mark.parametrize("error", [ControllerError("it is put off"), ProtocolError("it is odd")])
def test_one_run_that_cannot_be_copied_holds_up_no_other(
    world: World, mirror: Any, error: JupyterDDLError
) -> None:
    world.refused["r1"] = error
    asyncio.run(mirror._copy())
    assert world.told == ["copied r2", "copied r3"]
    assert world.active == {"r1", "r2", "r3"}


def test_a_run_whose_giving_back_broke_off_is_given_again(
    world: World, mirror: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller does not drive it any more, so nobody would remember that it did."""
    for name in ("_COPY_S", "_LOOK_S"):
        monkeypatch.setattr(module, name, 0.0)
    world.runs, world.lost, world.active = [], ["r1"], frozenset({"r1"})
    world.refused["r1"] = ControllerError("the connection broke")

    async def story() -> None:
        copying = asyncio.create_task(mirror._copy_on())
        try:
            async with asyncio.timeout(30):
                while not mirror._put_off:  # noqa: ASYNC110 - what changes it is a fake
                    await asyncio.sleep(0)
                world.refused.clear()
                while "given r1" not in world.told:  # noqa: ASYNC110
                    await asyncio.sleep(0)
        finally:
            copying.cancel()
            await asyncio.gather(copying, return_exceptions=True)

    asyncio.run(story())
    assert not mirror._put_off


def test_a_disk_that_fails_for_a_moment_does_not_end_the_mirror(
    world: World, mirror: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_COPY_S", "_LOOK_S"):
        monkeypatch.setattr(module, name, 0.0)
    errors = [OSError(errno.ESTALE, "Stale file handle")]
    look = world.look

    async def failing() -> Look:
        if errors:
            raise errors.pop()
        return await look()

    monkeypatch.setattr(world, "look", failing)

    async def story() -> None:
        copying = asyncio.create_task(mirror._copy_on())
        try:
            async with asyncio.timeout(30):
                while "copied r3" not in world.told and not copying.done():  # noqa: ASYNC110
                    await asyncio.sleep(0)
        finally:
            copying.cancel()
            await asyncio.gather(copying, return_exceptions=True)

    asyncio.run(story())
    assert "copied r3" in world.told


def test_a_run_that_takes_long_to_look_at_is_looked_at_less_often(
    world: World, mirror: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has ended is copied at once, whatever it takes."""
    now_s, took_s = 100.0, {"r1": 0.5, "r2": 0.0, "r3": 60.0}
    active = {"r1", "r2", "r3"}
    monkeypatch.setattr(module, "awake_s", lambda: now_s)

    async def look() -> Look:
        marks = (RunMark(each, 16, each in active) for each in world.runs)
        return Look(tuple(RunNews(mark, True) for mark in marks), ())

    async def bring(run_id: str) -> None:
        nonlocal now_s
        now_s += took_s[run_id]
        world.told.append(run_id)

    async def story() -> None:
        nonlocal now_s
        await mirror._copy()
        now_s += 1.0
        await mirror._copy()
        assert world.told == ["r1", "r2", "r3", "r1", "r2"]  # r3 took a minute
        world.told.clear()
        now_s += 3.0
        await mirror._copy()
        assert world.told == ["r2"]
        active.discard("r3")
        await mirror._copy()
        assert world.told == ["r2", "r2", "r3"]

    monkeypatch.setattr(world, "look", look)
    monkeypatch.setattr(world, "bring", bring)
    asyncio.run(story())


def test_without_a_connection_none_is_tried(world: World, mirror: Any) -> None:
    """Each of them would wait for one."""
    world.refused["r1"] = ControllerError("it is away")
    world.trouble = "it is away"
    with pytest.raises(ControllerError):
        asyncio.run(mirror._copy())
    assert world.told == []
