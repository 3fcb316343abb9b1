"""A real Dask cluster with the rank plugin, and programs made of plain source."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import dask
import msgspec
import psutil
import pytest
from distributed import Client, LocalCluster

from jupyter_ddl.backends.certificates import temporary_security
from jupyter_ddl.protocol.assignment import Assignment, Control, StopRun, TrialAssignment
from jupyter_ddl.protocol.events import (
    AssignmentResult,
    AttemptFinished,
    AttemptStarted,
    EventChunk,
    RankEvent,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.store.blobs import put_blob
from jupyter_ddl.store.processes import OWNER_VARIABLE, pids_by
from jupyter_ddl.worker import plugin as plugin_calls
from jupyter_ddl.worker.plugin import RankPlugin
from jupyter_ddl.worker.zygote_process import WorkerSettings
from tests.until import PATIENCE_S

DEADLINE_S = PATIENCE_S


async def until(what: Callable[[], Any], timeout_s: float = DEADLINE_S) -> Any:
    """Poll until ``what()`` is true; fail with its last value."""
    deadline_s = time.monotonic() + timeout_s
    while not (seen := what()):
        if time.monotonic() > deadline_s:
            pytest.fail(f"not reached within {timeout_s} s: {inspect.getsource(what)} is {seen!r}")
        await asyncio.sleep(0.01)
    return seen


class Bench:
    """One cluster with one slot a worker, and what came up from it."""

    def __init__(self, client: Client, cluster: LocalCluster, owner: str, path: Path) -> None:
        self.client = client
        self.cluster = cluster
        self.owner = owner
        self.path = path
        self.run_id = "r1"
        self.chunks: dict[str, dict[int, EventChunk]] = {}
        self._blobs = path / "blobs"
        self._blobs.mkdir(exist_ok=True)

    def on_chunk(self, event: tuple[float, bytes]) -> None:
        chunk = msgspec.msgpack.decode(event[1], type=EventChunk)
        self.chunks.setdefault(chunk.assignment_id, {})[chunk.number] = chunk

    def assignment(self, source: str, n_trials: int = 1, **options: Any) -> Assignment:
        digest = put_blob(
            msgspec.msgpack.encode(Program(source=source, filename="In [1]")), [self._blobs]
        )
        run_id = options.pop("run_id", self.run_id)
        trials = tuple(
            TrialAssignment(trial=number, attempt=1, params={}, seed=number)
            for number in range(n_trials)
        )
        fields = {
            "run_id": run_id,
            "assignment_id": f"{run_id}-{uuid.uuid4().hex[:8]}",
            "program": digest,
            "trials": trials,
            "run_dir": str(self.path / run_id),
            "blob_dirs": (str(self._blobs),),
            "topic": "events",
        }
        return Assignment(**(fields | options))

    def submit(self, assignment: Assignment, worker: str | None = None) -> Any:
        return self.client.submit(
            plugin_calls.execute_assignment,
            msgspec.msgpack.encode(assignment),
            key=f"ddl-{assignment.assignment_id}",
            workers=None if worker is None else [worker],
            pure=False,
        )

    async def result(self, assignment: Assignment, future: Any) -> AssignmentResult:
        encoded = await asyncio.wait_for(future.result(), DEADLINE_S)
        result = msgspec.msgpack.decode(encoded, type=AssignmentResult)
        await until(lambda: len(self.chunks.get(assignment.assignment_id, {})) == result.n_chunks)
        return result

    async def execute(self, assignment: Assignment, worker: str | None = None) -> list[RankEvent]:
        """Execute to the end and return the events."""
        await self.result(assignment, self.submit(assignment, worker))
        return self.events(assignment)

    def events(self, assignment: Assignment) -> list[RankEvent]:
        chunks = self.chunks.get(assignment.assignment_id, {})
        return [event for number in sorted(chunks) for event in chunks[number].events]

    async def started(self, assignment: Assignment, trial: int = 0) -> AttemptStarted:
        """Wait until a trial has begun."""

        def found() -> AttemptStarted | None:
            for event in self.events(assignment):
                if isinstance(event, AttemptStarted) and event.trial == trial:
                    return event
            return None

        event: AttemptStarted = await until(found)
        return event

    async def control(self, message: Control) -> None:
        await self.client.run(plugin_calls.control, msgspec.msgpack.encode(message))

    async def describe(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = await self.client.run(plugin_calls.describe)
        return list(found.values())

    async def ranks(self) -> list[dict[str, Any]]:
        """The ranks of the present run, on all workers."""
        return [
            rank
            for worker in await self.describe()
            for rank in worker["ranks"]
            if rank["run_id"] == self.run_id
        ]

    async def a_worker(self) -> str:
        return next(iter((await self.client.scheduler.identity())["workers"]))

    def log_path(self, event: AttemptStarted) -> Path:
        return self.path / self.run_id / "logs" / event.log

    def log_text(self, event: AttemptStarted) -> str:
        return self.log_path(event).read_text(errors="replace")


def finishes(events: Sequence[RankEvent]) -> list[AttemptFinished]:
    return [event for event in events if isinstance(event, AttemptFinished)]


@asynccontextmanager
async def open_bench(path: Path, n_workers: int = 1, **settings: Any) -> AsyncIterator[Bench]:
    owner = f"test-{uuid.uuid4().hex}"
    config = {"distributed.scheduler.allowed-failures": 1000, "distributed.diagnostics.nvml": False}
    with dask.config.set(config):
        async with (
            LocalCluster(
                n_workers=n_workers,
                threads_per_worker=1,
                processes=True,
                asynchronous=True,
                security=temporary_security(),
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                memory_limit=0,
                preload=["jupyter_ddl.worker.preemption"],
            ) as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            await client.register_plugin(RankPlugin(WorkerSettings(owner_token=owner, **settings)))
            bench = Bench(client, cluster, owner, path)
            client.subscribe_topic("events", bench.on_chunk)
            yield bench
    left = await until_gone(owner)
    assert left == [], f"processes left behind: {left}"


async def until_gone(owner: str, timeout_s: float = 5.0) -> list[str]:
    """Wait for all processes of a cluster to end; return those that did not."""
    deadline_s = time.monotonic() + timeout_s
    while pids := [pid for pid in pids_by(OWNER_VARIABLE).get(owner, []) if is_alive(pid)]:
        if time.monotonic() > deadline_s:
            return [_describe_process(pid) for pid in pids]
        await asyncio.sleep(0.02)
    return []


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _describe_process(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        return f"{pid} (parent {process.ppid()}, {process.status()}): {process.cmdline()}"
    except psutil.NoSuchProcess:
        return f"{pid} (gone)"


AsyncTest = Callable[[Bench], Awaitable[None]]
_TEST_DEADLINE_S = 4 * PATIENCE_S


def in_bench(n_workers: int = 1, **settings: Any) -> Callable[[AsyncTest], Callable[[Path], None]]:
    """Give a test a cluster of its own, and a deadline."""

    def decorate(test: AsyncTest) -> Callable[[Path], None]:
        async def body(path: Path) -> None:
            async with open_bench(path, n_workers, **settings) as bench:
                await asyncio.wait_for(test(bench), _TEST_DEADLINE_S)

        def run(tmp_path: Path) -> None:
            asyncio.run(body(tmp_path))

        return _named_like(test, run)

    return decorate


class SharedBench:
    """A cluster that the tests of a module use one after another, each with a run of its own."""

    def __init__(self, path: Path, n_workers: int) -> None:
        self._runner = asyncio.Runner()
        self._context = open_bench(path, n_workers)
        self._bench = self._runner.run(self._context.__aenter__())

    def run(self, test: AsyncTest) -> None:
        self._bench.run_id = f"run-{uuid.uuid4().hex[:8]}"

        async def body() -> None:
            try:
                await asyncio.wait_for(test(self._bench), _TEST_DEADLINE_S)
            except BaseException:
                # The one slot is free for the next test, whatever this one left in it.
                await self._bench.control(StopRun(self._bench.run_id, "now"))
                raise

        self._runner.run(body())

    def close(self) -> None:
        self._runner.run(self._context.__aexit__(None, None, None))
        self._runner.close()


def in_shared_bench(test: AsyncTest) -> Callable[[SharedBench], None]:
    """Run a test in the cluster of its module."""

    def run(shared_bench: SharedBench) -> None:
        shared_bench.run(test)

    return _named_like(test, run)


def _named_like(test: AsyncTest, run: Any) -> Any:
    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    return run


def kill(pid: int, number: int) -> None:
    os.kill(pid, number)
