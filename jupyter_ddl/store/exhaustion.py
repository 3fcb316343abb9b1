"""What of a host is used up behind an error, with the numbers, and what raises the limit.

Only what Python brings is imported: a process without a descriptor to spare can import nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

__all__ = ["GOES_ON", "NO_SPACE", "room_at", "used_up"]

_NO_THREAD = ("can't start new thread", "can't start new process")
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a disk, or of a share of it, that is full."""
GOES_ON = "the run goes on when there is room"
_NEARLY = 0.98
"""Whoever was refused may have ended a few processes by the time that they are counted."""


def used_up(error: BaseException, path: str | os.PathLike[str] | None = None) -> str:
    """What to add to the message of ``error``; empty if it tells of no limit that is known here.

    Parameters
    ----------
    path : path, optional
        What was to be written; by default the one that the error names.
    """
    if isinstance(error, OSError):
        if error.errno == errno.EMFILE:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            return (
                f" (a process may have {limit:,} files and sockets open at a time, and this one "
                f"has them all: close some, or raise `ulimit -n` before Jupyter starts)"
            )
        if error.errno == errno.ENFILE:
            return " (the whole host has no file to open any more: `sysctl fs.file-max`)"
        if error.errno in NO_SPACE:
            return _inodes(path or error.filename)
        if error.errno == errno.EAGAIN:
            return _processes()
    if isinstance(error, RuntimeError) and str(error) in _NO_THREAD:
        return _processes()
    return ""


def room_at(path: str | os.PathLike[str]) -> str:
    """How much can be written at a place, as words; empty where nobody can say."""
    for each in (Path(path), *Path(path).absolute().parents):
        with contextlib.suppress(OSError):
            stat = os.statvfs(each)
            return f"{stat.f_bavail * stat.f_frsize:,} bytes free at {each}"
    return ""


def _inodes(path: str | os.PathLike[str] | None) -> str:
    if path is None:
        return ""
    for each in (Path(path), *Path(path).absolute().parents):
        with contextlib.suppress(OSError):
            stat = os.statvfs(each)
            if stat.f_files and not stat.f_favail:
                return f" (no inode is left of {stat.f_files:,} at {each}: remove files there)"
            return ""
    return ""


def _processes() -> str:
    """Processes and threads are counted together, and by several."""
    for limit, current, what in _limits_of_processes():
        if current >= _NEARLY * limit:
            return f" ({current:,} of {limit:,} processes and threads are in use: {what})"
    return " (the host starts no more processes and threads)"


def _limits_of_processes() -> Iterator[tuple[int, int, str]]:
    for group in _groups():
        with contextlib.suppress(OSError, ValueError):  # "max" is no limit
            limit = int((group / "pids.max").read_text())
            yield limit, int((group / "pids.current").read_text()), "the container's limit"
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if os.getuid() and limit != resource.RLIM_INFINITY:
        yield limit, _threads_of_user(), "`ulimit -u`"
    for name in ("kernel/threads-max", "kernel/pid_max"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            limit = int(Path("/proc/sys", name).read_text())
            running = Path("/proc/loadavg").read_text().split()[3].partition("/")[2]
            yield limit, int(running), f"`sysctl {name.replace('/', '.')}`"


def _groups() -> Iterator[Path]:
    """Control groups that this process is in and that count processes, its own first."""
    root = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if controllers not in ("", "pids"):
                continue
            mount = root / controllers if controllers else root
            group = mount / name.lstrip("/")
            if not group.is_dir():  # a container sees a path of its host
                group = mount
            yield from (each for each in (group, *group.parents) if each.is_relative_to(mount))


def _threads_of_user() -> int:
    found = 0
    for each in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if each.name.isdigit() and each.stat().st_uid == os.getuid():
                found += sum(1 for _ in (each / "task").iterdir())
    return found
