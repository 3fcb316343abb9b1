"""The plugin that holds a worker's ranks, and the functions that the controller calls on it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from typing import Any

import msgspec
from distributed import Worker, WorkerPlugin, get_worker
from distributed.core import Status

from jupyter_ddl.background import BackgroundTasks
from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.assignment import (
    Assignment,
    Control,
    DumpStacks,
    Prewarm,
    StopRun,
    StopTrial,
)
from jupyter_ddl.protocol.cells import OpenRank, RankCall, RunCell
from jupyter_ddl.protocol.events import AssignmentResult
from jupyter_ddl.protocol.fit import DropOutputs
from jupyter_ddl.protocol.group import JoinGroup, MembersChanged
from jupyter_ddl.protocol.reading import from_msgpack
from jupyter_ddl.protocol.sampling import SamplerAnswers, SamplerCall
from jupyter_ddl.worker.chunks import (
    CHUNKS_PER_S,
    CHUNKS_PER_S_OF_OTHERS,
    ChunkArchive,
    ChunkRelay,
)
from jupyter_ddl.worker.execution import Execution
from jupyter_ddl.worker.files import READ_BLOB, OwnFiles
from jupyter_ddl.worker.packages import EXTENSION, RankEnvironment
from jupyter_ddl.worker.persistent_ranks import CellRanks, SamplerRanks
from jupyter_ddl.worker.preemption import Leaving, bind_to_nanny
from jupyter_ddl.worker.rank_death import MemoryGuard
from jupyter_ddl.worker.rank_pool import RankPool
from jupyter_ddl.worker.telemetry.gpu_users import GpuUsers
from jupyter_ddl.worker.telemetry.worker_meter import SamplePost, WorkerMeter
from jupyter_ddl.worker.zygote_process import WorkerSettings

__all__ = [
    "CALL_RANK",
    "RankPlugin",
    "ask_sampler",
    "call_rank",
    "control",
    "copy_blob",
    "describe",
    "drop_outputs",
    "execute_assignment",
    "fetched",
    "holds",
    "list_checkpoints",
    "list_written",
    "missing_blobs",
    "plugin_of",
    "put_blob",
    "put_file",
    "read_part",
    "replay",
    "task_key",
]

_TASK_PREFIX = "ddl-"
"""Of the names of Dask tasks that execute assignments."""


# Removes outputs of prefixes from a host; called in its worker, which runs no user code.


def drop_outputs(message: DropOutputs) -> None:
    """Remove files by name, or with no names all of the run's.  Blocking.

    Users that have them mapped are not disturbed.
    """
    for directory in map(Path, message.dirs):
        names = list(message.names)
        if not names and directory.is_dir():
            names = [path.name for path in directory.glob(f"fit-{message.run_id}-*")]
        for name in names:
            if name.startswith(f"fit-{message.run_id}-"):
                with contextlib.suppress(OSError):
                    (directory / name).unlink()


# What the controller has a Dask worker do, by functions that Dask carries there by name.
#
# ``execute_assignment`` is the Dask task; the others are called with ``Client.run``.


async def execute_assignment(encoded: bytes) -> bytes:
    """Execute an encoded ``Assignment``: the Dask task function.

    Returns
    -------
    bytes
        An encoded ``AssignmentResult``, sent after all chunks of events.  Nothing that user code
        does makes this raise.
    """
    assignment = from_msgpack(encoded, Assignment)
    result = await plugin_of(get_worker()).execute(assignment)
    return msgspec.msgpack.encode(result)


async def call_rank(encoded: bytes, dask_worker: Worker) -> bytes:
    """The same as the worker's handler ``CALL_RANK``, for callers that can't reach the worker."""
    return await plugin_of(dask_worker).call_rank(encoded)


async def control(encoded: bytes, dask_worker: Worker) -> None:
    """Deliver an encoded ``Control``; its effect shows in the events."""
    message = from_msgpack(encoded, Control)
    await plugin_of(dask_worker).control(message)


async def ask_sampler(encoded: bytes, dask_worker: Worker) -> bytes:
    """Pass an encoded ``SamplerCall`` to the run's sampler; returns encoded ``SamplerAnswers``."""
    call = from_msgpack(encoded, SamplerCall)
    return msgspec.msgpack.encode(await plugin_of(dask_worker).ask_sampler(call))


