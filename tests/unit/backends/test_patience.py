"""Dask's look for silent workers at a real scheduler, by a wall clock that jumps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from distributed import Scheduler, Worker

from jupyter_ddl.backends.patience import PatientScheduler

TTL_S = 300.0
HOUR_S = 3600.0


class Wall:
    """Dask's clock, and what was put right of it."""

    def __init__(self) -> None:
        self.late_s = 0.0

    def __call__(self) -> float:
        return time.time() - self.late_s


def with_worker(
    live: Callable[[Scheduler, PatientScheduler, Wall], Awaitable[None]], late_s: float = 0.0
) -> None:
    """A scheduler with one worker that does not beat; ``late_s``: its clock is late at first."""

    async def whole() -> None:
        wall = Wall()
        wall.late_s = late_s
        async with Scheduler(
            host="127.0.0.1", dashboard_address="127.0.0.1:0", worker_ttl=TTL_S
        ) as scheduler:
            patience = PatientScheduler(scheduler, time.monotonic, wall)
            async with Worker(
                scheduler.address, nthreads=1, dashboard_address="127.0.0.1:0"
            ) as worker:
                worker.periodic_callbacks["heartbeat"].stop()
                async with asyncio.timeout(60):
                    await live(scheduler, patience, wall)

    asyncio.run(whole())


def heard(scheduler: Scheduler, ago_s: float) -> None:
    for worker in scheduler.workers.values():
        worker.last_seen = time.time() - ago_s


def test_a_worker_that_is_silent_is_ended_as_ever() -> None:
    async def live(scheduler: Scheduler, patience: PatientScheduler, wall: Wall) -> None:
        heard(scheduler, TTL_S + 1)
        await patience.poll()
        assert not scheduler.workers

    with_worker(live)


def test_time_that_the_scheduler_has_lost_is_no_silence() -> None:
    async def live(scheduler: Scheduler, patience: PatientScheduler, wall: Wall) -> None:
        heard(scheduler, HOUR_S + 10)
        wall.late_s = 0.0  # an hour at once
        await patience.poll()
        (worker,) = scheduler.workers.values()
        assert 9 < time.time() - worker.last_seen < TTL_S
        heard(scheduler, TTL_S + 1)  # and no more than that hour
        await patience.poll()
        assert not scheduler.workers

    with_worker(live, late_s=HOUR_S)


def test_who_was_heard_since_is_not_of_the_future() -> None:
    async def live(scheduler: Scheduler, patience: PatientScheduler, wall: Wall) -> None:
        heard(scheduler, 0.0)
        wall.late_s = 0.0
        await patience.poll()
        (worker,) = scheduler.workers.values()
        assert worker.last_seen <= time.time()

    with_worker(live, late_s=HOUR_S)


def test_a_clock_that_is_set_back_hides_no_silence() -> None:
    async def live(scheduler: Scheduler, patience: PatientScheduler, wall: Wall) -> None:
        heard(scheduler, -HOUR_S)  # by the clock as it was
        wall.late_s = 0.0
        await patience.poll()
        (worker,) = scheduler.workers.values()
        assert worker.last_seen <= time.time()

    with_worker(live, late_s=-HOUR_S)


def test_it_takes_the_place_of_dasks_own_look() -> None:
    async def live(scheduler: Scheduler, patience: PatientScheduler, wall: Wall) -> None:
        assert scheduler.periodic_callbacks["worker-ttl"].callback == patience.poll

    with_worker(live)
