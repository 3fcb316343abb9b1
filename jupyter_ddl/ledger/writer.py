"""Writes a run's ledger: the append-only file that decides what has happened.

An event is committed when :meth:`LedgerWriter.append` has returned.  Events that end
something are on disk by then (``fdatasync``); the others are in the kernel's hands, which is
enough to survive the death of this process.  A ledger that is opened again is read to its end, and
a torn last event is cut off.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from jupyter_ddl.errors import CapacityError, LedgerBusyError, LedgerError
from jupyter_ddl.ledger.records import (
    HEADER,
    MAX_RECORD_BYTES,
    Fault,
    FrameCursor,
    only_header_is_damaged,
    pack_frames,
)
from jupyter_ddl.protocol.codec import encode_event
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    CheckpointSaved,
    Event,
    FoldFinished,
    RunFinished,
    RunSubmitted,
    StopRequested,
)
from jupyter_ddl.store.atomic import replacing, sync_directory
from jupyter_ddl.store.exhaustion import used_up
from jupyter_ddl.store.locks import (
    HOME_SETTING,
    note_holder,
    read_note,
    release_lock,
    rival_of,
    rivalry,
    try_lock,
)

__all__ = [
    "DURABLE",
    "LedgerWriter",
    "lock_path",
    "take_lock",
]


# One writer per ledger, by a lock on a file beside it.


def lock_path(ledger: Path) -> Path:
    return ledger.with_name(ledger.name + ".lock")


def take_lock(ledger: Path) -> int:
    """Take the lock of a ledger without waiting; returns the descriptor that holds it.

    Raises
    ------
    LedgerBusyError
        A live process holds it, or may do so on another host; the message names its pid, host and
        start.
    LedgerError
        The directory is read-only or missing.
    StorageError
        Its file system has no locks.
    """
    path = lock_path(ledger)
    fd = _open_to_write(path, os.O_CREAT)
    try:
        if not try_lock(fd, path, HOME_SETTING):
            raise _busy(ledger)
        if rival := rival_of(path):
            raise LedgerBusyError(
                f"opening {ledger} for writing failed: {rivalry(path, rival)}",
                path=str(ledger),
                lock=str(path),
                host=rival.host,
            )
    except BaseException:
        os.close(fd)
        raise
    note_holder(fd)
    return fd


def _busy(ledger: Path) -> LedgerBusyError:
    holder = read_note(lock_path(ledger))
    if holder is None:
        who, fields = "another process that has just begun", {}
    else:
        who = str(holder)
        fields = {"pid": holder.process.pid, "host": holder.host, "since_s": holder.since_s}
    return LedgerBusyError(
        f"opening {ledger} for writing failed: {who} writes it; attach to that run, or stop it",
        path=str(ledger),
        **fields,
    )


DURABLE = frozenset(
    {RunSubmitted, AttemptFinished, CheckpointSaved, FoldFinished, StopRequested, RunFinished}
)
"""Events that are on disk before ``append`` returns."""

_CAPACITY = frozenset({
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE,
})  # fmt: skip
_sync_data = getattr(os, "fdatasync", os.fsync)


class LedgerWriter:
    """The one writer of a ledger; made by :meth:`open`, closed by :meth:`close`.

    May be called from any thread, one at a time gets through.  Blocks for the time of a write
    and of ``fdatasync`` (0.2 ms typical, several on a busy disk): pass whole batches.

    Attributes
    ----------
    path : Path
    n_records : int
        Records in the file.
    cut_bytes : int
        Bytes of a torn tail that :meth:`open` cut; tell the user by a ``Notice`` when not 0.
    damaged_copy : Path or None
        Where the whole file lies as it was before :meth:`open` has repaired it.
    """

    def __init__(self, path: Path, fd: int, lock_fd: int) -> None:
        self.path = path
        self.n_records = 0
        self.cut_bytes = 0
        self.damaged_copy: Path | None = None
        self._fd = fd
        self._lock_fd = lock_fd
        self._guard = threading.Lock()
        self._offset = 0
        self._synced = 0
        self._tail_is_dirty = False
        # Records that were committed to the kernel and then lost by a failed sync.
        self._unsynced = b""

    @classmethod
    def open(cls, path: str | Path, *, create: bool = False, repair: bool = False) -> LedgerWriter:
        """Take the lock, verify every record, cut a torn tail.

        Parameters
        ----------
        path : path
            ``<run_dir>/ledger.ddl``; the directory exists.
        create : bool
            Make a new ledger; refuse when there is one.
        repair : bool
            Keep what stands before damage in the middle.  The whole file is first copied
            to ``<path>.damaged``.

        Raises
        ------
        LedgerBusyError
            Another live process writes it.
        LedgerError
            No such ledger, one too many, not writable, or damaged in the middle: then with
            the fields ``record`` and ``offset``.
        CapacityError
            No room for a new file.
        """
        path = Path(path)
        if create == path.exists():
            what = "exists already" if create else "does not exist"
            raise LedgerError(f"opening the ledger {path} failed: it {what}", path=str(path))
        lock_fd = take_lock(path)
        try:
            fd = _open_to_write(path, os.O_CREAT | os.O_EXCL if create else 0)
        except BaseException:
            release_lock(lock_fd)
            raise
        writer = cls(path, fd, lock_fd)
        try:
            writer._begin(repair)
        except BaseException:
            writer._release()
            raise
        return writer

    @property
    def committed_bytes(self) -> int:
        """How far the file is committed."""
        return self._offset

    def append(self, events: Sequence[Event]) -> None:
        """Commit events, in order, by one write; all of them or none.

        Raises
        ------
        CapacityError
            The disk is full or failing; the file is as before, and the same call succeeds
            once there is room.  Fields: ``path``, ``needed_bytes``, ``free_bytes``.
        ProtocolError
            An event cannot be encoded; nothing is written.
        LedgerError
            The writer is closed, or a record is larger than 64 MiB.
        """
        if not events:
            return
        payloads = [encode_event(event) for event in events]
        if max(map(len, payloads)) > MAX_RECORD_BYTES:
            raise LedgerError(
                f"appending to {self.path} failed: a record of {max(map(len, payloads)):,} bytes "
                f"is over the limit of {MAX_RECORD_BYTES:,}; capture or print less",
                path=str(self.path),
            )
        durable = not DURABLE.isdisjoint(map(type, events))
        frames = pack_frames(payloads)
        with self._guard:
            if self._fd < 0:
                raise LedgerError(
                    f"appending to {self.path} failed: it is closed", path=str(self.path)
                )
            self._commit(frames, durable)
            self.n_records += len(events)

    def close(self) -> None:
        """Bring everything to disk and free the lock.  May be called twice.

        Raises
        ------
        CapacityError
            The last events did not reach the disk; the lock is free all the same.
        """
        with self._guard:
            if self._fd < 0:
                return
            try:
                if self._unsynced or self._synced < self._offset:
                    self._commit(b"", True)
            finally:
                self._release()

    def __enter__(self) -> LedgerWriter:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _begin(self, repair: bool) -> None:
        """Verify the file and make its end the place for the next record."""
        if repair and only_header_is_damaged(self._fd):
            self._keep_copy()
            self._put(HEADER, 0)
        cursor = FrameCursor(self._fd, self.path)
        while cursor.read():
            pass
        fault = cursor.fault
        if fault is not None and fault.next_whole is not None:
            if not repair:
                raise _damaged(self.path, fault)
            self._keep_copy()
        size = os.fstat(self._fd).st_size
        self.n_records = cursor.n_records
        self._offset = cursor.offset
        if size > self._offset:
            self.cut_bytes = size - self._offset
            os.ftruncate(self._fd, self._offset)
            _sync_data(self._fd)
        if self._offset == 0:
            self._commit(HEADER, True)
            sync_directory(self.path.parent)
        self._synced = self._offset

    def _commit(self, data: bytes, durable: bool) -> None:
        """Write behind the last good record; on failure the file is as it was before."""
        pending = self._unsynced
        data = pending + data
        try:
            if self._tail_is_dirty:
                os.ftruncate(self._fd, self._offset)
                self._tail_is_dirty = False
            self._put(data, self._offset)
        except OSError as error:
            self._cut_back()
            raise self._refusal(error, len(data)) from error
        end = self._offset + len(data)
        if durable or pending:
            try:
                _sync_data(self._fd)
            except OSError as error:
                self._take_back_unsynced()
                raise self._refusal(error, len(data)) from error
            self._synced = end
        self._offset = end
        self._unsynced = b""

    def _put(self, data: bytes, offset: int) -> None:
        view = memoryview(data)
        done = 0
        while done < len(view):
            done += os.pwrite(self._fd, view[done:], offset + done)

    def _cut_back(self) -> None:
        try:
            os.ftruncate(self._fd, self._offset)
        except OSError:
            self._tail_is_dirty = True  # tried again before the next write

    def _take_back_unsynced(self) -> None:
        """After a failed sync, keep in memory whatever was not yet known to be on disk.

        The kernel may have dropped the pages and forgotten the error, so a second sync alone
        would report success: all bytes since the last good one are written again.
        """
        with contextlib.suppress(OSError):
            lost = os.pread(self._fd, self._offset - self._synced, self._synced)
            self._unsynced = lost or self._unsynced
            self._offset = self._synced
        self._cut_back()

    def _refusal(self, error: OSError, n_bytes: int) -> CapacityError | LedgerError:
        stat = os.statvfs(self.path.parent)
        free = stat.f_bavail * stat.f_frsize
        kind = CapacityError if error.errno in _CAPACITY else LedgerError
        return kind(
            f"appending {n_bytes:,} bytes to {self.path} failed: {error.strerror}, {free:,} bytes "
            f"free{used_up(error, self.path)}; nothing is lost, the run goes on when there is room",
            path=str(self.path),
            needed_bytes=n_bytes,
            free_bytes=free,
            cause=error.strerror,
        )

    def _keep_copy(self) -> None:
        """Copy the damaged file before anything is cut from it."""
        target = self.path.with_name(self.path.name + ".damaged")
        for number in itertools.count(2):
            if not target.exists():
                break
            target = self.path.with_name(f"{self.path.name}.damaged-{number}")
        try:
            with replacing(target, is_synced=True) as file, self.path.open("rb") as damaged:
                shutil.copyfileobj(damaged, file)
            sync_directory(target.parent)
        except OSError as error:
            raise self._refusal(error, os.fstat(self._fd).st_size) from error
        self.damaged_copy = target

    def _release(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)
        release_lock(self._lock_fd)


def _open_to_write(path: Path, flags: int) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    except OSError as error:
        kind = CapacityError if error.errno in _CAPACITY else LedgerError
        raise kind(
            f"opening {path} for writing failed: {error.strerror}{used_up(error, path)}; make the "
            f"directory writable, free space there, or set JUPYTER_DDL_HOME to another one",
            path=str(path),
        ) from error


def _damaged(path: Path, fault: Fault) -> LedgerError:
    return LedgerError(
        f"opening {path} failed: record {fault.record} at byte {fault.offset:,} is damaged "
        f"({fault.cause}), and whole records follow from byte {fault.next_whole:,}; "
        f"`%runs repair {path.parent.name}` keeps the {fault.record - 1} records before it",
        path=str(path),
        record=fault.record,
        offset=fault.offset,
    )
