"""A cluster without processes, and what every backend keeps, as tests that the author of one runs.

::

    class TestMine(BackendContract):
        @pytest.fixture
        def case(self):
            yield BackendCase(ClusterSpec(backend="mine"), leftovers=my_processes)
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import pytest

from jupyter_ddl.backends.base import Backend, BackendPlugin, OnPhase, backend_plugin
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.group import SeenGpus
from jupyter_ddl.protocol.reading import from_json

__all__ = ["BackendCase", "BackendContract", "FakeBackend", "FakeClient", "FakePlugin"]

T = TypeVar("T")

_POLL_S = 0.05
_MARGIN_S = 20.0
_CLOSE_S = 15.0
"""What the controller gives a backend to end."""


# -- a cluster without processes -------------------------------------------------------------------


class FakeFuture:
    """What a task was submitted for; it ends when the test says so."""

    def __init__(self, key: str, worker: str, function: Any, arguments: tuple[Any, ...]) -> None:
        self.key = key
        self.worker = worker
        self.function = function
        self.arguments = arguments
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.is_released = False

    async def result(self) -> Any:
        return await asyncio.shield(self.answer)

    def release(self) -> None:
        self.is_released = True


class FakeScheduler:
    """The part of a scheduler that a client talks to."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.workers: dict[str, dict[str, Any]] = {}

    async def identity(self, n_workers: int = -1) -> dict[str, Any]:
        return {"type": "Scheduler", "id": self.address, "workers": dict(self.workers)}


class FakeClient:
    """The part of :class:`distributed.Client` that the controller uses, without a connection.

    Attributes
    ----------
    plugins : dict
        Worker plug-ins that are registered, by name.
    submitted : list of FakeFuture
        Tasks, in their order.
    calls : list
        What was run on workers: function, arguments, addresses.
    answers : dict
        By function, what a worker answers to it: ``answer(address, *arguments)``.
    """

    security = None
    cluster = None

    def __init__(self, scheduler: FakeScheduler) -> None:
        self.scheduler: FakeScheduler | None = scheduler
        self.scheduler_comm: object | None = object()
        self.status = "running"
        self.plugins: dict[str, Any] = {}
        self.submitted: list[FakeFuture] = []
        self.calls: list[tuple[Any, tuple[Any, ...], tuple[str, ...]]] = []
        self.answers: dict[Any, Callable[..., Any]] = {}
        self._handlers: dict[str, Callable[[tuple[float, Any]], Any]] = {}
        self._telling: set[asyncio.Future[Any]] = set()

    async def register_plugin(self, plugin: Any) -> None:
        self.plugins[plugin.name] = plugin

    async def unregister_worker_plugin(self, name: str) -> None:
        del self.plugins[name]

    def subscribe_topic(self, topic: str, handler: Callable[[tuple[float, Any]], Any]) -> None:
        self._handlers[topic] = handler

    def publish(self, topic: str, message: Any) -> None:
        """Say something on a topic, as a worker or the scheduler does."""
        handler = self._handlers.get(topic)
        if handler is None or self.status != "running":
            return
        found = handler((0.0, message))
        if asyncio.iscoroutine(found):
            task = asyncio.ensure_future(found)
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def run(
        self, function: Any, *arguments: Any, workers: Sequence[str] | None = None, **_: Any
    ) -> dict[str, Any]:
        known = {} if self.scheduler is None else self.scheduler.workers
        asked = tuple(each for each in (known if workers is None else workers) if each in known)
        self.calls.append((function, arguments, asked))
        answer: Callable[..., Any] = self.answers.get(function, _nothing)
        return {address: answer(address, *arguments) for address in asked}

    def submit(
        self, function: Any, *arguments: Any, key: str, workers: Sequence[str], **_: Any
    ) -> FakeFuture:
        future = FakeFuture(key, workers[0], function, arguments)
        self.submitted.append(future)
        return future

    async def close(self) -> None:
        self.status = "closed"
        self.scheduler_comm = self.scheduler = None


def _nothing(_address: str, *_arguments: Any) -> bytes:
    return msgspec.msgpack.encode(SeenGpus())


