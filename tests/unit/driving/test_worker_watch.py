"""Which workers there are, when announcements and answers cross."""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_ddl.driving.workers import WorkerInfo, WorkerWatch


class Scheduler:
    """What the watch asks of a Dask client: announcements, and a list that takes its time."""

    def __init__(self, *workers: str) -> None:
        self.workers = list(workers)
        self.scheduler = self
        self.before_answer: list[Any] = []

    def subscribe_topic(self, topic: str, handler: Any) -> None:
        self.announce = handler

    async def identity(self, n_workers: int) -> dict[str, Any]:
        answer = {address: {"name": address, "nthreads": 1} for address in self.workers}
        await asyncio.sleep(0)
        if self.before_answer:
            await self.before_answer.pop()()
        return {"workers": answer}

    async def remove(self, address: str) -> None:
        self.workers.remove(address)
        await self.announce((0.0, {"action": "remove-worker", "worker": address}))

    async def add(self, address: str) -> None:
        self.workers.append(address)
        await self.announce((0.0, {"action": "add-worker", "worker": address}))


def test_a_worker_that_leaves_while_the_list_is_on_its_way_is_not_in_it() -> None:
    async def work() -> tuple[set[str], list[str]]:
        removed: list[str] = []
        scheduler = Scheduler("a", "b")
        watch = WorkerWatch(scheduler, lambda workers: None, removed.append)
        await watch.start()
        scheduler.before_answer.append(lambda: scheduler.remove("a"))
        await scheduler.add("c")
        return set(watch.workers), removed

    assert asyncio.run(work()) == ({"b", "c"}, ["a"])


def test_changes_are_told_with_all_workers_and_losses_once() -> None:
    async def work() -> None:
        seen: list[set[str]] = []
        removed: list[str] = []

        def on_change(workers: dict[str, WorkerInfo]) -> None:
            seen.append(set(workers))

        scheduler = Scheduler("a")
        watch = WorkerWatch(scheduler, on_change, removed.append)
        await watch.start()
        await scheduler.add("b")
        await scheduler.remove("a")
        await scheduler.announce((0.0, {"action": "remove-worker", "worker": "a"}))
        await scheduler.announce((0.0, "not a worker's message"))
        assert seen[:3] == [{"a"}, {"a", "b"}, {"b"}]
        assert removed == ["a"]

    asyncio.run(work())


def test_what_the_client_of_a_lost_scheduler_says_counts_no_more() -> None:
    """Dask's client connects again by itself; work must wait until all else has followed."""

    async def work() -> tuple[list[set[str]], list[str]]:
        seen: list[set[str]] = []
        removed: list[str] = []
        old, new = Scheduler("a"), Scheduler("a", "b")
        watch = WorkerWatch(old, lambda workers: seen.append(set(workers)), removed.append)
        await watch.start()
        old.before_answer.append(lambda: _lose(watch))
        await old.add("c")
        await old.add("d")
        await watch.reconnect(new)
        await old.remove("a")
        return seen, removed

    seen, removed = asyncio.run(work())
    assert seen == [{"a"}, set(), set(), {"a", "b"}]
    assert removed == ["a"], "once"


async def _lose(watch: WorkerWatch) -> None:
    watch.lost()
