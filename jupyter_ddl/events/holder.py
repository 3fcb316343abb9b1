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

__all__ = ["Holder", "holder_is_alive", "lock_path", "read_holder", "release_lock", "take_lock"]

_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class Holder(msgspec.Struct, frozen=True):
    """Who writes a ledger, or wrote it last."""

    pid: int
    host: str
    boot_id: str
    start_ticks: int
    """Start of the process in clock ticks after boot: tells it from a later one of that pid."""
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
    _write_note(fd, _this_process())
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


def holder_is_alive(holder: Holder) -> bool | None:
    """Whether this very process still runs; None when it is on another host."""
    if holder.host != socket.gethostname():
        return None
    return holder.boot_id == _boot_id() and _start_ticks(holder.pid) == holder.start_ticks


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


def _this_process() -> Holder:
    pid = os.getpid()
    return Holder(
        pid=pid,
        host=socket.gethostname(),
        boot_id=_boot_id(),
        start_ticks=_start_ticks(pid) or 0,
        since_s=time.time(),
    )


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        import psutil  # only where there is no /proc

        return str(int(psutil.boot_time()))


def _start_ticks(pid: int) -> int | None:
    """Start of a process, None when it is gone or only waits to be reaped."""
    if not Path("/proc/self/stat").exists():
        import psutil

        try:
            return int(psutil.Process(pid).create_time() * 100)
        except psutil.NoSuchProcess:
            return None
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command name may hold spaces and parentheses; fields are counted behind the last one.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
