"""The controller's service over a cluster without processes: slots, size, lost schedulers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.controller.service import ClusterService
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.ledger.reader import read_ledger
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.events import Notice
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.paths import ledger_path
from jupyter_ddl.testing.backends import FakeBackend
from jupyter_ddl.verbs.map import Map

SPEC = ClusterSpec(name="fake", backend="fake", n_workers=2)
RUN = RunSpec("r1", Map("items", "item", 4), Program("item", "In [1]"), 1, "fake", 1000.0)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DDL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("JUPYTER_DDL_MEMORY_DIR", str(tmp_path / "memory"))


def with_service(
    live: Callable[[ClusterService, FakeBackend], Awaitable[None]], backend: FakeBackend
) -> list[str]:
    """Open a service, live, close it; returns what was told while it opened."""
    phases: list[str] = []

    async def whole() -> None:
        service = ClusterService(SPEC, "1:0.0", backend)
        try:
            async with asyncio.timeout(30):
                await service.open(phases.append)
                await live(service, backend)
        finally:
            await service.close()

    asyncio.run(whole())
    return phases


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_it_opens_with_a_slot_for_each_place_of_each_worker() -> None:
    async def live(service: ClusterService, backend: FakeBackend) -> None:
        status = service.status()
        assert (status.state, status.trouble) == ("ready", "")
        assert sorted(each.address for each in status.workers) == sorted(backend.workers)
        assert service.slots.n_slots == 6
        assert service.size.n_wanted_slots() == 6
        (plugin,) = backend.client.plugins
        assert "jupyter_ddl" in plugin

    phases = with_service(live, FakeBackend(SPEC, slots_per_worker=3))
    assert phases == ["starting 2 workers of no process", "preparing ranks"]


def test_a_start_that_fails_is_the_backends_own_sentence_and_closes_it() -> None:
    backend = FakeBackend(SPEC, hindrance="no room")

    async def live(service: ClusterService, backend: FakeBackend) -> None:
        raise AssertionError("it did not open")

    with pytest.raises(ClusterError, match="no room"):
        with_service(live, backend)
    assert backend.is_closed


def test_a_lost_worker_takes_its_slots_along_and_is_replaced() -> None:
    async def live(service: ClusterService, backend: FakeBackend) -> None:
        lost, kept = backend.workers
        backend.lose_worker(lost)
        await until(lambda: lost not in service.slots.addresses())
        assert service.status().n_wanted == 2
        await until(lambda: len(list(service.slots.addresses())) == 2)
        assert kept in service.slots.addresses()

    with_service(live, FakeBackend(SPEC))


def test_a_busy_worker_goes_last_when_the_cluster_shrinks() -> None:
    async def live(service: ClusterService, backend: FakeBackend) -> None:
        busy = service.slots.take("run", 1, 8)
        await service.size.scale(1)
        await until(lambda: list(service.slots.addresses()) == [busy])

    with_service(live, FakeBackend(SPEC))


def test_a_lost_scheduler_is_told_and_its_successor_gets_the_plugin() -> None:
    async def live(service: ClusterService, backend: FakeBackend) -> None:
        former, before = backend.client, set(backend.workers)
        backend.lose_scheduler()
        assert service.status().state == "degraded"
        await until(lambda: backend.client is not former and bool(backend.client.plugins))
        await until(lambda: len(list(service.slots.addresses())) == 2)
        assert not before & set(service.slots.addresses())
        assert service.status().state == "ready"

    with_service(live, FakeBackend(SPEC))


def test_the_age_of_a_cluster_counts_and_not_that_of_its_controller() -> None:
    class Old(FakeBackend):
        @property
        def age_s(self) -> float:
            return SPEC.max_age_s - 60.0

    async def live(service: ClusterService, backend: FakeBackend) -> None:
        assert service.expired() is None
        assert 0.0 < service.status().age_left_s <= 60.0
        assert service.status().idle_left_s == pytest.approx(SPEC.idle_timeout_s, abs=30.0)

    with_service(live, Old(SPEC))


def test_a_cluster_that_ends_by_itself_says_why_in_what_it_leaves() -> None:
    async def live(backend: FakeBackend) -> None:
        service = ClusterService(SPEC, "1:0.0", backend)
        await service.open(lambda _: None)
        await service.runs.submit(RUN)
        await service.runs.driver(RUN.run_id).begun.wait()
        await service.close("its maximum age of 60 s is reached")

    asyncio.run(live(FakeBackend(SPEC)))
    (told,) = (
        event.text for event in read_ledger(ledger_path(RUN.run_id)) if type(event) is Notice
    )
    assert "ended: its maximum age of 60 s is reached; its next one goes on with this run" in told


def test_who_leaves_ends_nothing_that_goes_on_without_it() -> None:
    class Lasting(FakeBackend):
        is_left = False

        async def leave(self) -> None:
            self.is_left = True

    async def live(backend: Lasting) -> None:
        service = ClusterService(SPEC, "1:0.0", backend)
        await service.open(lambda _: None)
        await service.leave()
        assert backend.is_left
        assert not backend.is_closed
        await service.close()
        assert backend.is_closed

    asyncio.run(live(Lasting(SPEC)))


def test_the_end_takes_nothing_from_workers_that_are_its_own() -> None:
    seen: dict[str, Any] = {}

    async def live(service: ClusterService, backend: FakeBackend) -> None:
        seen["client"] = backend.client

    backend = FakeBackend(SPEC)
    with_service(live, backend)
    assert backend.is_closed
    assert seen["client"].plugins, "the plugin ends with its worker"


def test_workers_of_others_are_left_without_the_plugin() -> None:
    class Foreign(FakeBackend):
        owns_workers = False

    seen: dict[str, Any] = {}

    async def live(service: ClusterService, backend: FakeBackend) -> None:
        seen["client"] = backend.client
        with pytest.raises(ClusterError, match="was connected to, not started here"):
            service.size.check_scalable()

    with_service(live, Foreign(SPEC))
    assert seen["client"].plugins == {}
