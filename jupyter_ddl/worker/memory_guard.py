"""Ends a rank that holds more memory than its share, before the kernel ends something else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import psutil

from jupyter_ddl.worker.rank_process import RankProcess

__all__ = ["MemoryGuard", "tree_memory_bytes"]

log = logging.getLogger(__name__)

_INTERVAL_S = 1.0


class MemoryGuard:
    """Looks at every busy rank once a second.

    Parameters
    ----------
    limit_bytes : int
        What a rank and its children may hold together; memory that several processes share
        (the zygote's imports, mapped arrays) counts once, in equal parts.
    """

    def __init__(self, limit_bytes: int, ranks: Callable[[], Iterable[RankProcess]]) -> None:
        self._limit_bytes = limit_bytes
        self._ranks = ranks

    async def watch(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            busy = [rank for rank in self._ranks() if rank.is_busy and rank.pid]
            for rank in busy:
                used = await asyncio.to_thread(tree_memory_bytes, rank.pid, self._limit_bytes)
                if used > self._limit_bytes and rank.is_busy:
                    self._end(rank, used)

    def _end(self, rank: RankProcess, used_bytes: int) -> None:
        used, limit = (f"{n / 2**30:.2f} GiB" for n in (used_bytes, self._limit_bytes))
        log.warning("rank %s of run %s holds %s; killed", rank.pid, rank.run_id, used)
        rank.kill(
            "memory",
            f"the trial used {used}, over the limit of {limit} of a slot; "
            f"use less memory, or start the cluster with a larger --memory",
        )


def tree_memory_bytes(pid: int, limit_bytes: int) -> int:
    """Memory of a process and its descendants.  Blocking.

    The resident sizes are summed, which is quick and counts shared pages several times; only a
    sum over ``limit_bytes`` is looked at again with shared pages counted in parts.
    """
    try:
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
    except psutil.Error:
        return 0
    resident = sum(_resident(process) for process in tree)
    if resident <= limit_bytes:
        return resident
    return sum(_proportional(process) for process in tree)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _proportional(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except (psutil.Error, AttributeError):
        return _resident(process)
