"""The log of a rank process: one file that has everything the user's code and its C code print.

File descriptors 1 and 2 lead straight to the file, so nothing is buffered elsewhere and a
segmentation fault loses nothing that was written.
"""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import os
import re
import sys
from pathlib import Path
from typing import TextIO

from jupyter_ddl.worker.deathsig import flush_c_stdio

__all__ = ["RankLog", "is_disk_full", "log_name"]

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
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
        directory = Path(run_dir) / "logs"
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        # Kept apart from 1 and 2: user code may close those.
        self._fd = fd
        self._identity = _identity(fd)
        self._error: OSError | None = None
        self._redirect()
        faulthandler.enable(file=fd, all_threads=True)

    def _redirect(self) -> None:
        os.dup2(self._fd, 1)
        os.dup2(self._fd, 2)
        self._stdout: TextIO = _text_file(1)
        self._stderr: TextIO = _text_file(2)

    def prepare(self) -> None:
        """Undo what earlier user code did to the standard streams."""
        if _identity(1) != self._identity or _identity(2) != self._identity:
            self._redirect()
        if self._stdout.closed:
            self._stdout = _text_file(1)
        if self._stderr.closed:
            self._stderr = _text_file(2)
        sys.stdout = self._stdout
        sys.stderr = self._stderr

    def position(self) -> int:
        """Size of the log in bytes, with everything printed so far in it.  Never raises."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError as error:
                self._error = error
            except Exception:  # noqa: BLE001, S110 - an object that user code put there
                pass
        flush_c_stdio()
        return os.fstat(self._fd).st_size

    def take_error(self) -> OSError | None:
        """The error of a write that failed since the last call, if any."""
        error, self._error = self._error, None
        return error


def _identity(fd: int) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        status = os.fstat(fd)
        return status.st_dev, status.st_ino
    return None


def _text_file(fd: int) -> TextIO:
    return open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
