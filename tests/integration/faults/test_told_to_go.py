"""``dask worker`` processes that are told to go, as a pod's first process is: ranks save first."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import dask
import msgspec
import psutil
import pytest
from distributed import Client, Scheduler

from jupyter_ddl.driving.dispatcher import Dispatcher
from jupyter_ddl.protocol.assignment import Assignment, TrialAssignment
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    CheckpointSaved,
    RankEvent,
    Reported,
    WorkerLeaving,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.store.blobs import put_blob
from jupyter_ddl.worker.plugin import RankPlugin
from jupyter_ddl.worker.zygote_process import WorkerSettings
from tests.leaks import Home
from tests.until import PATIENCE_S

pytestmark = pytest.mark.integration

_PRELOAD = "jupyter_ddl.worker.preemption"

SAVING = """
import time
from jupyter_ddl import checkpoint, report
for step in range(1000):
    time.sleep(0.2)
    report(step=step, score=1.0)
    if step % 5 == 4:
        checkpoint(step=step, where=step)
"""
"""A checkpoint a second."""


@asynccontextmanager
async def dask_worker(*options: str) -> AsyncIterator[tuple[Client, psutil.Process]]:
    """A scheduler here, and a ``dask worker`` of its own process tree."""
    with dask.config.set({"distributed.scheduler.http.routes": []}):
        async with (
            Scheduler(
                host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0"
            ) as scheduler,
            Client(scheduler.address, asynchronous=True, set_as_default=False) as client,
        ):
            command = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler.address]
            fixed = ["--nthreads=1", "--no-dashboard", "--memory-limit=0", f"--preload={_PRELOAD}"]
            process = await asyncio.create_subprocess_exec(*command, *fixed, *options)
            try:
                await client.wait_for_workers(1, timeout=PATIENCE_S)
                await client.register_plugin(RankPlugin(WorkerSettings(owner_token="t")))
                yield client, psutil.Process(process.pid)
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()


async def _until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not what():  # noqa: ASYNC110 - what is waited for comes from another process
            await asyncio.sleep(0.02)


def _assignment(home: Home) -> Assignment:
    blobs = home.root / "blobs"
    blobs.mkdir()
    program = Program(source=SAVING, filename="In [1]")
    return Assignment(
        run_id="r1",
        assignment_id="r1-1",
        program=put_blob(msgspec.msgpack.encode(program), [blobs]),
        trials=(TrialAssignment(0, 1, {}, 1),),
        run_dir=str(home.root / "run"),
        blob_dirs=(str(blobs),),
        topic="events",
    )


class _DeafToTheEnd(Dispatcher):
    """Does not get the message in which an attempt ends, and has to ask the worker for it."""

    def _on_message(self, chunk: bytes) -> None:
        if b"attempt_finished" not in chunk:
            super()._on_message(chunk)


async def _told_to_go(
    home: Home, *options: str, kind: type[Dispatcher] = Dispatcher
) -> list[RankEvent]:
    """Events of a run whose ``dask worker`` gets SIGTERM; it has ended."""
    events: list[RankEvent] = []
    async with dask_worker(*options) as (client, process):
        dispatcher = kind(client, "events")
        dispatcher.start()
        (worker,) = (await client.scheduler.identity())["workers"]
        work = asyncio.create_task(dispatcher.execute(_assignment(home), worker, events.extend))
        await _until(lambda: any(isinstance(e, Reported) for e in events))
        os.kill(process.pid, signal.SIGTERM)
        await asyncio.wait_for(work, PATIENCE_S)
        await _until(lambda: not process.is_running())
        return events


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((f"--preload-nanny={_PRELOAD}",), id="with a nanny"),
        pytest.param(("--no-nanny",), id="without a nanny"),
    ],
)
def test_sigterm_of_the_first_process_has_ranks_save_before_it_ends(
    home: Home, options: tuple[str, ...]
) -> None:
    events = asyncio.run(_told_to_go(home, *options))
    (end,) = [event for event in events if isinstance(event, AttemptFinished)]
    assert end.outcome == "moved"
    assert any(isinstance(event, WorkerLeaving) for event in events)
    saved = [event for event in events if isinstance(event, CheckpointSaved)][-1]
    last = [event for event in events if isinstance(event, Reported)][-1]
    assert saved.step == last.step, "it left where it had saved, and nowhere else"
    (started,) = [event for event in events if isinstance(event, AttemptStarted)]
    assert not psutil.pid_exists(started.pid)
    assert (Path(home.root) / "run" / "checkpoints" / saved.file).exists()


def test_what_got_lost_on_the_way_is_fetched_before_the_worker_ends(home: Home) -> None:
    events = asyncio.run(_told_to_go(home, "--no-nanny", kind=_DeafToTheEnd))
    (end,) = [event for event in events if isinstance(event, AttemptFinished)]
    assert end.outcome == "moved"


async def _told_while_it_closes(after_s: float) -> None:
    """Waits for the end of a worker whose scheduler went shortly before its SIGTERM."""
    async with dask_worker("--no-nanny") as (client, process):
        closing = asyncio.create_task(client.scheduler.terminate(reason="test"))
        await asyncio.sleep(after_s)
        with contextlib.suppress(ProcessLookupError):  # a quick one is gone by then
            os.kill(process.pid, signal.SIGTERM)
        await _until(lambda: _is_over(process))
        await asyncio.wait({closing}, timeout=PATIENCE_S)


def _is_over(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == "zombie")
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("after_s", [0.02, 0.1])
def test_sigterm_of_a_worker_that_closes_already_does_not_make_it_stay(
    home: Home, after_s: float
) -> None:
    """As in pods, whose scheduler is told to go at the same time."""
    asyncio.run(_told_while_it_closes(after_s))
