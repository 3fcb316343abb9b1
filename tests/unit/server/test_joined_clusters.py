"""What the panel's server knows of clusters elsewhere, without a kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import msgspec

from jupyter_ddl.backends.base import FoundCluster
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.view_messages import ClusterElsewhere
from jupyter_ddl.server.elsewhere import ElsewhereWatch

POD = FoundCluster("pods", "far", "namespace n", 2, "", "n/far-1")
OTHER = FoundCluster("pods", "odd", "namespace n", 2, "", "n/odd-1")


class World:
    def __init__(self) -> None:
        self.found: list[FoundCluster | ClusterError] = [POD]
        self.n_looks = 0
        self.refuses: dict[str, Any] = {}
        self.joining = SimpleNamespace(is_over=False, trouble="")
        self.now_s = 0.0
        self.changed = asyncio.Event()
        self.looking: asyncio.Task[None]
        self.watch = ElsewhereWatch(
            self.changed.set, find=self.find, begin=self.begin, clock=lambda: self.now_s
        )

    def find(self) -> list[FoundCluster | ClusterError]:
        self.n_looks += 1
        return self.found

    def begin(self, found: FoundCluster) -> Any:
        return self.refuses.get(found.name, self.joining)

    async def news(self) -> tuple[ClusterElsewhere, ...]:
        await self.changed.wait()
        self.changed.clear()
        return self.watch.newest


def _play(story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def played() -> None:
        world = World()
        world.looking = asyncio.create_task(world.watch.look())
        try:
            async with asyncio.timeout(60):
                await story(world)
        finally:
            world.joining.is_over = True
            await asyncio.gather(world.looking, return_exceptions=True)

    asyncio.run(played())


def test_a_cluster_is_told_while_it_is_connected_to_and_not_afterwards() -> None:
    async def story(world: World) -> None:
        connecting = ClusterElsewhere("far", "namespace n", "elsewhere, connecting …")
        assert await world.news() == (connecting,)
        world.joining.is_over = True
        assert await world.news() == ()

    _play(story)


def test_what_cannot_be_asked_or_joined_is_one_line() -> None:
    async def story(world: World) -> None:
        refusal = ClusterError("clusters of backend x are not listed: it is away")
        world.found = [refusal, POD, OTHER]
        refused = SimpleNamespace(is_over=True, trouble="its Secret may not be read")
        world.refuses["odd"] = refused
        world.joining.is_over = True
        while len(newest := await world.news()) > 2 or "connecting" in newest[-1].text:
            pass
        assert newest == (
            ClusterElsewhere("", "", refusal.message),
            ClusterElsewhere(
                "odd", "namespace n", "can't be connected to: its Secret may not be read"
            ),
        )

    _play(story)


def test_two_backends_may_have_clusters_of_one_name() -> None:
    async def story(world: World) -> None:
        world.found = [POD, msgspec.structs.replace(POD, backend="site", place="rack 4")]
        assert [each.place for each in await world.news()] == ["namespace n", "rack 4"]
        world.joining.is_over = True
        await world.looking
        assert world.watch.newest == ()

    _play(story)


def test_services_are_asked_once_a_minute_and_again_where_a_look_was_cut_off() -> None:
    async def story(world: World) -> None:
        await world.news()
        world.looking.cancel()
        await asyncio.gather(world.looking, return_exceptions=True)
        assert world.watch.due_in_s == 0
        world.joining.is_over = True
        await world.watch.look()
        assert world.watch.due_in_s == 60
        world.now_s = 59.0
        assert world.watch.due_in_s == 1
        world.now_s = 90.0
        assert world.watch.due_in_s == 0

    _play(story)
