"""How long a rank's own thread waits for collectives that Python code calls: a cell's, or FSDP's.

All of ``torch.distributed`` waits in ``Work.wait``, a blocking call right away, an asynchronous one
when it is asked to.  That one method is timed, so no function is replaced.  DDP averages gradients
in C++, which comes by here only where a hook in Python does the communication: then torch measures
it, and it is not counted twice.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["CollectiveWaits", "collective_waits", "watch_collectives"]


class CollectiveWaits:
    """Of this process.

    Parameters
    ----------
    clock : callable
        Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._thread_id = threading.get_ident()
        self.waited_s = 0.0
        self.n_waits = 0
        self.misses_some = False
        """Whether what is trained also waits where nobody sees it: in functional collectives."""
        self.has_own_measure: Callable[[], bool] = lambda: False
        """Whether a backward pass tells by itself how long it communicates."""

    def use_thread(self) -> None:
        """The calling thread executes the cell."""
        self._thread_id = threading.get_ident()

    def timed(self, wait: Callable[..., Any], torch: Any) -> Callable[..., Any]:
        """A method that waits, and adds to what has been waited."""

        @functools.wraps(wait)
        def timed_wait(work: Any, *args: Any, **options: Any) -> Any:
            if threading.get_ident() != self._thread_id or self._is_elsewhere(torch):
                return wait(work, *args, **options)
            began_s = self._clock()
            try:
                return wait(work, *args, **options)
            finally:
                self.waited_s += self._clock() - began_s
                self.n_waits += 1

        return timed_wait

    def _is_elsewhere(self, torch: Any) -> bool:
        # On a GPU the call only queues the waiting, and this clock would tell nothing.
        if torch.cuda.is_initialized():
            return True
        return torch._C._current_graph_task_id() != -1 and self.has_own_measure()


collective_waits = CollectiveWaits()


def watch_collectives() -> None:
    """Time ``Work.wait`` from now on, where the rank has loaded torch's distributed part."""
    module: Any = sys.modules.get("torch._C._distributed_c10d")
    kind: Any = getattr(module, "Work", None)
    torch: Any = sys.modules.get("torch")
    collective_waits.use_thread()
    if kind is None or not hasattr(getattr(torch, "_C", None), "_current_graph_task_id"):
        return
    if not hasattr(kind.wait, "__wrapped__"):
        kind.wait = collective_waits.timed(kind.wait, torch)
