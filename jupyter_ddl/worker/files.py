"""Files of a worker that does not see the controller's run directories: one on another host.

Ranks read and write here as they do anywhere.  The controller sends down what they need (blobs,
checkpoints) and fetches what they made (logs, checkpoints, values), part by part, through Dask's
own encrypted connections.  Workers fetch large blobs from one another.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import shutil
import stat
import time
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import msgspec

from jupyter_ddl.errors import OptionError, ProtocolError
from jupyter_ddl.formats import format_bytes
from jupyter_ddl.protocol.assignment import Assignment
from jupyter_ddl.protocol.cells import OpenRank, RunCell
from jupyter_ddl.protocol.folder import FolderFile, WorkFolder, is_data_stamp
from jupyter_ddl.protocol.names import is_written_path
from jupyter_ddl.protocol.sampling import SamplerCall
from jupyter_ddl.ranks.checkpoints import checkpoint_names
from jupyter_ddl.store.log_space import DEFAULT_LOG_BYTES, bound_logs, log_budget
from jupyter_ddl.store.paths import home_dir, private_dir

__all__ = ["FOLDER", "READ_BLOB", "OwnFiles"]

log = logging.getLogger(__name__)

READ_BLOB = "jupyter_ddl_read_blob"
"""Name of the worker's handler for parts of its blobs, which other workers call."""

Located = TypeVar("Located", Assignment, SamplerCall, OpenRank)

_KEPT_BYTES = 1 << 30
"""Blobs of ended runs that stay for the next one."""
FOLDER = "files"
"""Where ranks work, in the directory of their run."""
KEPT_FOLDER_BYTES = 20 << 30
"""What ranks of ended runs have written that stays until somebody wants it."""
_MAX_LISTED = 1_000
_MAX_LOOKED_AT = 20_000
_PART_BYTES = 4 << 20
_PART_S = 30.0
_LOGS_INTERVAL_S = 0.5


