"""Removes captured values that no run needs any more.

A large array in shared memory is the host's memory: it goes an hour after its last use, and with
the last controller that uses it, in whatever container.  Its copy on disk goes when another run's
takes the place.  What an unfinished run needs stays, so that it can be resumed.  What another home
has is left alone unless that home is seen to be deleted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from jupyter_ddl.driving.run_blobs import disk_budget
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.ledger.reader import read_run_line, read_submitted
from jupyter_ddl.protocol.program import Program, blobs_of
from jupyter_ddl.store.blobs import LARGE_BYTES, digest_of, trim_blobs
from jupyter_ddl.store.locks import lock_directory
from jupyter_ddl.store.paths import (
    blob_dirs,
    forget_memory,
    forgotten_memory,
    memory_blob_dir,
    runs_dir,
)

__all__ = ["care_for_blobs", "room_for_copies", "use_memory"]

log = logging.getLogger(__name__)

_KEPT_IN_MEMORY_S = 3600.0
_KEPT_ON_DISK_S = 7 * 86400.0
_CARE_S = 10.0
_POLL_S = 0.05
_DISK_SHARE = 0.5
"""Copies leave at least this share of what is free on the disk."""
_JUST_STORED_S = 10.0
"""A client may be about to submit a run to a new controller."""


def care_for_blobs(*, leaving: bool = False) -> int:
    """Trim the blob directories; returns the bytes freed.

    Parameters
    ----------
    leaving : bool
        This controller ends: without another one, nothing in memory is kept for a second run.
    """
    keep = _needed_blobs()
    memory = memory_blob_dir()
    freed = 0
    with _alone_in(memory if leaving else None) as alone:
        for directory in blob_dirs():
            memory_age_s = _JUST_STORED_S if alone else _KEPT_IN_MEMORY_S
            age_s = memory_age_s if directory == memory else _KEPT_ON_DISK_S
            with contextlib.suppress(OSError):  # a directory that can't be read is not cared for
                freed += trim_blobs((directory,), keep, age_s)
    if freed:
        log.info("removed %d bytes of captured values", freed)
    _forget_lost_homes()
    return freed


def room_for_copies(n_bytes: int) -> int:
    """Bytes that copies of large values may still take on disk, of those that are wanted.

    Copies that no unfinished run needs make room, those that were used last at the end.
    """
    disk = blob_dirs()[-1]
    budget = disk_budget()
    copies = {path: path.stat() for path in disk.iterdir() if path.stat().st_size >= LARGE_BYTES}
    taken = sum(stat.st_size for stat in copies.values())
    if taken + n_bytes > budget:
        needed = _needed_blobs()
        for path in sorted(copies, key=lambda each: copies[each].st_atime):
            if path.name not in needed and taken + n_bytes > budget:
                path.unlink(missing_ok=True)
                taken -= copies[path].st_size
    free = os.statvfs(disk)
    share = int(free.f_bavail * free.f_frsize * _DISK_SHARE)
    return max(0, min(budget - taken, share))


def _forget_lost_homes() -> None:
    """Remove what lies beside our blobs and belonged to a home that was deleted."""
    for directory in forgotten_memory():
        with _alone_in(directory) as alone:
            if alone:
                log.info("removing the captured values of a home that is gone: %s", directory)
                forget_memory(directory)


def use_memory() -> int | None:
    """Have no other controller think that nobody needs this home's values in shared memory.

    Returns
    -------
    int or None
        A descriptor: to be closed at the end.  None where there is no shared memory.
    """
    memory = memory_blob_dir()
    if memory is None:
        return None
    deadline = time.monotonic() + _CARE_S
    while (fd := lock_directory(memory, shared=True)) is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)  # the last one that used it is leaving
    return fd


@contextlib.contextmanager
def _alone_in(memory: Path | None) -> Iterator[bool]:
    """Whether no controller uses this directory; none begins to within this."""
    fd = None if memory is None else lock_directory(memory, shared=False)
    try:
        yield fd is not None
    finally:
        if fd is not None:
            os.close(fd)


def _needed_blobs() -> frozenset[str]:
    """Digests of everything that unfinished runs are made of."""
    needed: set[str] = set()
    for path in runs_dir().glob("*/ledger.ddl"):
        with contextlib.suppress(JupyterDDLError):  # what can't be read can't be resumed
            needed |= _blobs_of(path)
    return frozenset(needed)


def _blobs_of(ledger: Path) -> set[str]:
    line = read_run_line(ledger)
    if line.finished_at_s is not None and not line.is_damaged:
        return set()
    program: Program = read_submitted(ledger).spec.program
    return {digest_of(msgspec.msgpack.encode(program)), *blobs_of(program)}
