"""The stacks of a rank or a zygote on request, also of one that holds the GIL in a C call.

``faulthandler`` writes them from a signal handler into a file in memory, which the worker reads
through ``/proc``: nothing needs to run in the rank but the handler.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from pathlib import Path

__all__ = ["STACKS_SIGNAL", "StackDump", "read_stacks"]

STACKS_SIGNAL = signal.SIGUSR1
_FILE_NAME = "jupyter_ddl_stacks"
_TIMEOUT_S = 1.0
_SETTLED_S = 0.05
_POLL_S = 0.01
_MAX_BYTES = 256 * 1024


class StackDump:
    """The side of the rank, or of the zygote: answers :data:`STACKS_SIGNAL`."""

    def __init__(self) -> None:
        self._fd: int | None = None

    def enable(self) -> None:
        """Listen to the signal; without effect where the system has no files in memory."""
        if self._fd is None and hasattr(os, "memfd_create"):
            self._fd = os.memfd_create(_FILE_NAME)
            faulthandler.register(STACKS_SIGNAL, file=self._fd, all_threads=True)

    def disable(self) -> None:
        """Listen no more: in a fork, which is another process than the one that is asked."""
        if self._fd is not None:
            faulthandler.unregister(STACKS_SIGNAL)
            os.close(self._fd)
            self._fd = None


def read_stacks(pid: int, *, stopped: bool) -> str:
    """Have a rank write its stacks, and return them; empty when it doesn't.  Blocking, about 0.1 s.

    Parameters
    ----------
    stopped : bool
        Whether the process is stopped: it goes on for as long as that takes.
    """
    try:
        path = _stacks_file(pid)
        if path is None or not _listens(pid):
            return ""
        start = path.stat().st_size
        os.kill(pid, STACKS_SIGNAL)
        if stopped:
            os.kill(pid, signal.SIGCONT)
        try:
            return _new_text(path, start)
        finally:
            if stopped:
                os.kill(pid, signal.SIGSTOP)
    except OSError:
        return ""  # it is gone by now


def _stacks_file(pid: int) -> Path | None:
    for path in Path(f"/proc/{pid}/fd").iterdir():
        if _FILE_NAME in str(path.readlink()):
            return path
    return None


def _listens(pid: int) -> bool:
    """Whether the signal has a handler: a process without one would die of it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (STACKS_SIGNAL - 1) & 1)
    return False


def _new_text(path: Path, start: int) -> str:
    deadline = time.monotonic() + _TIMEOUT_S
    size, grown_at_s = start, time.monotonic()
    while (now := time.monotonic()) < deadline:
        if (found := path.stat().st_size) != size:
            size, grown_at_s = found, now
        elif size > start and now - grown_at_s >= _SETTLED_S:
            break
        time.sleep(_POLL_S)
    with path.open("rb") as file:
        file.seek(start)
        return file.read(_MAX_BYTES).decode(errors="replace")
