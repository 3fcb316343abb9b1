"""The log of a rank process: one file that has everything the user's code and its C code print.

File descriptors 1 and 2 lead straight to the file, so nothing is buffered elsewhere and a
segmentation fault loses nothing that was written.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import io
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_ddl.store.death_signal import flush_c_stdio

__all__ = ["TAIL_BYTES", "RankLog", "is_disk_full", "log_name"]

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
TAIL_BYTES = 16 * 1024
# Made once: each trial uses them a dozen times.
_any_error_suppressed = contextlib.suppress(Exception)
_os_errors_suppressed = contextlib.suppress(OSError)
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def log_name(assignment_id: str, pid: int) -> str:
    """File name of a rank's log, unique among the ranks of a run."""
    stem = _UNSAFE.sub("_", assignment_id)[-120:].lstrip(".") or "rank"
    return f"{stem}-{pid}.log"


def is_disk_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _DISK_FULL


class RankLog:
    """Opened once per rank process, with its first assignment.

    Parameters
    ----------
    run_dir : str
        The log is ``<run_dir>/logs/<name>``, readable by its owner only.
    name : str
        As :func:`log_name` gives it.

    Raises
    ------
    OSError
        The file can't be made, for instance on a full disk.
    """

    def __init__(self, run_dir: str, name: str) -> None:
        self.name = name
        self._path = Path(run_dir) / "logs" / name
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Kept apart from 1 and 2: user code may close those.
        self._fd = self._open()
        self._identity = _identity(self._fd)
        self._error: OSError | None = None
        self._redirect()
        faulthandler.enable(file=2, all_threads=True)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(self._path, flags, 0o600)

    def _redirect(self) -> None:
        os.dup2(self._fd, 1)
        os.dup2(self._fd, 2)
        self._stdout, self._stderr = self._text_file(1), self._text_file(2)

    def _text_file(self, fd: int) -> io.TextIOWrapper:
        raw = _LogFile(fd, self._remember)
        buffered = io.BufferedWriter(raw)
        return io.TextIOWrapper(buffered, "utf-8", "backslashreplace", line_buffering=True)

    def _remember(self, error: OSError) -> None:
        self._error = error

    def prepare(self) -> None:
        """Undo what earlier user code did to the standard streams."""
        if _identity(self._fd) != self._identity:
            self._fd = self._open()
            self._identity = _identity(self._fd)
        if _identity(1) != self._identity or _identity(2) != self._identity:
            self._redirect()
        if self._stdout.closed:
            self._stdout = self._text_file(1)
        if self._stderr.closed:
            self._stderr = self._text_file(2)
        sys.stdout = self._stdout
        sys.stderr = self._stderr

    def position(self) -> int:
        """Size of the log in bytes, with everything printed so far in it.  Never raises."""
        for stream in (sys.stdout, sys.stderr):
            # An error is remembered already, or comes from an object that user code put there.
            with _any_error_suppressed:
                stream.flush()
        flush_c_stdio()
        with _os_errors_suppressed:
            found = os.fstat(self._fd)
            if (found.st_dev, found.st_ino) == self._identity:
                return found.st_size
        with _os_errors_suppressed:  # user code has closed it
            return self._path.stat().st_size
        return 0

    def since(self, start: int, limit_bytes: int) -> str:
        """What was printed from a position on; of more than the limit, its last lines."""
        length = self.position() - start
        if length <= 0:
            return ""
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            file.seek(start + max(0, length - limit_bytes))
            text = file.read(limit_bytes).decode("utf-8", "replace")
            return text if length <= limit_bytes else f"…{text.partition(chr(10))[2]}"
        return ""

    def append(self, text: str) -> None:
        """Write a failure below the output of what has failed, for who reads the log later."""
        with contextlib.suppress(OSError):  # a full disk is told by what else could not be written
            os.write(self._fd, text.encode(errors="backslashreplace"))

    def take_error(self) -> OSError | None:
        """The error of a write that failed since the last call, if any."""
        error, self._error = self._error, None
        return error


def _identity(fd: int) -> tuple[int, int] | None:
    with _os_errors_suppressed:
        status = os.fstat(fd)
        return status.st_dev, status.st_ino
    return None


class _LogFile(io.FileIO):
    """Remembers a failed write: the cell may swallow the exception."""

    def __init__(self, fd: int, on_error: Callable[[OSError], None]) -> None:
        super().__init__(fd, "wb", closefd=False)
        self._on_error = on_error

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self._on_error(error)
            raise