class FakeBackend(Backend):
    """A cluster in this process: what is asked for happens at once, losses when a test says so.

    Parameters
    ----------
    hindrance : str
        Why a start fails; empty: it does not.
    start_s : float
        How long a start takes.
    """

    client: Any
    _numbers = itertools.count()

    def __init__(
        self,
        spec: ClusterSpec | None = None,
        *,
        hindrance: str = "",
        start_s: float = 0.01,
        slots_per_worker: int = 1,
    ) -> None:
        self.spec = spec or ClusterSpec(name="fake", backend="fake")
        self.is_closed = False
        self._n_wanted = 2 if self.spec.n_workers is None else self.spec.n_workers
        self.hindrance = hindrance
        self._start_s = start_s
        self._slots = slots_per_worker
        self._scheduler: FakeScheduler | None = None

    async def start(self, on_phase: OnPhase) -> None:
        on_phase(f"starting {self._n_wanted} workers of no process")
        try:
            async with asyncio.timeout(self.spec.start_timeout_s):
                await asyncio.sleep(self._start_s)
        except TimeoutError:
            raise ClusterError("starting took longer than it may") from None
        if self.hindrance:
            raise ClusterError(self.hindrance)
        self.connect()
        self._fill()

    async def scale(self, n_workers: int, keep: Sequence[str]) -> None:
        if self._scheduler is None:
            raise ClusterError("this cluster has not been started, or has lost its scheduler")
        self._n_wanted = n_workers
        going = sorted(self.workers, key=lambda address: address in keep)
        for address in going[: max(0, len(going) - n_workers)]:
            self.lose_worker(address)
        self._fill()

    async def repair(self) -> None:
        if self._scheduler is None:
            self.connect()
        self._fill()

    async def close(self) -> None:
        self.is_closed = True
        client = getattr(self, "client", None)
        if client is not None:
            await client.close()
        self._scheduler = None

    @property
    def n_wanted(self) -> int:
        return self._n_wanted

    @property
    def shared_filesystem(self) -> bool:
        return True

    @property
    def slots_per_worker(self) -> int:
        return self._slots

    @property
    def trouble(self) -> str:
        return "" if self._scheduler is not None else "the scheduler is lost: runs wait"

    # -- what a test does to it ------------------------------------------------------------------

    @property
    def workers(self) -> list[str]:
        """Addresses of the workers that the scheduler knows."""
        return [] if self._scheduler is None else list(self._scheduler.workers)

    def lose_worker(self, address: str) -> None:
        """The scheduler has removed a worker, and tells so; :meth:`repair` brings another one."""
        if self._scheduler is not None:
            del self._scheduler.workers[address]
            self.client.publish("all", {"action": "remove-worker", "worker": address})

    def lose_scheduler(self) -> None:
        """It ends, its workers with it; :meth:`repair` connects to the next one."""
        self._scheduler = None
        self.client.status = "closed"
        self.client.scheduler_comm = None

    def connect(self) -> None:
        """There is a new scheduler."""
        self._scheduler = FakeScheduler(f"fake://scheduler-{next(self._numbers)}")
        self.client = FakeClient(self._scheduler)

    def _fill(self) -> None:
        scheduler = self._scheduler
        while scheduler is not None and len(scheduler.workers) < self._n_wanted:
            name = f"worker-{next(self._numbers)}"
            address = f"fake://{name}"
            facts = {"name": name, "host": "host", "nthreads": self._slots}
            scheduler.workers[address] = facts
            self.client.publish("all", {"action": "add-worker", "worker": address})


class FakePlugin(BackendPlugin):
    """Makes fake clusters; it is not installed under any name."""

    def make(self, spec: ClusterSpec) -> Backend:
        return FakeBackend(spec)


# -- the contract ----------------------------------------------------------------------------------


@dataclass
class BackendCase:
    """One backend, as its author has it tested.

    Attributes
    ----------
    spec : ClusterSpec
        A cluster of two workers, or of as many as there are.
    leftovers : callable
        What is left of clusters that were closed, one line each; asked until it is empty.
    lose_worker : callable, optional
        Ends a worker of a started backend for good, given its address.
    plugin : BackendPlugin, optional
        By default the one that is installed under ``spec.backend``.
    gone_within_s : float
        How long after a close something may be left: what a service does behind it.
    chooses_workers : bool
        Whether the backend can say which workers go; a service may take what it likes.
    """

    spec: ClusterSpec
    leftovers: Callable[[], Sequence[str]] = tuple
    lose_worker: Callable[[Backend, str], Awaitable[None]] | None = None
    plugin: BackendPlugin | None = None
    gone_within_s: float = 60.0
    chooses_workers: bool = True

    def make(self, **changes: Any) -> Backend:
        """A backend that has not been started."""
        plugin = self.plugin or backend_plugin(self.spec.backend)
        spec = msgspec.structs.replace(self.spec, **changes)
        return plugin.make(from_json(msgspec.json.encode(spec), ClusterSpec))


