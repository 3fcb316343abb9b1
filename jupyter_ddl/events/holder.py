"""One writer per ledger: a lock that dies with its holder, and a note of who holds it.

The lock is ``flock`` on a file beside the ledger: the kernel frees it at the holder's death,
so nothing is ever stale.  The note in that file only serves messages and listings.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from jupyter_ddl.errors import CapacityError, LedgerBusyError, LedgerError

__all__ = ["Holder", "lock_path", "read_holder", "release_lock", "take_lock"]

_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Holder(msgspec.Struct, frozen=True):
    """Who writes a ledger, or wrote it last."""

    pid: int
    host: str
    since_s: float
    """Unix seconds at which it took the lock."""


def lock_path(ledger: Path) -> Path:
    return ledger.with_name(ledger.name + ".lock")


def take_lock(ledger: Path) -> int:
    """Take the lock of a ledger without waiting; returns the descriptor that holds it.

    Raises
    ------
    LedgerBusyError
        A live process holds it; the message names its pid, host and start.
    LedgerError
        The directory is read-only or missing, or its file system has no locks.
    """
    path = lock_path(ledger)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        kind = CapacityError if error.errno in _FULL else LedgerError
        raise kind(
            f"opening {ledger} for writing failed: {path}: {error.strerror}; make the directory "
            f"writable, free space there, or set JUPYTER_DDL_HOME to another one",
            path=str(ledger),
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise _busy(ledger) from None
    except OSError as error:
        os.close(fd)
        if error.errno not in _NO_LOCKS:
            raise
        raise LedgerError(
            f"locking {path} failed: {error.strerror}; its file system has no locks, so two "
            f"writers could not be told apart; set JUPYTER_DDL_HOME to a local disk",
            path=str(ledger),
        ) from error
    _write_note(fd, Holder(os.getpid(), socket.gethostname(), time.time()))
    return fd


def release_lock(fd: int) -> None:
    """Give the lock up; the note is emptied first, so that nobody is named who has left."""
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
    os.close(fd)


def read_holder(ledger: Path) -> Holder | None:
    """Who took the lock of this ledger last and did not give it up; it may have died since.

    Only reads: trying the lock here could make a real writer fail.
    """
    try:
        note = lock_path(ledger).read_bytes()
        return msgspec.json.decode(note, type=Holder) if note else None
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _busy(ledger: Path) -> LedgerBusyError:
    holder = read_holder(ledger)
    if holder is None:
        who, fields = "another process that has just begun", {}
    else:
        since = datetime.fromtimestamp(holder.since_s, UTC).isoformat(" ", "seconds")
        who = f"process {holder.pid} on {holder.host} (since {since})"
        fields = {"pid": holder.pid, "host": holder.host, "since_s": holder.since_s}
    return LedgerBusyError(
        f"opening {ledger} for writing failed: {who} writes it; attach to that run, or stop it",
        path=str(ledger),
        **fields,
    )


def _write_note(fd: int, holder: Holder) -> None:
    # On a full disk the lock still holds; only its note stays empty.
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, msgspec.json.encode(holder), 0)
