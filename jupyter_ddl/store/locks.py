"""Locks that die with their holder, and a note of who holds them.

``flock`` on a file: the kernel frees it at the holder's death, so nothing is ever stale.  The note
in that file says who holds the lock, or held it last and did not give it up.
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

from jupyter_ddl.errors import StorageError
from jupyter_ddl.store.processes import ProcessIdentity, this_process

__all__ = [
    "Holder",
    "holder_of",
    "lock_directory",
    "note_holder",
    "read_note",
    "release_lock",
    "try_lock",
]

_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class Holder(msgspec.Struct, frozen=True):
    """Who holds a lock, or held it last."""

    process: ProcessIdentity
    host: str
    since_s: float
    """Unix seconds at which it took the lock; only for messages."""

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since_s, UTC).isoformat(" ", "seconds")
        return f"process {self.process.pid} on {self.host} (since {since})"


def try_lock(fd: int, path: Path, setting: str) -> bool:
    """Lock an open file without waiting; False if somebody else holds it.

    Parameters
    ----------
    setting : str
        The variable that moves the file to another file system.

    Raises
    ------
    StorageError
        The file system has no locks.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise StorageError(
            f"locking {path} failed: {error.strerror}; its file system has no locks, so two "
            f"writers could not be told apart; set {setting} to a local disk",
            path=str(path),
        ) from error
    return True


def note_holder(fd: int) -> None:
    """Write into a locked file that this process holds it."""
    holder = Holder(this_process(), socket.gethostname(), time.time())
    # On a full disk the lock still holds; only its note stays empty.
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, msgspec.json.encode(holder), 0)


def release_lock(fd: int) -> None:
    """Give the lock up; the note is emptied first, so that nobody is named who has left."""
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
    os.close(fd)


def read_note(path: Path) -> Holder | None:
    """Who took this lock last and did not give it up; it may have died since.

    Only reads: trying the lock here could make a real writer fail.
    """
    try:
        note = path.read_bytes()
        return msgspec.json.decode(note, type=Holder) if note else None
    except (OSError, msgspec.DecodeError):
        return None


def lock_directory(path: Path, *, shared: bool) -> int | None:
    """Lock a directory without waiting: a descriptor, or None if that can't be had now."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def holder_of(path: Path) -> Holder | None:
    """Who holds this lock at this moment; looking may hinder for a moment who tries to take it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return read_note(path)
    except OSError:
        return None
    finally:
        os.close(fd)
    return None
