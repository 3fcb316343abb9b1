"""Keeps a Dask scheduler from calling workers silent for time that it did not listen itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from distributed import Scheduler

__all__ = ["PatientScheduler"]

log = logging.getLogger(__name__)

_LEAST_S = 1.0
"""A wall clock that is put right by less is left to the patience that Dask has anyway."""


class PatientScheduler:
    """Puts Dask's look for silent workers right, which counts by the wall clock.

    That clock goes on while the scheduler stands still or its host sleeps, and jumps when somebody
    sets it: then all workers would be silent at once, and ended.

    Parameters
    ----------
    awake : callable
        Seconds of an :class:`~jupyter_ddl.store.awake.AwakeClock`.
    wall : callable
        Dask's own clock.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        awake: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._scheduler = scheduler
        self._awake = awake
        self._wall = wall
        self._seen = (wall(), awake())
        looking = scheduler.periodic_callbacks.get("worker-ttl")
        if looking is not None:
            self._look = looking.callback
            looking.callback = self.poll

    async def poll(self) -> None:
        """Look for silent workers, in place of Dask."""
        self._put_right()
        await self._look()

    def _put_right(self) -> None:
        seen_s, awake_s = self._seen
        self._seen = now_s, now_awake_s = self._wall(), self._awake()
        too_much_s = (now_s - seen_s) - (now_awake_s - awake_s)
        if abs(too_much_s) < _LEAST_S:
            return
        log.warning("%.0f s by the wall clock count for no worker's silence", too_much_s)
        for worker in self._scheduler.workers.values():
            # Those that were heard since are not of the future; nor is anybody after a step back.
            worker.last_seen = min(now_s, worker.last_seen + max(0.0, too_much_s))
