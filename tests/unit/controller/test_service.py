"""The controller's service over a cluster without processes: slots, size, lost schedulers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.controller import service as service_module
from jupyter_ddl.controller.runs import fold_run
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


def run_of_two_items() -> RunSpec:
    verb = Map(over="items", element="item", n_items=2)
    return RunSpec("r1", verb, Program("item", "In [1]"), 1, "fake", 1000.0)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The size is looked after without a pause."""
    monkeypatch.setattr(service_module, "_KEEP_SIZE_INTERVAL_S", 0.01)
    monkeypatch.setattr(service_module, "_ANEW_PAUSE_S", 0.0)


def test_a_cluster_that_is_gone_ends_with_a_sentence_when_nothing_runs(quick: None) -> None:
    async def live(service: ClusterService, backend: FakeBackend) -> None:
        assert service.expired() is None
        backend.lose_cluster()
        assert service.expired() == "the cluster was deleted"

    with_service(live, FakeBackend(SPEC))


def test_a_cluster_that_is_gone_is_made_anew_for_what_runs(quick: None) -> None:
    async def live(service: ClusterService, backend: FakeBackend) -> None:
        await service.runs.submit(run_of_two_items())
        before = backend.client
        await until(lambda: len(before.submitted) == 2)
        backend.lose_cluster()
        assert service.expired() is None, "a run is active"
        await until(lambda: backend.client is not before and len(backend.client.submitted) == 2)
        assert set(service.slots.addresses()) == set(backend.workers)
        told = ["the cluster was deleted: it was made anew, and what ran is repeated"]
        await until(lambda: notices("r1") == told)

    with_service(live, FakeBackend(SPEC))


def test_what_can_not_be_made_anew_ends_the_runs_with_a_sentence(quick: None) -> None:
    async def live(service: ClusterService, backend: FakeBackend) -> None:
        await service.runs.submit(run_of_two_items())
        await until(lambda: len(backend.client.submitted) == 2)
        backend.hindrance = "no room"
        backend.lose_cluster()
        await until(lambda: not service.runs.active)
        end = fold_run("r1").end
        assert end is not None
        assert end.state == "cancelled", "it can be resumed"
        assert end.reason == (
            "the cluster was deleted, and making it anew was tried 3 times within 1 h; the last "
            "time: no room"
        )
        assert service.expired() is not None

    with_service(live, FakeBackend(SPEC))


def notices(run_id: str) -> list[str]:
    events = read_ledger(ledger_path(run_id))
    return [event.text for event in events if isinstance(event, Notice)]


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
