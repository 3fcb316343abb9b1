"""Blobs by content: captured values, programs and modules, written once per host.

A blob is a file named by the BLAKE3 digest of its bytes.  Readers map it copy-on-write, so all
ranks of a host share one copy and a rank that writes into an array changes only its own pages.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Iterable
from pathlib import Path

from blake3 import blake3

from jupyter_ddl.errors import CapacityError
from jupyter_ddl.store.atomic import replacing

__all__ = [
    "BlobMissingError",
    "digest_of",
    "find_blob",
    "map_blob",
    "put_blob",
    "read_blob",
    "trim_blobs",
]

_WRITE_STEP_BYTES = 1 << 24
_MEMORY_SHARE = 0.5
"""At most this share of what is free in shared memory is taken by one blob."""


class BlobMissingError(LookupError):
    """No directory of this host holds the blob."""


def digest_of(data: bytes | memoryview) -> str:
    """BLAKE3 digest in hex; large buffers are hashed by several threads."""
    size = memoryview(data).nbytes
    threads = blake3.AUTO if size > _WRITE_STEP_BYTES else 1
    return blake3(data, max_threads=threads).hexdigest()


def put_blob(data: bytes | memoryview, dirs: Iterable[Path], digest: str | None = None) -> str:
    """Store ``data`` unless it is already there, and return its digest.

    Raises
    ------
    CapacityError
        When no directory has room; the message says how much was needed and is free.
    """
    view = memoryview(data).cast("B")
    name = digest or digest_of(view)
    directories = tuple(dirs)
    found = find_blob(name, directories)
    if found is not None:
        with contextlib.suppress(OSError):
            os.utime(found)  # recently used: trimmed last
        return name
    tried: list[str] = []
    for position, directory in enumerate(directories):
        last = position == len(directories) - 1
        free = _free_bytes(directory)
        if not last and view.nbytes > free * _MEMORY_SHARE:
            continue
        try:
            _write(view, directory / name)
        except OSError as error:
            tried.append(f"{directory}: {error.strerror}, {free:,} bytes free")
            continue
        return name
    raise CapacityError(
        f"storing a captured value of {view.nbytes:,} bytes failed ({'; '.join(tried)}); "
        f"free space there or set JUPYTER_DDL_HOME to a larger disk"
    )


def find_blob(digest: str, dirs: Iterable[Path]) -> Path | None:
    """Path of a blob in the first directory that holds it."""
    for directory in dirs:
        path = directory / digest
        if path.exists():
            return path
    return None


def map_blob(digest: str, dirs: Iterable[Path]) -> memoryview:
    """A writable, copy-on-write view of a blob.

    Raises
    ------
    BlobMissingError
        When no directory holds it.
    """
    path = find_blob(digest, dirs)
    if path is None:
        raise BlobMissingError(digest)
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size == 0:
            return memoryview(bytearray())
        return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY))


def read_blob(digest: str, dirs: Iterable[Path]) -> bytes:
    """The bytes of a (small) blob."""
    return bytes(map_blob(digest, dirs))


def trim_blobs(dirs: Iterable[Path], keep: frozenset[str], older_than_s: float) -> int:
    """Remove blobs that are not in ``keep`` and were not used for ``older_than_s``.

    Returns
    -------
    int
        Bytes freed.
    """
    freed = 0
    horizon = time.time() - older_than_s
    for directory in dirs:
        for path in directory.iterdir():
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                if path.name not in keep and stat.st_mtime < horizon:
                    path.unlink()
                    freed += stat.st_size
    return freed


def _free_bytes(directory: Path) -> int:
    stat = os.statvfs(directory)
    return stat.f_bavail * stat.f_frsize


def _write(view: memoryview, path: Path) -> None:
    with replacing(path) as file:
        for offset in range(0, view.nbytes, _WRITE_STEP_BYTES):
            file.write(view[offset : offset + _WRITE_STEP_BYTES])
