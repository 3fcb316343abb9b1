"""Copies of ledgers of another host: byte for byte, written by one process here, and checked.

What is there after whatever interruption is a beginning of the original.
"""

from __future__ import annotations

import os
from pathlib import Path

from jupyter_ddl.errors import LedgerError
from jupyter_ddl.ledger.records import FrameCursor
from jupyter_ddl.ledger.writer import lock_path, take_lock
from jupyter_ddl.protocol.mirroring import CHECKED_BYTES
from jupyter_ddl.store.locks import release_lock
from jupyter_ddl.store.tree import Draft, crc_before, read_at, write_at

__all__ = ["LedgerCopy", "whole_bytes"]


def whole_bytes(fd: int, path: Path) -> int:
    """How far an open ledger has whole records, from its beginning; reads all of it.

    Raises
    ------
    LedgerError
        It is none, or one of a later format.
    """
    cursor = FrameCursor(fd, path)
    while cursor.read():
        pass
    return cursor.offset


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except OSError:
        return False


class LedgerCopy:
    """Holds the lock of a ledger that is a copy; made by :meth:`open`, freed by :meth:`close`.

    Attributes
    ----------
    path : Path
    size : int
        Bytes of whole records, the header included; 0 where there is no copy that is of use.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.size = 0
        self._lock = lock
        self._fd = -1
        self._cursor: FrameCursor | None = None

    @classmethod
    def open(cls, path: Path) -> LedgerCopy:
        """Take the lock, and see how far the copy is whole; its directory exists.

        Raises
        ------
        LedgerBusyError
            Somebody here writes it.
        LedgerError
            The directory is read-only.
        """
        copy = cls(path, take_lock(path))
        try:
            copy._look()
        except BaseException:
            copy.close()
            raise
        return copy

    def is_current(self) -> bool:
        """Whether the file is still the one that was opened, and the lock the one that is held."""
        if not _is_at(lock_path(self.path), self._lock):
            return False  # its directory is another one, whether it has had a file or not
        return _is_at(self.path, self._fd) if self._fd >= 0 else not self.path.exists()

    def tail(self) -> bytes:
        """The last bytes, by which the original is known again."""
        n_bytes = min(self.size, CHECKED_BYTES)
        return read_at(self._fd, self.size - n_bytes, n_bytes)

    def crc_before(self, offset: int) -> int:
        """As :func:`~jupyter_ddl.store.tree.crc_before`; the offset lies within the copy."""
        return crc_before(self._fd, offset)

    def append(self, data: bytes) -> None:
        """Write what the original has next, and have it on the disk; whole records count.

        Raises
        ------
        OSError
            The disk is full or failing; what is left of it is cut.
        """
        try:
            write_at(self._fd, data, self.size)
        finally:
            self._advance()
        os.fdatasync(self._fd)

    def replace(self, draft: Draft) -> None:
        """Put another copy in the place of this one: all of it was read, none is in the way."""
        draft.keep(replaces=True, is_synced=True)
        self._shut()
        self._look()

    def close(self) -> None:
        """Free the lock; may be called twice."""
        self._shut()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            release_lock(lock)

    def _look(self) -> None:
        self.size = 0
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return
        try:
            self._cursor = FrameCursor(self._fd, self.path)
        except LedgerError:  # its header is damaged, or it is of another version
            return
        self._advance()

    def _advance(self) -> None:
        cursor = self._cursor
        if cursor is None:
            return
        while cursor.read():
            pass
        self.size = cursor.offset  # before damage as well: its original has what follows
        if os.fstat(self._fd).st_size > self.size:
            os.ftruncate(self._fd, self.size)

    def _shut(self) -> None:
        fd, self._fd, self._cursor = self._fd, -1, None
        if fd >= 0:
            os.close(fd)