def task_key(assignment_id: str) -> str:
    """Name of the Dask task that executes an assignment."""
    return f"{_TASK_PREFIX}{assignment_id}"


def holds(assignment_id: str, dask_worker: Worker) -> bool:
    """Whether the worker executes an assignment, or will when those before it are done."""
    return plugin_of(dask_worker).holds(assignment_id)


def replay(assignment_id: str, from_chunk: int, dask_worker: Worker) -> list[bytes]:
    """Encoded chunks of an assignment, from a number on, if it ended less than 30 s ago."""
    return plugin_of(dask_worker).replay(assignment_id, from_chunk)


def describe(dask_worker: Worker) -> dict[str, Any]:
    """Pids below a worker: ``zygote_pid`` and, for each of ``ranks``, ``pid`` and state."""
    return plugin_of(dask_worker).describe()


# What the controller has on every Dask worker: a plugin that holds its ranks.
#
# No user code runs in this process.

log = logging.getLogger(__name__)

_NAME = "jupyter_ddl"
CALL_RANK = "jupyter_ddl_call_rank"
"""Name of the worker's handler for calls to the ranks of persistent groups."""
_TEARDOWN_TIMEOUT_S = 15.0
_STOPPED_S = 5.0
"""How long an assignment of a stopped run may come behind the stop; it is not begun."""