class OwnFiles:
    """Used on the worker's loop only; every call is one small read or write."""

    def __init__(self) -> None:
        # Never the controller's own tree, should somebody mount its home here all the same.
        root = private_dir(home_dir() / "away")
        self._blob_dir = private_dir(root / "blobs")
        self._runs_dir = private_dir(root / "runs")
        self._blobs_of: dict[str, frozenset[str]] = {}
        self._logs_due_s: dict[str, float] = {}
        """By run, from when on the length of its logs is looked at again."""
        self._log_bytes = _log_bytes()
        self.unfetched: set[str] = set()
        """Assignments whose files the controller has not all fetched yet."""

    def local(self, message: Located) -> Located:
        """The same message with this host's directories in place of the controller's."""
        run_id = message.group_id if isinstance(message, OpenRank) else message.run_id
        directory = private_dir(self._run_dir(run_id))
        for name in ("logs", "checkpoints", "values"):
            private_dir(directory / name)
        local = msgspec.structs.replace(
            message, run_dir=str(directory), blob_dirs=(str(self._blob_dir),)
        )
        if isinstance(local, SamplerCall):
            return msgspec.structs.replace(
                local, start=msgspec.structs.replace(local.start, folder="")
            )
        if isinstance(local, Assignment):
            local = msgspec.structs.replace(local, folder=self._folder(run_id))
            if local.fit is not None:
                work = msgspec.structs.replace(local.fit, spill_dir=str(directory / "spill"))
                return msgspec.structs.replace(local, fit=work)
        return local

    def local_cell(self, call: RunCell) -> RunCell:
        """The same for a cell of a persistent group."""
        if not call.cell.folder.path:
            return call
        cell = msgspec.structs.replace(call.cell, folder=self._folder(call.group_id))
        return msgspec.structs.replace(call, cell=cell)

    def _folder(self, run_id: str) -> WorkFolder:
        return WorkFolder(str(self._run_dir(run_id) / FOLDER), is_own=True)

    # -- down ------------------------------------------------------------------------------------

    def missing_blobs(self, run_id: str, digests: tuple[str, ...]) -> list[str]:
        """Which blobs of a run are not here; the others stay until the run is over."""
        self._blobs_of[run_id] = self._blobs_of.get(run_id, frozenset()) | frozenset(digests)
        return [digest for digest in digests if not (self._blob_dir / digest).exists()]

    def put_blob(self, digest: str, offset: int, data: bytes, is_last: bool) -> None:
        """One part of a blob; it is whole and visible with the last one."""
        _put_part(self._blob_dir / _plain_name(digest), offset, data, is_last)

    def read_blob(self, digest: str, offset: int) -> tuple[bytes, int] | None:
        """A part of a blob from ``offset`` on, and its whole size; None when it is not here."""
        return _read_part(self._blob_dir / _plain_name(digest), offset, _PART_BYTES)

    async def copy_blob(self, digest: str, source: Any) -> bool:
        """Fetch a blob from another worker; False when that one does not have it.

        Parameters
        ----------
        source : distributed.core.PooledRPCCall
            Calls to the other worker.

        Raises
        ------
        TimeoutError
            A part took longer than 30 s.
        """
        if (self._blob_dir / _plain_name(digest)).exists():
            return True  # workers of one host share the directory
        offset, is_last = 0, False
        while not is_last:
            async with asyncio.timeout(_PART_S):
                part = await getattr(source, READ_BLOB)(digest=digest, offset=offset)
            if part is None:
                return False
            data, size = part
            is_last = offset + len(data) >= size
            self.put_blob(digest, offset, data, is_last)
            offset += len(data)
        return True

    def checkpoints(self, run_id: str, trial: int) -> list[str]:
        """Names of a trial's checkpoints that are here, the newest first."""
        return checkpoint_names(self._run_dir(run_id) / "checkpoints", trial)

    def put_file(self, run_id: str, path: str, offset: int, data: bytes, is_last: bool) -> None:
        """One part of a file of a run."""
        target = self._inside(run_id, path)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _put_part(target, offset, data, is_last)

    # -- up --------------------------------------------------------------------------------------

    def read(self, run_id: str, path: str, offset: int, limit: int) -> tuple[bytes, int] | None:
        """Bytes of a run's file from ``offset`` on, and its size; None when it is not here."""
        if PurePosixPath(path).parts[:1] == ("logs",):
            self._bound_logs(run_id)
        return _read_part(self._inside(run_id, path), offset, limit)

    def _bound_logs(self, run_id: str) -> None:
        """Logs are asked for once a second: the moment to see how long they are here."""
        if time.monotonic() >= self._logs_due_s.get(run_id, 0.0):
            with contextlib.suppress(OSError):  # the controller tells of its own copies
                bound_logs(self._run_dir(run_id) / "logs", self._log_bytes)
            self._logs_due_s[run_id] = time.monotonic() + _LOGS_INTERVAL_S

    def written(self, run_id: str) -> list[FolderFile]:
        """What ranks have written in the run's folder here, the latest of many; blocking."""
        folder = self._run_dir(run_id) / FOLDER
        found = []
        for path in itertools.islice(folder.rglob("*"), _MAX_LOOKED_AT):
            with contextlib.suppress(OSError):
                seen = path.lstat()
                name = path.relative_to(folder).as_posix()
                is_ours = is_data_stamp(seen.st_mtime) or path.name.startswith(".partial-")
                if stat.S_ISREG(seen.st_mode) and not is_ours and is_written_path(name):
                    found.append(FolderFile(name, seen.st_size, seen.st_mtime))
        found.sort(key=lambda each: -each.changed_at_s)
        return sorted(found[:_MAX_LISTED], key=lambda each: each.path)

    # -- the end ---------------------------------------------------------------------------------

    def forget(self, run_id: str) -> None:
        """A run is over, and all of it is at the controller but for what its ranks have written."""
        self._blobs_of.pop(run_id, None)
        self._logs_due_s.pop(run_id, None)
        directory = self._run_dir(run_id)
        if self.written(run_id):
            for path in directory.iterdir():
                if path.name != FOLDER:
                    shutil.rmtree(path, ignore_errors=True)
            self._trim_folders()
        else:
            shutil.rmtree(directory, ignore_errors=True)
        needed = frozenset().union(*self._blobs_of.values())
        self._trim(needed)

    def _run_dir(self, run_id: str) -> Path:
        if not run_id.replace("-", "").isalnum():
            raise ProtocolError(f"{run_id!r} is not the id of a run")
        return self._runs_dir / run_id

    def _inside(self, run_id: str, path: str) -> Path:
        relative = PurePosixPath(path)
        if relative.is_absolute() or ".." in relative.parts:
            raise ProtocolError(f"{path!r} is not a file of run {run_id}")
        return self._run_dir(run_id) / relative

    def _trim_folders(self) -> None:
        """Forget what the oldest ended runs have written, where it has become too much."""
        ended = [each for each in self._runs_dir.iterdir() if not (each / "logs").exists()]
        n_bytes = 0
        for directory in sorted(ended, key=lambda each: -each.stat().st_mtime):
            n_bytes += sum(each.size_bytes for each in self.written(directory.name))
            if n_bytes > KEPT_FOLDER_BYTES:
                shutil.rmtree(directory, ignore_errors=True)

    def _trim(self, needed: frozenset[str]) -> None:
        left: list[tuple[float, int, Path]] = []
        for path in self._blob_dir.iterdir():
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                if path.name not in needed:
                    left.append((stat.st_mtime, stat.st_size, path))
        n_bytes = sum(size for _, size, _ in left)
        for _, size, path in sorted(left):
            if n_bytes <= _KEPT_BYTES:
                return
            path.unlink(missing_ok=True)
            n_bytes -= size


def _log_bytes() -> int:
    """A worker's environment is whoever's started it: no run fails for what it says wrongly."""
    try:
        return log_budget()
    except OptionError as error:
        usual = format_bytes(DEFAULT_LOG_BYTES)
        log.warning("%s; the logs of a run may take %s on this worker", error, usual)
        return DEFAULT_LOG_BYTES


def _read_part(path: Path, offset: int, limit: int) -> tuple[bytes, int] | None:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(offset)
            return file.read(limit), size
    except FileNotFoundError:
        return None


def _put_part(target: Path, offset: int, data: bytes, is_last: bool) -> None:
    # Workers of one host may share the folder: each writes parts of its own.
    partial = target.with_name(f".partial-{os.getpid()}-{target.name}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if offset == 0 else 0)
    fd = os.open(partial, flags, 0o600)
    with os.fdopen(fd, "wb") as file:
        size = os.fstat(file.fileno()).st_size
        if size != offset:
            raise ProtocolError(f"{target.name}: a part at {offset:,} came behind {size:,} bytes")
        file.seek(offset)
        file.write(data)
    if is_last:
        partial.replace(target)


def _plain_name(name: str) -> str:
    if not name.isalnum():
        raise ProtocolError(f"{name!r} is not the digest of a blob")
    return name
