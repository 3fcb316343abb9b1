"""What clients of a mirror ask for is copied once, told of meanwhile, and given up with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest

from jupyter_ddl.errors import CapacityError, ControllerError
from jupyter_ddl.mirror import bringing as module
from jupyter_ddl.mirror.bringing import Bringing
from jupyter_ddl.mirror.runs import OnProgress, RunCopies
from jupyter_ddl.protocol.mirroring import BringBlob, BringRunFile, CopyBody, CopyState
from jupyter_ddl.store.blobs import put_blob
from jupyter_ddl.store.paths import blob_dirs, run_dir
from tests.leaks import Home

FILE = BringRunFile("r1", "values/a")
MIB = 1 << 20


class World:
    """A controller elsewhere whose files come as far as they are let, and a clock."""

    def __init__(self) -> None:
        self.n_mib = 2
        """So much has come of three MiB."""
        self.is_let = asyncio.Event()
        """The rest comes then."""
        self.is_over = asyncio.Event()
        self.error: Exception | None = None
        self.begun: list[CopyBody] = []
        self.n_ended = 0
        self.free_bytes = 3 * MIB
        self.now_s = 0.0

    async def fetch(self, run_id: str, path: str, on_progress: OnProgress | None = None) -> Path:
        return await self.come(BringRunFile(run_id, path), on_progress)

    async def come(self, body: CopyBody, on_progress: OnProgress | None) -> Path:
        assert on_progress is not None
        self.begun.append(body)
        try:
            on_progress(0, 3 * MIB)
            on_progress(self.n_mib * MIB, 3 * MIB)
            await self.is_let.wait()
            if self.error is not None:
                raise self.error
            on_progress(3 * MIB, 3 * MIB)
        finally:
            self.n_ended += 1
            self.is_over.set()
        return Path()


Story = Callable[[World, Bringing], Coroutine[Any, Any, None]]


@pytest.fixture
def play(home: Home, monkeypatch: pytest.MonkeyPatch) -> Callable[[Story], None]:
    async def played(story: Story) -> None:
        world = World()

        async def ask(_: Any) -> Any:
            raise AssertionError

        monkeypatch.setattr(module, "awake_s", lambda: world.now_s)
        monkeypatch.setattr(
            module, "fetch_blob", lambda _, digest, told: world.come(BringBlob(digest), told)
        )
        copies = cast(RunCopies, world)
        bringing = Bringing(copies, ask, free_bytes=lambda: world.free_bytes)
        try:
            async with asyncio.timeout(60):
                await story(world, bringing)
        finally:
            await bringing.close()
        assert world.n_ended == len(world.begun)

    monkeypatch.setattr(module, "_ANSWER_S", 0.02)
    return lambda story: asyncio.run(played(story))


def test_a_copy_is_told_of_while_it_comes_and_at_its_end(
    play: Callable[[Story], None],
) -> None:
    async def story(world: World, bringing: Bringing) -> None:
        wanted = (FILE, BringBlob("a" * 64))
        for body in wanted:
            assert await bringing.answer(body) == CopyState(2 * MIB, 3 * MIB, is_over=False)
            assert await bringing.answer(body) == CopyState(2 * MIB, 3 * MIB, is_over=False)
        assert world.begun == [*wanted], "however often it is asked for"
        world.is_let.set()
        for body in wanted:
            while not (state := await bringing.answer(body)).is_over:
                pass
            assert state == CopyState(3 * MIB, 3 * MIB, is_over=True)

    play(story)


def test_two_that_ask_in_the_same_moment_wait_for_one_copy(play: Callable[[Story], None]) -> None:
    """Of two copies, the one that nobody asks for would be given up, and the other one with it."""

    async def story(world: World, bringing: Bringing) -> None:
        states = await asyncio.gather(*(bringing.answer(FILE) for _ in range(3)))
        assert states == [CopyState(2 * MIB, 3 * MIB, is_over=False)] * 3
        assert world.begun == [FILE]
        world.is_let.set()

    play(story)


def test_what_is_here_is_not_copied(play: Callable[[Story], None]) -> None:
    async def story(world: World, bringing: Bringing) -> None:
        target = run_dir(FILE.run_id) / FILE.path
        target.parent.mkdir(parents=True)
        target.touch()
        digest = put_blob(b"here", blob_dirs())
        for body in (FILE, BringBlob(digest)):
            assert (await bringing.answer(body)).is_over
        assert world.begun == []

    play(story)


def test_whoever_asked_hears_why_it_failed_and_may_ask_again(play: Callable[[Story], None]) -> None:
    async def story(world: World, bringing: Bringing) -> None:
        world.error = ControllerError("it is away")
        world.is_let.set()
        for n_begun in (1, 2):
            with pytest.raises(ControllerError, match="it is away"):
                await bringing.answer(FILE)
            assert len(world.begun) == n_begun

    play(story)


def test_what_finds_no_room_does_not_begin_to_come(play: Callable[[Story], None]) -> None:
    async def story(world: World, bringing: Bringing) -> None:
        world.free_bytes -= MIB
        with pytest.raises(CapacityError, match="values/a of run r1 has 3 MiB, and 2 MiB are"):
            await bringing.answer(FILE)

    play(story)


def test_a_copy_that_nobody_waits_for_any_more_is_given_up(play: Callable[[Story], None]) -> None:
    async def story(world: World, bringing: Bringing) -> None:
        await bringing.answer(FILE)
        world.now_s = 19.0
        await bringing.answer(FILE)
        world.now_s = 40.0
        await world.is_over.wait()
        assert not (await bringing.answer(FILE)).is_over, "it begins anew"
        assert len(world.begun) == 2

    play(story)