class RankPlugin(WorkerPlugin):  # type: ignore[misc]
    """Holds a worker's rank processes from the worker's start to its close."""

    name = _NAME

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings

    def setup(self, worker: Worker) -> None:
        """Called on the worker's loop; the zygote starts in the background."""
        bind_to_nanny()
        if not self.settings.keeps_http:
            worker.http_server.stop()  # it knows neither users nor TLS, and nobody reads it
        self._worker = worker
        self._pool = RankPool(self.settings, self._on_notice)
        self._samplers = SamplerRanks(self._pool)
        self._cell_ranks = CellRanks(self._pool)
        worker.extensions[EXTENSION] = RankEnvironment(self._pool)
        self.files = None if self.settings.shares_files else OwnFiles()
        worker.handlers[CALL_RANK] = self.call_rank
        if self.files is not None:
            worker.handlers[READ_BLOB] = self.files.read_blob
        self._archive = ChunkArchive()
        self._executions: dict[str, Execution] = {}
        self._stopped_at_s: dict[str, float] = {}
        self._notices: list[str] = []
        self._tasks = BackgroundTasks(log, f"worker {worker.address}")
        self._leaving = Leaving(
            worker, lambda: tuple(self._executions.values()), lambda: self._n_unfetched
        )
        self._tasks.start(self._start_zygote(), "ddl-zygote-start")
        if self.settings.rank_memory_bytes is not None:
            guard = MemoryGuard(self.settings.rank_memory_bytes, lambda: self._pool.ranks)
            self._tasks.start(guard.watch(), "ddl-memory-guard")
        self._post: SamplePost | None = None
        self._telemetry = meter = self._start_telemetry()
        self._gpu_users = GpuUsers(lambda: () if meter is None else meter.gpus)

    def _start_telemetry(self) -> WorkerMeter | None:
        settings, worker = self.settings, self._worker
        if not settings.telemetry_interval_s:
            return None
        self._post = SamplePost(settings.telemetry_interval_s, self._publish_sample)
        meter = WorkerMeter(
            str(worker.name),
            settings.telemetry_interval_s,
            ranks=lambda: self._pool.ranks,
            publish=self._post.put,
            zygotes=lambda: self._pool.zygote_pids,
            rank_memory_bytes=settings.rank_memory_bytes,
            n_slots=worker.state.nthreads,
        )
        meter.start()
        return meter

    def _publish_chunk(self, topic: str, chunk: bytes) -> None:
        self._worker.log_event(topic, chunk)
        if self._post is not None:
            self._post.go_along()

    def _publish_sample(self, sample: bytes) -> None:
        with contextlib.suppress(OSError):  # the scheduler is away: the next one tells more
            self._worker.log_event(self.settings.telemetry_topic, sample)

    async def teardown(self, worker: Worker) -> None:
        """End everything below this worker, which may go on without us."""
        self._leaving.close()
        worker.extensions.pop(EXTENSION, None)
        worker.handlers.pop(CALL_RANK, None)
        worker.handlers.pop(READ_BLOB, None)
        if self._post is not None:
            self._post.close()
        if self._telemetry is not None:
            await asyncio.to_thread(self._telemetry.close)
        await self._tasks.close()
        try:
            async with asyncio.timeout(_TEARDOWN_TIMEOUT_S):
                await self._pool.close()
        except TimeoutError:
            log.error("worker %s: its rank processes did not end in time", self._worker.address)

    async def execute(self, assignment: Assignment) -> AssignmentResult:
        """Execute an assignment; one that was executed already is not executed again."""
        assignment_id = assignment.assignment_id
        if (running := self._executions.get(assignment_id)) is not None:
            await running.over.wait()
        n_chunks = self._archive.n_chunks_of_finished(assignment_id)
        if n_chunks is not None:
            return AssignmentResult(assignment_id, n_chunks)
        if time.monotonic() - self._stopped_at_s.get(assignment.run_id, -_STOPPED_S) < _STOPPED_S:
            return AssignmentResult(assignment_id, 0)
        if self.files is not None:
            self.files.unfetched.add(assignment_id)
            assignment = self.files.local(assignment)
        topic, place = assignment.topic, assignment.place
        relay = ChunkRelay(
            assignment.run_id,
            assignment_id,
            lambda chunk: self._publish_chunk(topic, chunk),
            self._archive,
            CHUNKS_PER_S_OF_OTHERS if place is not None and place.rank else CHUNKS_PER_S,
        )
        execution = Execution(assignment, self._pool, relay, str(self._worker.name))
        self._executions[assignment_id] = execution
        try:
            if self._leaving.begun:
                execution.refuse()
            else:
                self._notices += self._gpu_users.strangers(assignment.run_id, assignment.own_gpus)
                self._hand_over_notices(execution)
                await execution.run()
                self._hand_over_notices(execution)
        finally:
            del self._executions[assignment_id]
            n_chunks = relay.close()
            execution.over.set()
        return AssignmentResult(assignment_id, n_chunks)

    async def control(self, message: Control) -> None:
        """Act on a signal; returns when it is on its way, not when its effect is complete."""
        if isinstance(message, Prewarm):
            self._tasks.start(self._prewarm(message.imports), "ddl-prewarm")
        elif isinstance(message, StopTrial):
            for execution in self._of_run(message.run_id):
                self._tasks.start(execution.stop_trial(message), "ddl-stop-trial")
        elif isinstance(message, JoinGroup | MembersChanged):
            for execution in self._of_run(message.run_id):
                execution.pass_on(message)
        elif isinstance(message, DumpStacks):
            for execution in self._of_run(message.run_id):
                self._tasks.start(execution.probe(message), "ddl-probe")
        elif isinstance(message, DropOutputs):
            await asyncio.to_thread(drop_outputs, message)
        elif isinstance(message, StopRun):
            self._stop_run(message)

    async def _prewarm(self, names: tuple[str, ...]) -> None:
        try:
            await self._pool.import_packages(names)
        except LaunchError as error:
            log.warning("worker %s: %s", self._worker.address, error)

    def _stop_run(self, message: StopRun) -> None:
        now = time.monotonic()
        recent = {run: at_s for run, at_s in self._stopped_at_s.items() if now - at_s < _STOPPED_S}
        self._stopped_at_s = {**recent, message.run_id: now}
        if message.is_over:
            del self._stopped_at_s[message.run_id]  # what comes now, comes from its next session
            self._samplers.end(message.run_id)
            if self.files is not None:
                self.files.forget(message.run_id)
        for execution in self._of_run(message.run_id):
            self._tasks.start(execution.stop_run(message), "ddl-stop-run")
        self._pool.discard_idle(message.run_id)

    async def call_rank(self, payload: bytes) -> bytes:
        """Answer an encoded ``RankCall``.

        A handler of the worker's own, because the way through the scheduler takes 2 ms.
        """
        call = from_msgpack(payload, RankCall)
        if self.files is not None and isinstance(call, OpenRank):
            call = self.files.local(call)
        elif self.files is not None and isinstance(call, RunCell):
            call = self.files.local_cell(call)
        answer = await self._cell_ranks.call(call)
        if self.files is not None and call.group_id not in self._cell_ranks.group_ids:
            self.files.forget(call.group_id)
        return msgspec.msgpack.encode(answer)

    async def ask_sampler(self, call: SamplerCall) -> SamplerAnswers:
        return await self._samplers.call(call if self.files is None else self.files.local(call))

    def holds(self, assignment_id: str) -> bool:
        if assignment_id in self._executions:
            return True
        state = self._worker.state
        task = state.tasks.get(task_key(assignment_id))
        is_waiting = task is not None and task.state in ("ready", "waiting", "constrained")
        return is_waiting and state.executing_count >= state.nthreads

    def replay(self, assignment_id: str, from_chunk: int) -> list[bytes]:
        return self._archive.chunks(assignment_id, from_chunk)

    def describe(self) -> dict[str, Any]:
        return {
            "worker": str(self._worker.name),
            "zygote_pid": self._pool.zygote_pid,
            "ranks": [
                {"pid": r.pid, "run_id": r.run_id, "is_busy": r.is_busy, "log": r.log}
                for r in self._pool.ranks
            ],
            "assignments": list(self._executions),
        }

    @property
    def _n_unfetched(self) -> int:
        """Assignments of which files, or what their task has returned, are still to be fetched."""
        n_files = 0 if self.files is None else len(self.files.unfetched)
        if self._worker.status in (Status.closing, Status.closed):
            return n_files  # the scheduler is gone, too, and would tell of no task's end
        tasks = self._worker.state.tasks
        return n_files + sum(str(key).startswith(_TASK_PREFIX) for key in tasks)

    def _of_run(self, run_id: str) -> list[Execution]:
        return [e for e in self._executions.values() if e.run_id == run_id]

    async def _start_zygote(self) -> None:
        try:
            await self._pool.start()
        except LaunchError as error:
            # The next assignment tries again, and tells the user if that fails too.
            log.warning("worker %s: %s", self._worker.address, error)

    def _on_notice(self, text: str) -> None:
        log.warning("worker %s: %s", self._worker.address, text)
        self._notices.append(text)

    def _hand_over_notices(self, execution: Execution) -> None:
        notices, self._notices = self._notices, []
        for text in notices:
            execution.notice(f"worker {self._worker.name}: {text}")


