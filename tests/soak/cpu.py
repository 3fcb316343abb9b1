"""How much CPU time a recovery takes, which no other load of the machine changes much."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import psutil

__all__ = ["CpuUse"]


class CpuUse:
    """Sums what processes have used since a moment, and those that they have started since."""

    def __init__(self, processes: Iterable[psutil.Process]) -> None:
        self._before = _seen(processes)

    def spent_s(self, processes: Iterable[psutil.Process]) -> float:
        """Seconds of CPU time since then; of what has ended only if its parent is still there.

        Parameters
        ----------
        processes
            All that are there now, whether they were there before or not.
        """
        now = _seen(processes)
        # What ended is part of its parent's time from then on; with that one, it is of nobody's.
        counted = [
            used_s for pid, (parent, used_s) in self._before.items() if pid in now or parent in now
        ]
        return max(0.0, sum(used_s for _, used_s in now.values()) - sum(counted))


def _seen(processes: Iterable[psutil.Process]) -> dict[int, tuple[int, float]]:
    """Pid to its parent's and its own CPU time, with that of children that it has waited for."""
    found = {}
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found[process.pid] = (process.ppid(), sum(process.cpu_times()[:4]))
    return found
