"""Carries files between the controller and workers that have a file system of their own.

Down go blobs (once per worker and run) and checkpoints (when a trial goes on elsewhere).  A large
blob leaves here once: workers give it to one another.  Up come logs, checkpoints and values; an
event that names a file is passed on once the file is here, so that what the ledger says is always
true of the run directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from distributed import Client

from jupyter_ddl.driving.calls import WorkerLostError, call_worker, decoded
from jupyter_ddl.formats import format_bytes
from jupyter_ddl.protocol.assignment import Assignment
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    CheckpointSaved,
    Notice,
    OutputShown,
    ProfileTaken,
    RankEvent,
)
from jupyter_ddl.protocol.fit import FitTable
from jupyter_ddl.protocol.folder import FolderFile, home_path, matches
from jupyter_ddl.protocol.program import Program, blobs_of
from jupyter_ddl.protocol.reading import from_msgpack, msgpack_decoder
from jupyter_ddl.ranks.checkpoints import checkpoint_names, keep_newest
from jupyter_ddl.store.atomic import replacing
from jupyter_ddl.store.blobs import BlobMissingError, find_blob, read_blob
from jupyter_ddl.worker import plugin as file_calls
from jupyter_ddl.worker.files import FOLDER

__all__ = ["AssignmentFiles", "FileTransfer", "OnEvents", "needed_blobs"]

log = logging.getLogger(__name__)

PART_BYTES = 4 << 20
"""Of one call: small enough for the scheduler in between to stay responsive."""
_N_SENT = 2
"""Checkpoints that go down: a second one, should the newest be broken."""
_SHARED_BYTES = 1 << 20
"""Blobs from this size on are fetched from a worker that has them already."""
_N_SERVED = 2
"""Workers that one worker gives a blob to at a time: then the number that has it grows fastest."""
_SLOWEST_BYTES_PER_S = 1 << 20
_CALL_S = 60.0
_LOG_INTERVAL_S = 1.0

_LISTING = msgpack_decoder(list[FolderFile])

OnEvents = Callable[[Sequence[RankEvent]], None]


class _NoLongerThere(Exception):
    """A worker has not got a file any more."""


class FileTransfer:
    """Used on the controller's loop only.

    Parameters
    ----------
    name_of : callable
        The name of a worker, by its address.
    """

    def __init__(self, client: Client, name_of: Callable[[str], str] = str) -> None:
        self.client = client
        self.name_of = name_of
        self._brought: dict[tuple[str, str, str], FolderFile] = {}
        self._has: set[tuple[str, str]] = set()
        self._sending: dict[str, asyncio.Lock] = {}
        self._sources: dict[str, asyncio.Queue[str | None]] = {}

    # -- down ------------------------------------------------------------------------------------

    async def send_blobs(
        self, worker: str, run_id: str, name: str, digests: Iterable[str], dirs: Iterable[Path]
    ) -> None:
        """Make sure that a worker has these blobs.

        Parameters
        ----------
        name : str
            What they are the blobs of: asked about once per worker.

        Raises
        ------
        WorkerLostError
            The worker is gone.
        BlobMissingError
            The controller's own store has lost one.
        """
        async with self._sending.setdefault(worker, asyncio.Lock()):
            if (worker, name) in self._has:
                return
            directories = tuple(dirs)
            missing = await self._call(
                worker,
                file_calls.missing_blobs,
                run_id,
                tuple(dict.fromkeys(digests)),
                gives=list[str],
            )
            for digest in missing:
                path = await asyncio.to_thread(find_blob, digest, directories)
                if path is None:
                    raise BlobMissingError(digest)
                await self._bring(worker, digest, path)
            self._has.add((worker, name))

    async def _bring(self, worker: str, digest: str, path: Path) -> None:
        """Let a worker have a blob, from another worker if one can give it.

        Places to have it from wait in a queue, first this one (None).  Whoever takes one puts at
        least one back, whatever happens: so nobody waits for longer than others take.
        """
        size = _size_of(path)
        if size < _SHARED_BYTES:
            await self._send(worker, path, file_calls.put_blob, digest)
            return
        if digest not in self._sources:
            self._sources[digest] = asyncio.Queue()
            self._sources[digest].put_nowait(None)
        sources = self._sources[digest]
        source = await sources.get()
        back: list[str | None] = [source]
        try:
            if source is None or not await self._copy(worker, source, digest, size):
                back = [None]
                await self._send(worker, path, file_calls.put_blob, digest)
                log.info("sent %d bytes of %s to %s", size, digest, worker)
                back = []
            back += [worker] * _N_SERVED
        finally:
            for each in back:
                sources.put_nowait(each)

    async def _copy(self, worker: str, source: str, digest: str, size: int) -> bool:
        """Whether one worker could give a blob to another."""
        timeout_s = _CALL_S + size / _SLOWEST_BYTES_PER_S
        try:
            return bool(
                await self._call(
                    worker, file_calls.copy_blob, digest, source, gives=bool, timeout_s=timeout_s
                )
            )
        except WorkerLostError as error:
            log.info("%s does not get a blob from %s: %s", worker, source, error.message)
            return False

    async def send_checkpoints(self, worker: str, run_id: str, run_dir: Path, trial: int) -> None:
        """Bring the newest checkpoints of a trial to where it goes on."""
        directory = run_dir / "checkpoints"
        wanted = checkpoint_names(directory, trial)[:_N_SENT]
        if not wanted:
            return
        there = await self._call(
            worker, file_calls.list_checkpoints, run_id, trial, gives=list[str]
        )
        for name in wanted:
            if name in there:
                continue
            path = f"checkpoints/trial-{trial}/{name}"
            await self._send(worker, run_dir / path, file_calls.put_file, run_id, path)

    async def send_written(
        self, worker: str, run_id: str, run_dir: Path, patterns: Sequence[str]
    ) -> None:
        """Let a worker have the files that came back, so that a script goes on from them there."""
        newest: dict[str, Path] = {}
        root = run_dir / FOLDER
        for path in sorted(root.glob("*/**/*"), key=lambda each: each.lstat().st_mtime):
            if path.is_file():
                newest[path.relative_to(root).as_posix().partition("/")[2]] = path
        wanted = {name: path for name, path in newest.items() if matches(name, patterns)}
        if not wanted:
            return
        there = {file.path for file in await self.list_written(worker, run_id)}
        for name, path in wanted.items():
            if name not in there:
                await self._send(worker, path, file_calls.put_file, run_id, f"{FOLDER}/{name}")

    async def _send(self, worker: str, path: Path, put: Callable[..., None], *target: str) -> None:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            offset, is_last = 0, False
            while not is_last:
                data = await asyncio.to_thread(file.read, PART_BYTES)
                is_last = not data or offset + len(data) >= size
                await self._call(worker, put, *target, offset, data, is_last, gives=None)
                offset += len(data)

    def worker_lacks(self, worker: str, run_id: str) -> None:
        """It has lost a blob of a run: what it has of this run is asked for anew."""
        self._has = {
            (at, name) for at, name in self._has if at != worker or not name.startswith(run_id)
        }

    def worker_removed(self, worker: str) -> None:
        self._has = {known for known in self._has if known[0] != worker}
        self._sending.pop(worker, None)

    # -- up --------------------------------------------------------------------------------------

    async def fetch_for(
        self,
        worker: str,
        run_id: str,
        run_dir: Path,
        events: Sequence[RankEvent],
        logs: set[str],
        patterns: Sequence[str] = (),
    ) -> list[RankEvent]:
        """Fetch what events speak of; those whose files are gone for good are left out.

        Parameters
        ----------
        logs : set of str
            Names of the logs of this assignment; grows.
        patterns : sequence of str
            Of files that come back with an attempt's end.

        Raises
        ------
        WorkerLostError
            The worker is gone before the files were here.
        """
        logs.update(each.log for each in events if isinstance(each, AttemptStarted) and each.log)
        if any(isinstance(each, AttemptFinished) for each in events):
            with contextlib.suppress(WorkerLostError):  # a result is worth more than its log's end
                await self.fetch_logs(worker, run_id, run_dir, logs)
        kept = [each for each in events if await self._has_file(worker, run_id, run_dir, each)]
        if patterns and any(isinstance(each, AttemptFinished) for each in events):
            kept += await self._bring_written(worker, run_id, run_dir, patterns)
        return kept

    async def _bring_written(
        self, worker: str, run_id: str, run_dir: Path, patterns: Sequence[str]
    ) -> list[RankEvent]:
        """Fetch what ranks have written and somebody asked for; notices of what stays there."""
        try:
            written = await self.list_written(worker, run_id)
        except WorkerLostError:
            return []
        for file in written:
            key = run_id, worker, file.path
            if not matches(file.path, patterns) or self._brought.get(key) == file:
                continue
            try:
                await self.fetch_written(worker, run_id, run_dir, file)
            except WorkerLostError:
                return []
            except OSError as error:
                text = (
                    f"{file.path} ({format_bytes(file.size_bytes)}) does not come back: "
                    f"{error.strerror}; it stays on worker {worker}, and `run.files` fetches it "
                    f"when there is room"
                )
                return [Notice(time.time(), text)]
            self._brought[key] = file
        return []

    async def list_written(self, worker: str, run_id: str) -> list[FolderFile]:
        """What ranks have written in the folder of a run on a worker.

        Raises
        ------
        WorkerLostError
            It is gone, or does not answer.
        """
        found = await self._call(worker, file_calls.list_written, run_id, gives=bytes)
        return decoded(worker, found, _LISTING)

    async def fetch_written(
        self, worker: str, run_id: str, run_dir: Path, file: FolderFile
    ) -> bool:
        """Fetch one of those; False when the worker no longer has it."""
        target = run_dir / home_path(self.name_of(worker), file.path)
        if not await self._fetch_to(target, worker, run_id, f"{FOLDER}/{file.path}"):
            return False
        os.utime(target, (file.changed_at_s, file.changed_at_s))  # by that it is known again
        return True

    async def _has_file(self, worker: str, run_id: str, run_dir: Path, event: RankEvent) -> bool:
        if isinstance(event, CheckpointSaved):
            path = f"checkpoints/{event.file}"
            if not await self.fetch(worker, run_id, run_dir, path):
                return False  # a newer one has taken its place already
            target = run_dir / path
            await asyncio.to_thread(keep_newest, target.parent, target)
        elif isinstance(event, OutputShown):
            return await self.fetch(worker, run_id, run_dir, f"outputs/{event.file}")
        elif isinstance(event, ProfileTaken):
            return await self.fetch(worker, run_id, run_dir, f"profiles/{event.file}")
        elif isinstance(event, AttemptFinished) and event.values_file is not None:
            return await self.fetch(worker, run_id, run_dir, f"values/{event.values_file}")
        return True

    async def fetch(self, worker: str, run_id: str, run_dir: Path, path: str) -> bool:
        """Fetch a whole file; False when the worker no longer has it."""
        return await self._fetch_to(run_dir / path, worker, run_id, path)

    async def _fetch_to(self, target: Path, worker: str, run_id: str, path: str) -> bool:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with replacing(target) as file:
                await self._read_into(file, worker, run_id, path)
                await asyncio.to_thread(_flush_to_disk, file)
        except _NoLongerThere:
            return False
        return True

    async def _read_into(self, file: Any, worker: str, run_id: str, path: str) -> None:
        offset = 0
        while True:
            part = await self._part(worker, run_id, path, offset)
            if part is None:
                raise _NoLongerThere
            data, size = part
            if not data and offset < size:
                raise _NoLongerThere  # it has become shorter, or never was so long
            await asyncio.to_thread(file.write, data)
            offset += len(data)
            if offset >= size:
                return

    async def fetch_logs(
        self, worker: str, run_id: str, run_dir: Path, names: Iterable[str]
    ) -> None:
        """Append what logs have grown by since they were fetched last."""
        for name in tuple(names):
            path = run_dir / "logs" / name
            with path.open("ab") as file:
                while True:
                    offset = file.tell()
                    part = await self._part(worker, run_id, f"logs/{name}", offset)
                    if part is None or file.tell() != offset:
                        break
                    _append(file, part[0])
                    if file.tell() >= part[1]:
                        break
            path.chmod(0o600)

    async def _part(
        self, worker: str, run_id: str, path: str, offset: int
    ) -> tuple[bytes, int] | None:
        found: tuple[bytes, int] | None = await self._call(
            worker,
            file_calls.read_part,
            run_id,
            path,
            offset,
            PART_BYTES,
            gives=tuple[bytes, int] | None,
        )
        return found

    async def all_fetched(self, worker: str, assignment_id: str) -> None:
        """Tell a worker that it may go as far as this assignment is concerned."""
        with contextlib.suppress(WorkerLostError):
            await self._call(worker, file_calls.fetched, assignment_id, gives=None)

    async def _call(
        self,
        worker: str,
        function: Callable[..., Any],
        *args: Any,
        gives: Any,
        timeout_s: float = _CALL_S,
    ) -> Any:
        return await call_worker(
            self.client, worker, function, *args, gives=gives, timeout_s=timeout_s
        )


class AssignmentFiles:
    """Files of one assignment: down before it starts, up before its events are passed on.

    Used on the controller's loop only: ``begin``, ``add`` …, ``finish``; always ``close``.
    """

    def __init__(
        self, transfer: FileTransfer, assignment: Assignment, worker: str, on_events: OnEvents
    ) -> None:
        self._transfer = transfer
        self._assignment = assignment
        self._run_dir = Path(assignment.run_dir)
        self._worker = worker
        self._on_events = on_events
        self._logs: set[str] = set()
        self._waiting: list[RankEvent] = []
        self._arrived = asyncio.Event()
        self._is_over = False
        self._turn = asyncio.Lock()
        self._pump = asyncio.create_task(self._pass_on(), name="ddl-fetch")
        self._tail = asyncio.create_task(self._follow_logs(), name="ddl-logs")

    async def begin(self) -> None:
        """Send down what the trials need.

        Raises
        ------
        WorkerLostError
            The worker is gone.
        BlobMissingError
            The controller's own store has lost a blob.
        """
        assignment = self._assignment
        dirs = tuple(Path(directory) for directory in assignment.blob_dirs)
        digests = needed_blobs(assignment.program, dirs)
        await self._transfer.send_blobs(
            self._worker, assignment.run_id, assignment.run_id, digests, dirs
        )
        if assignment.fit is not None:
            table = assignment.fit.table
            await self._transfer.send_blobs(
                self._worker, assignment.run_id, table, needed_blobs(table, dirs, FitTable), dirs
            )
        if assignment.bring_files:
            await self._transfer.send_written(
                self._worker, assignment.run_id, self._run_dir, assignment.bring_files
            )
        for trial in assignment.trials:
            await self._transfer.send_checkpoints(
                self._worker, assignment.run_id, self._run_dir, trial.trial
            )

    def add(self, events: Sequence[RankEvent]) -> None:
        """Events have come; they go on in this order."""
        self._waiting.extend(events)
        self._arrived.set()

    async def finish(self) -> None:
        """Every event was added: wait until all have been passed on.

        Raises
        ------
        WorkerLostError
            The worker is gone with files that events speak of.
        """
        self._is_over = True
        self._arrived.set()
        await self._pump
        await self._transfer.all_fetched(self._worker, self._assignment.assignment_id)

    async def close(self) -> None:
        for task in (self._pump, self._tail):
            task.cancel()
        await asyncio.gather(self._pump, self._tail, return_exceptions=True)

    async def _pass_on(self) -> None:
        while self._waiting or not self._is_over:
            self._arrived.clear()
            events, self._waiting = self._waiting, []
            if any(map(_lacks_blob, events)):
                self._transfer.worker_lacks(self._worker, self._assignment.run_id)
            if events:
                async with self._turn:
                    ready = await self._transfer.fetch_for(
                        self._worker,
                        self._assignment.run_id,
                        self._run_dir,
                        events,
                        self._logs,
                        self._assignment.bring_files,
                    )
                self._on_events(ready)
            elif not self._is_over:
                await self._arrived.wait()

    async def _follow_logs(self) -> None:
        """What is printed shows in the run directory a second later."""
        while True:
            await asyncio.sleep(_LOG_INTERVAL_S)
            with contextlib.suppress(WorkerLostError):  # the flight itself ends by that
                async with self._turn:
                    await self._transfer.fetch_logs(
                        self._worker, self._assignment.run_id, self._run_dir, self._logs
                    )


def needed_blobs(
    digest: str, dirs: Iterable[Path], kind: type[Program] | type[FitTable] = Program
) -> list[str]:
    """Everything that a rank needs to load a program, or a batch of fits, itself included.

    Raises
    ------
    BlobMissingError
        It is not in the controller's store.
    """
    return [digest, *blobs_of(from_msgpack(read_blob(digest, dirs), kind))]


def _lacks_blob(event: RankEvent) -> bool:
    failure = event.failure if isinstance(event, AttemptFinished) else None
    return failure is not None and failure.kind == "blob"


def _size_of(path: Path) -> int:
    return path.stat().st_size


def _append(file: Any, data: bytes) -> None:
    """Write it, or as much of nothing: what the worker has cut takes no room here either."""
    if data.count(0) < len(data):
        file.write(data)
        file.flush()
    else:
        file.truncate(file.tell() + len(data))
        file.seek(0, os.SEEK_END)


def _flush_to_disk(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