def plugin_of(worker: Worker) -> RankPlugin:
    plugin = worker.plugins.get(_NAME)
    if not isinstance(plugin, RankPlugin):
        raise LaunchError(
            f"worker {worker.address} has no rank plugin; register RankPlugin with the client "
            f"before work is sent"
        )
    return plugin


def missing_blobs(run_id: str, digests: tuple[str, ...], dask_worker: Worker) -> list[str]:
    return _files(dask_worker).missing_blobs(run_id, digests)


def put_blob(digest: str, offset: int, data: bytes, is_last: bool, dask_worker: Worker) -> None:
    _files(dask_worker).put_blob(digest, offset, data, is_last)


async def copy_blob(digest: str, source: str, dask_worker: Worker) -> bool:
    """Have a worker fetch a blob from the one at ``source``; False when it is not there."""
    return await _files(dask_worker).copy_blob(digest, dask_worker.rpc(source))


def list_checkpoints(run_id: str, trial: int, dask_worker: Worker) -> list[str]:
    return _files(dask_worker).checkpoints(run_id, trial)


def put_file(
    run_id: str, path: str, offset: int, data: bytes, is_last: bool, dask_worker: Worker
) -> None:
    _files(dask_worker).put_file(run_id, path, offset, data, is_last)


def read_part(
    run_id: str, path: str, offset: int, limit: int, dask_worker: Worker
) -> tuple[bytes, int] | None:
    return _files(dask_worker).read(run_id, path, offset, limit)


async def list_written(run_id: str, dask_worker: Worker) -> bytes:
    """What ranks have written in the folder of their run: an encoded list of ``FolderFile``."""
    found = await asyncio.to_thread(_files(dask_worker).written, run_id)
    return msgspec.msgpack.encode(found)


def fetched(assignment_id: str, dask_worker: Worker) -> None:
    """Everything that an assignment has made is at the controller: the worker may go."""
    _files(dask_worker).unfetched.discard(assignment_id)


def _files(worker: Worker) -> OwnFiles:
    files = plugin_of(worker).files
    if files is None:
        raise LaunchError(f"worker {worker.address} shares the controller's files")
    return files
