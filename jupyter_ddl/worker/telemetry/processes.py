"""What processes and all below them use: CPU, memory, disk.  Rates are since the look before."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
import psutil

from jupyter_ddl.worker.memory_guard import tree_memory_bytes

__all__ = ["ProcessMeter", "TreeUse"]

_PROC = Path("/proc")
_NEAR = 0.7
"""Share of a limit from which on memory is counted exactly."""


class TreeUse(msgspec.Struct, frozen=True):
    """Of a process and its descendants; rates are None at first."""

    cpu: float | None = None
    memory_bytes: int | None = None
    read_bytes_s: float | None = None
    write_bytes_s: float | None = None


class _Counters(msgspec.Struct, frozen=True):
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
        self._processes: dict[int, psutil.Process] = {}
        self._counters: dict[int, _Counters] = {}

    def look(self, limits: Mapping[int, int | None]) -> dict[int, TreeUse]:
        """Use of the root and of other processes below it.

        Parameters
        ----------
        limits : mapping
            Pid → bytes that its tree may hold, or None.  Memory that several processes share is
            counted several times, as long as that is far from the limit: counting it in parts
            takes long.
        """
        now_s = self._clock()
        before, before_s = self._counters, self._looked_at_s
        below = _tree(self._root)
        processes = {pid: self._process(pid) for pid in below}
        self._processes = {pid: p for pid, p in processes.items() if p is not None}
        found = {pid: _counters(process) for pid, process in self._processes.items()}
        self._counters = {pid: counters for pid, counters in found.items() if counters is not None}
        self._looked_at_s = now_s
        passed_s = None if before_s is None else max(1e-3, now_s - before_s)
        return {
            pid: self._use(pid, _descendants(pid, below), before, passed_s, limit)
            for pid, limit in limits.items()
            if pid in self._counters
        }

    def _process(self, pid: int) -> psutil.Process | None:
        known = self._processes.get(pid)
        if known is not None and known.is_running():
            return known
        try:
            return psutil.Process(pid)
        except psutil.Error:
            return None

    def _use(
        self,
        root: int,
        tree: Iterable[int],
        before: Mapping[int, _Counters],
        passed_s: float | None,
        limit_bytes: int | None,
    ) -> TreeUse:
        nothing = _Counters(0.0, 0)
        pairs = [(self._counters[p], before.get(p, nothing)) for p in tree if p in self._counters]
        memory = sum(now.memory_bytes for now, _ in pairs)
        if limit_bytes is not None and memory > _NEAR * limit_bytes:
            memory = tree_memory_bytes(root, int(_NEAR * limit_bytes))
        if passed_s is None:
            return TreeUse(memory_bytes=memory)
        return TreeUse(
            round(sum(now.cpu_s - old.cpu_s for now, old in pairs) / passed_s, 2),
            memory,
            round(sum(now.read_bytes - old.read_bytes for now, old in pairs) / passed_s),
            round(sum(now.write_bytes - old.write_bytes for now, old in pairs) / passed_s),
        )


def _counters(process: psutil.Process) -> _Counters | None:
    try:
        with process.oneshot():
            times = process.cpu_times()
            memory = int(process.memory_info().rss)
    except psutil.Error:
        return None
    read, written = _io(process)
    return _Counters(times.user + times.system, memory, read, written)


def _io(process: psutil.Process) -> tuple[int, int]:
    """Bytes read from and written to disks; not told by every system, nor of every process."""
    try:
        counters = process.io_counters()
    except (psutil.Error, AttributeError, OSError):
        return 0, 0
    return int(counters.read_bytes), int(counters.write_bytes)


def _tree(root: int) -> dict[int, list[int]]:
    """Pid → children, of a process and all below it.

    Only this tree is looked at: finding it among all processes of a large host takes longer than
    everything else here.
    """
    found: dict[int, list[int]] = {}
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found[pid] = _children(pid)
            waiting += found[pid]
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in (_PROC / str(pid) / "task").iterdir():
            children += map(int, (thread / "children").read_text().split())
    except OSError:
        if (_PROC / "self" / "task").exists():
            return children  # it has just ended
        return _children_by_psutil(pid)
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
