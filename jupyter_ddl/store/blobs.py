"""Blobs by content: captured values, programs and modules, written once per host.

A blob is a file named by the BLAKE3 digest of its bytes.  Readers map it copy-on-write, so all
ranks of a host share one copy and a rank that writes into an array changes only its own pages.

What lies on disk was synced before it got its name.  A large blob lies in shared memory where there
is room, which a restart of the host empties; :func:`copy_to_disk` gives it a copy that stays.
Nobody is given a blob whose content is not what its name says: a small one is hashed by each
process, of a large one a note beside it remembers that it was.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from blake3 import blake3

from jupyter_ddl.errors import CapacityError
from jupyter_ddl.store.atomic import replacing, sync_directory
from jupyter_ddl.store.exhaustion import used_up
from jupyter_ddl.store.processes import boot_id

__all__ = [
    "LARGE_BYTES",
    "BlobMissingError",
    "copy_to_disk",
    "digest_of",
    "find_blob",
    "has_blob",
    "keep_blobs",
    "map_blob",
    "map_file",
    "put_blob",
    "read_blob",
    "trim_blobs",
]

log = logging.getLogger(__name__)

LARGE_BYTES = 1 << 20
"""Blobs from this size on may lie in shared memory alone; smaller ones that last lie on disk."""
_WRITE_STEP_BYTES = 1 << 24
_MEMORY_SHARE = 0.5
"""At most this share of what is free in shared memory is taken by one blob."""
_NOTE = ".intact"
"""Ending of the note beside a large blob that says which file had the right content."""
_N_REMEMBERED = 4096

_Mark = tuple[int, int, int]
"""Inode, size and time of the last change of a file."""
_intact: dict[str, _Mark] = {}
"""Files whose content this process knows to be right, by path."""


class BlobMissingError(LookupError):
    """No directory of this host holds the blob, whole and undamaged."""


class _Unwanted(Exception):
    """A copy is not wanted any more."""


def digest_of(data: bytes | memoryview) -> str:
    """BLAKE3 digest in hex; large buffers are hashed by several threads."""
    size = memoryview(data).nbytes
    threads = blake3.AUTO if size > _WRITE_STEP_BYTES else 1
    return blake3(data, max_threads=threads).hexdigest()


def put_blob(data: bytes | memoryview, dirs: Iterable[Path], digest: str | None = None) -> str:
    """Store ``data`` unless it is already there, and return its digest.

    Parameters
    ----------
    dirs : iterable of Path
        The first one with room is taken; the last one is on a disk, and is synced.

    Raises
    ------
    CapacityError
        When no directory has room; the message says how much was needed and is free.
    """
    view = memoryview(data).cast("B")
    name = digest or digest_of(view)
    directories = tuple(dirs)
    if not has_blob(name, directories):
        directory = _write_first(view, name, directories)
        if directory == directories[-1]:
            sync_directory(directory)
    return name


def keep_blobs(blobs: Iterable[tuple[str, bytes | memoryview]], dirs: Iterable[Path]) -> None:
    """Store blobs by digest for a run that may outlive this host's memory: small ones on disk.

    Raises
    ------
    CapacityError
        As ``put_blob``.
    """
    directories = tuple(dirs)
    disk = directories[-1]
    is_new = False
    for digest, data in blobs:
        view = memoryview(data).cast("B")
        places = directories if view.nbytes >= LARGE_BYTES else (disk,)
        if not has_blob(digest, places):
            is_new |= _write_first(view, digest, places) == disk
    if is_new:
        sync_directory(disk)  # their names: one sync for all of them


def copy_to_disk(digest: str, dirs: Iterable[Path], is_unwanted: Callable[[], bool]) -> None:
    """Have a blob on the disk, too; blocking, in steps between which others use the disk.

    Parameters
    ----------
    is_unwanted : callable
        Asked before each step; the copy is given up then, and nothing is left of it.

    Raises
    ------
    BlobMissingError
        No directory holds it.
    CapacityError
        The disk has no room for it.
    """
    *_, disk = directories = tuple(dirs)
    if find_blob(digest, (disk,)) is not None:
        return
    view = map_blob(digest, directories)
    try:
        with contextlib.suppress(_Unwanted), replacing(disk / digest, is_synced=True) as file:
            for offset in range(0, view.nbytes, _WRITE_STEP_BYTES):
                if is_unwanted():
                    raise _Unwanted
                file.write(view[offset : offset + _WRITE_STEP_BYTES])
                # Many unwritten pages at the end would hold up who syncs a ledger meanwhile.
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise _refusal(view.nbytes, [_told(disk, error)]) from error
    if (disk / digest).exists():
        _remember(disk / digest)
        sync_directory(disk)


def find_blob(digest: str, dirs: Iterable[Path]) -> Path | None:
    """Path of a blob in the first directory that holds it undamaged.

    Blocks for as long as hashing takes (1 GB: 0.3 s) where a large one was not hashed before on
    this host since it started.  A damaged file is removed, so that the blob can be put again.
    """
    for directory in dirs:
        path = directory / digest
        if _is_intact(path):
            return path
    return None


def has_blob(digest: str, dirs: Iterable[Path]) -> bool:
    """Whether a directory holds it undamaged; then it counts as used now.  Blocks as finding."""
    found = find_blob(digest, dirs)
    if found is None:
        return False
    with contextlib.suppress(OSError):
        # Recently used: trimmed last.  The time of its last change is how it is known again.
        os.utime(found, ns=(time.time_ns(), found.stat().st_mtime_ns))
    return True


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
    return map_file(path)


def map_file(path: Path) -> memoryview:
    """A writable, copy-on-write view of any file."""
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
                is_kept = path.name.removesuffix(_NOTE) in keep
                if not is_kept and max(stat.st_atime, stat.st_mtime) < horizon:
                    path.unlink()
                    freed += stat.st_size
    return freed


# -- what is there, and whether it is what its name says -------------------------------------------


def _is_intact(path: Path) -> bool:
    try:
        mark = _mark_of(path)
    except OSError:
        return False
    if _intact.get(str(path)) == mark:
        return True
    if _has_note(path, mark):
        _remember(path, is_noted=True)
        return True
    try:
        is_intact = _digest_of_file(path) == path.name
    except OSError as error:
        log.error("blob %s can't be read: %s", path, error.strerror)
        return False
    if is_intact:
        _remember(path)
        return True
    log.error("blob %s is damaged: its content is not what it was; it is removed", path)
    with contextlib.suppress(OSError):
        path.unlink()
    return False


def _mark_of(path: Path) -> _Mark:
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _remember(path: Path, *, is_noted: bool = False) -> None:
    """This file is known to be right: to this process, and if it is large to others as well."""
    mark = _mark_of(path)
    if len(_intact) >= _N_REMEMBERED:
        _intact.clear()
    _intact[str(path)] = mark
    if mark[1] >= LARGE_BYTES and not is_noted:
        with contextlib.suppress(OSError), replacing(_note_of(path)) as file:
            file.write(_note_text(mark))


def _has_note(path: Path, mark: _Mark) -> bool:
    if mark[1] < LARGE_BYTES:
        return False
    try:
        return _note_of(path).read_bytes() == _note_text(mark)
    except OSError:
        return False


def _note_of(path: Path) -> Path:
    return path.with_name(path.name + _NOTE)


def _note_text(mark: _Mark) -> bytes:
    # What was right before a restart of the host was perhaps not yet on the disk then.
    return f"{boot_id()} {mark}".encode()


def _digest_of_file(path: Path) -> str:
    # Not by mapping it: a disk that fails would end the process.
    hasher = blake3(max_threads=blake3.AUTO)
    buffer = memoryview(bytearray(min(_WRITE_STEP_BYTES, path.stat().st_size + 1)))
    with path.open("rb", buffering=0) as file:
        while n_read := file.readinto(buffer):
            hasher.update(buffer[:n_read])
    return hasher.hexdigest()


# -- writing ---------------------------------------------------------------------------------------


def _write_first(view: memoryview, name: str, directories: tuple[Path, ...]) -> Path:
    """Write a blob where there is room, and tell where."""
    tried: list[str] = []
    for position, directory in enumerate(directories):
        is_disk = position == len(directories) - 1
        if not is_disk and view.nbytes > _free_bytes(directory) * _MEMORY_SHARE:
            continue
        try:
            _write(view, directory / name, is_synced=is_disk)
        except OSError as error:
            tried.append(_told(directory, error))
            continue
        _remember(directory / name)
        return directory
    raise _refusal(view.nbytes, tried)


def _told(directory: Path, error: OSError) -> str:
    free = f"{_free_bytes(directory):,} bytes free{used_up(error, directory)}"
    return f"{directory}: {error.strerror}, {free}"


def _refusal(n_bytes: int, tried: Iterable[str]) -> CapacityError:
    return CapacityError(
        f"storing a captured value of {n_bytes:,} bytes failed ({'; '.join(tried)}); "
        f"free space there or set JUPYTER_DDL_HOME to a larger disk"
    )


def _free_bytes(directory: Path) -> int:
    stat = os.statvfs(directory)
    return stat.f_bavail * stat.f_frsize


def _write(view: memoryview, path: Path, *, is_synced: bool) -> None:
    with replacing(path, is_synced=is_synced) as file:
        for offset in range(0, view.nbytes, _WRITE_STEP_BYTES):
            file.write(view[offset : offset + _WRITE_STEP_BYTES])