class BackendContract:
    """Subclass it, and override the fixture ``case``."""

    @pytest.fixture
    def case(self) -> BackendCase:
        """The backend under test."""
        raise NotImplementedError("override the fixture `case`")

    def test_its_life(self, case: BackendCase) -> None:
        """One test of many: a start is dear."""
        asyncio.run(self._live(case))
        assert _gone(case) == []

    def test_before_a_start_it_can_be_looked_at_and_closed(self, case: BackendCase) -> None:
        backend = case.make()
        _check_properties(backend)

        async def live() -> None:
            await backend.close()
            await backend.close()

        asyncio.run(live())
        assert _gone(case) == []

    def test_a_start_that_is_given_up_leaves_nothing(self, case: BackendCase) -> None:
        async def live() -> None:
            backend = case.make()
            begun = asyncio.Event()
            starting = asyncio.create_task(backend.start(lambda _: begun.set()))
            await asyncio.wait_for(begun.wait(), _MARGIN_S)
            starting.cancel()
            done, _ = await asyncio.wait({starting}, timeout=_MARGIN_S)
            assert done, f"a start does not end within {_MARGIN_S:.0f} s of its cancellation"
            async with asyncio.timeout(_CLOSE_S):
                await backend.close()

        asyncio.run(live())
        assert _gone(case) == []

    def test_a_start_that_is_late_is_refused_and_leaves_nothing(self, case: BackendCase) -> None:
        async def live() -> None:
            backend = case.make(start_timeout_s=0.001)
            with pytest.raises(ClusterError) as refusal:
                await asyncio.wait_for(backend.start(lambda _: None), _MARGIN_S)
            assert "\n" not in refusal.value.message

        asyncio.run(live())
        assert _gone(case) == []

    async def _live(self, case: BackendCase) -> None:
        backend = case.make()
        phases: list[str] = []
        await asyncio.wait_for(backend.start(phases.append), case.spec.start_timeout_s + _MARGIN_S)
        try:
            assert phases, "start() must say what it does: whoever waits for it reads that"
            assert [text for text in phases if not text or "\n" in text] == []
            _check_properties(backend)
            assert backend.trouble == ""
            assert backend.client.status == "running"
            await _until(lambda: _n_workers(backend), backend.n_wanted)
            if case.lose_worker is not None:
                await self._lose_a_worker(case, backend)
            if backend.owns_workers:
                await self._scale(case, backend)
            else:
                with pytest.raises(ClusterError):
                    await backend.scale(1, keep=())
        finally:
            async with asyncio.timeout(_CLOSE_S):
                await backend.close()
            await backend.close()
        assert backend.client.status != "running"

    async def _scale(self, case: BackendCase, backend: Backend) -> None:
        n_before = backend.n_wanted
        await backend.scale(n_before + 1, keep=())
        assert backend.n_wanted == n_before + 1
        await _until(lambda: _n_workers(backend), n_before + 1)
        kept = max(await _workers(backend))
        await backend.scale(1, keep=(kept,))
        assert backend.n_wanted == 1
        if case.chooses_workers:
            await _until(lambda: _workers(backend), [kept])
        else:
            await _until(lambda: _n_workers(backend), 1)

    async def _lose_a_worker(self, case: BackendCase, backend: Backend) -> None:
        assert case.lose_worker is not None
        before = await _workers(backend)
        await case.lose_worker(backend, before[0])

        async def is_replaced() -> bool:
            await backend.repair()
            now = await _workers(backend)
            return before[0] not in now and len(now) == backend.n_wanted

        await _until(is_replaced, True)


async def _workers(backend: Backend) -> list[str]:
    identity: Mapping[str, Any] = await backend.client.scheduler.identity(n_workers=-1)
    return sorted(identity["workers"])


async def _n_workers(backend: Backend) -> int:
    return len(await _workers(backend))


async def _until(look: Callable[[], Awaitable[T]], wanted: T, timeout_s: float = 90.0) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while (seen := await look()) != wanted:
        assert loop.time() < deadline, f"{seen!r} is not {wanted!r} after {timeout_s:.0f} s"
        await asyncio.sleep(_POLL_S)


def _gone(case: BackendCase) -> list[str]:
    """What is still left after a while."""
    deadline = time.monotonic() + case.gone_within_s
    while (found := list(case.leftovers())) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return found


def _check_properties(backend: Backend) -> None:
    assert backend.n_wanted >= 0
    assert backend.slots_per_worker >= 1
    assert isinstance(backend.owns_workers, bool)
    assert isinstance(backend.shared_filesystem, bool)
    assert "\n" not in backend.image
    assert "\n" not in backend.packages_from
