"""Files of a worker that does not see the controller's run directories: one on another host.

Ranks read and write here as they do anywhere.  The controller sends down what they need (blobs,
checkpoints) and fetches what they made (logs, checkpoints, values), part by part, through Dask's
own encrypted connections.  Workers fetch large blobs from one another.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import msgspec

from jupyter_ddl.errors import ProtocolError
from jupyter_ddl.protocol.assignment import Assignment
from jupyter_ddl.protocol.cells import OpenRank
from jupyter_ddl.protocol.sampling import SamplerCall
from jupyter_ddl.ranks.checkpoints import checkpoint_names
from jupyter_ddl.store.paths import home_dir, private_dir

__all__ = ["READ_BLOB", "OwnFiles"]

READ_BLOB = "jupyter_ddl_read_blob"
"""Name of the worker's handler for parts of its blobs, which other workers call."""

Located = TypeVar("Located", Assignment, SamplerCall, OpenRank)

_KEPT_BYTES = 1 << 30
"""Blobs of ended runs that stay for the next one."""
_PART_BYTES = 4 << 20
_PART_S = 30.0


class OwnFiles:
    """Used on the worker's loop only; every call is one small read or write."""

    def __init__(self) -> None:
        # Never the controller's own tree, should somebody mount its home here all the same.
        root = private_dir(home_dir() / "away")
        self._blob_dir = private_dir(root / "blobs")
        self._runs_dir = private_dir(root / "runs")
        self._blobs_of: dict[str, frozenset[str]] = {}
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
        if isinstance(local, Assignment) and local.fit is not None:
            work = msgspec.structs.replace(local.fit, spill_dir=str(directory / "spill"))
            return msgspec.structs.replace(local, fit=work)
        return local

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
        return _read_part(self._inside(run_id, path), offset, limit)

    # -- the end ---------------------------------------------------------------------------------

    def forget(self, run_id: str) -> None:
        """A run is over, and all of it is at the controller."""
        self._blobs_of.pop(run_id, None)
        shutil.rmtree(self._run_dir(run_id), ignore_errors=True)
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
