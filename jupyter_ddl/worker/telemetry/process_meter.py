"""What processes and all below them use: CPU, memory, disk.  Rates are since the look before.

On Linux this reads ``/proc`` itself, two files a process: by psutil a look takes three times as
long, and a training that fills the host pays for that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil

from jupyter_ddl.worker.rank_death import proportional_memory_bytes

__all__ = ["NetworkMeter", "ProcessMeter", "TreeUse"]


# Bytes over the host's network interfaces a second.


class NetworkMeter:
    """Used on one thread; loopback is left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before: tuple[float, int, int] | None = None

    def poll(self) -> tuple[float | None, float | None]:
        """(received, sent) in bytes per second since the last look; None at first."""
        now = (self._clock(), *_totals())
        before, self._before = self._before, now
        if before is None:
            return None, None
        passed_s = max(1e-3, now[0] - before[0])
        received, sent = now[1] - before[1], now[2] - before[2]
        # An interface that has gone takes its count along.
        return round(max(0, received) / passed_s), round(max(0, sent) / passed_s)


def _totals() -> tuple[int, int]:
    try:
        interfaces = psutil.net_io_counters(pernic=True)
    except OSError:
        return 0, 0
    counted = [counts for name, counts in interfaces.items() if name not in ("lo", "lo0")]
    return sum(c.bytes_recv for c in counted), sum(c.bytes_sent for c in counted)


_PROC = Path("/proc")
_HAS_PROC = (_PROC / "self" / "task").exists()
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_READ_BYTES = 4096
_NEAR = 0.7
"""Share of a limit from which on memory is counted exactly."""


class TreeUse(msgspec.Struct, frozen=True):
    """Of a process and its descendants; rates are None at first."""

    cpu: float | None = None
    memory_bytes: int | None = None
    read_bytes_s: float | None = None
    write_bytes_s: float | None = None


class _Counters(msgspec.Struct, frozen=True):
    began: float
    """Tells a process from a later one of the same pid."""
    cpu_s: float
    memory_bytes: int
    read_bytes: int = 0
    write_bytes: int = 0


class ProcessMeter:
    """Looks at the tree of one process; used on one thread.

    Parameters
    ----------
    root : int
        Pid; what it uses counts as well.
    """

    def __init__(self, root: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._looked_at_s: float | None = None
        self._counters: dict[int, _Counters] = {}

    def poll(
        self, limits: Mapping[int, int | None], adopted: Iterable[int] = ()
    ) -> dict[int, TreeUse]:
        """Use of the root and of other processes below it.

        Parameters
        ----------
        limits : mapping
            Pid → bytes that its tree may hold, or None.  Memory that several processes share is
            counted several times, as long as that is far from the limit: counting it in parts
            takes long.
        adopted : iterable of int
            Pids that count as children of the root, whoever their parents are.
        """
        now_s = self._clock()
        before, before_s = self._counters, self._looked_at_s
        below = _tree(self._root, adopted)
        found = {pid: _counters(pid) for pid in below}
        self._counters = {pid: counters for pid, counters in found.items() if counters is not None}
        self._looked_at_s = now_s
        passed_s = None if before_s is None else max(1e-3, now_s - before_s)
        return {
            pid: self._use(_descendants(pid, below), before, passed_s, limit)
            for pid, limit in limits.items()
            if pid in self._counters
        }

    def _use(
        self,
        tree: Sequence[int],
        before: Mapping[int, _Counters],
        passed_s: float | None,
        limit_bytes: int | None,
    ) -> TreeUse:
        pairs = [
            (now, _former(before.get(pid), now))
            for pid in tree
            if (now := self._counters.get(pid)) is not None
        ]
        memory = sum(now.memory_bytes for now, _ in pairs)
        if limit_bytes is not None and memory > _NEAR * limit_bytes:
            memory = proportional_memory_bytes(tree)
        if passed_s is None:
            return TreeUse(memory_bytes=memory)
        return TreeUse(
            round(sum(now.cpu_s - old.cpu_s for now, old in pairs) / passed_s, 2),
            memory,
            round(sum(now.read_bytes - old.read_bytes for now, old in pairs) / passed_s),
            round(sum(now.write_bytes - old.write_bytes for now, old in pairs) / passed_s),
        )


def _former(old: _Counters | None, now: _Counters) -> _Counters:
    """What is to be taken off: nothing for a process that was not there at the look before."""
    if old is None or old.began != now.began:
        return _Counters(now.began, 0.0, 0)
    return old


def _counters(pid: int) -> _Counters | None:
    if not _HAS_PROC:
        return _counters_by_psutil(pid)
    try:
        # Behind the name, which may contain anything: see proc_pid_stat(5), counted from 3.
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return None
    return _Counters(
        float(fields[19]),
        (int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
        int(fields[21]) * _PAGE_BYTES,
        *_io(pid),
    )


def _io(pid: int) -> tuple[int, int]:
    """Bytes read from and written to disks; not told of every process."""
    try:
        lines = _read(f"/proc/{pid}/io").splitlines()
        told = dict(line.split(b": ") for line in lines)
        return int(told[b"read_bytes"]), int(told[b"write_bytes"])
    except (OSError, KeyError):
        return 0, 0


def _read(path: str) -> bytes:
    """A file of ``/proc``, whole.  Most are small; a large buffer would be mapped and unmapped."""
    fd = os.open(path, os.O_RDONLY)
    try:
        data = part = os.read(fd, _READ_BYTES)
        while len(part) > _READ_BYTES // 2:  # the kernel may stop short of a page
            part = os.read(fd, _READ_BYTES)
            data += part
        return data
    finally:
        os.close(fd)


def _counters_by_psutil(pid: int) -> _Counters | None:
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            memory = int(process.memory_info().rss)
        return _Counters(process.create_time(), times.user + times.system, memory)
    except psutil.Error:
        return None


def _tree(root: int, adopted: Iterable[int]) -> dict[int, list[int]]:
    """Pid → children, of a process and all below it and those that it has adopted.

    Only this tree is looked at: finding it among all processes of a large host takes longer than
    everything else here.
    """
    found = {root: list(dict.fromkeys((*_children(root), *adopted)))}
    waiting = found[root].copy()
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found[pid] = _children(pid)
            waiting += found[pid]
    return found


def _children(pid: int) -> list[int]:
    if not _HAS_PROC:
        return _children_by_psutil(pid)
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - threads are many
            children += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    except OSError:
        pass  # it, or the thread, has just ended
    return children


def _children_by_psutil(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


def _descendants(root: int, tree: Mapping[int, list[int]]) -> list[int]:
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += tree.get(pid, [])
    return found
