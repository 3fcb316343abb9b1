"""Locks that die with their holder, and a note of who holds them.

``flock`` on a file: the kernel frees it at the holder's death, so nothing is ever stale.  The note
in that file says who holds the lock, or held it last and did not give it up.  Where hosts do not
see each other's locks, it decides whether the lock may be taken: only from who is known to be gone.
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
from jupyter_ddl.protocol.reading import from_json
from jupyter_ddl.store.mounts import file_system_of
from jupyter_ddl.store.paths import home_dir
from jupyter_ddl.store.processes import ProcessIdentity, is_gone, this_process

__all__ = [
    "HOME_SETTING",
    "Holder",
    "check_home",
    "holder_of",
    "lock_directory",
    "note_holder",
    "read_note",
    "release_lock",
    "rival_of",
    "rivalry",
    "this_holder",
    "try_lock",
]

HOME_SETTING = "JUPYTER_DDL_HOME"
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


class Holder(msgspec.Struct, frozen=True):
    """Who holds a lock, or held it last."""

    process: ProcessIdentity
    host: str
    machine: str
    """Of the host, in whatever boot; empty where it has no such name."""
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
            f"locking {path} failed: {error.strerror}; without locks two writers could not be "
            f"told apart, and {file_system_of(path)} has none; set {setting} to a directory on a "
            f"disk of this host",
            path=str(path),
        ) from error
    return True


def this_holder() -> Holder:
    """This process, since now."""
    machine = ""
    with contextlib.suppress(OSError):
        machine = Path("/etc/machine-id").read_text().strip()
    return Holder(this_process(), socket.gethostname(), machine, time.time())


def rival_of(path: Path) -> Holder | None:
    """Who may still write beside the process that has just got this lock; None: nobody.

    Where all hosts see the lock, having got it is the proof.  Elsewhere its former holder must be
    known to be gone: it gave the lock up, or was of this host.
    """
    former = read_note(path)
    if former is None or file_system_of(path).locks_reach_all or is_gone(former.process):
        return None
    here = this_holder()
    return None if (former.host, former.machine) == (here.host, here.machine) else former


def rivalry(path: Path, rival: Holder) -> str:
    """What to tell of a rival, and what to do about it."""
    return (
        f"{rival} had it last and has not given it up, and on {file_system_of(path)} no host sees "
        f"another one's locks; end it there, or delete {path} if that host is gone for good"
    )


def note_holder(fd: int) -> None:
    """Write into a locked file that this process holds it."""
    holder = this_holder()
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
        return from_json(note, Holder) if note else None
    except (OSError, msgspec.DecodeError):
        return None


def check_home() -> None:
    """See whether ledgers can be locked.  Raises as :func:`try_lock`."""
    path = home_dir() / "lock"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try_lock(fd, path, HOME_SETTING)
    finally:
        os.close(fd)


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
