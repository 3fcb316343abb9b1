"""What a run has out on the workers: the work behind its signals, and its idle processes there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from jupyter_ddl.drivers.assigning import RunContext
from jupyter_ddl.protocol.assignment import StopRun

__all__ = ["WorkerService"]


class WorkerService:
    """Base of what sends work of one run.  Used on the controller's loop only."""

    def __init__(self, run_id: str, context: RunContext) -> None:
        self._run_id = run_id
        self._context = context
        self._served: set[str] = set()
        """Addresses of workers that have had work of this run."""
        self._tasks: set[asyncio.Task[None]] = set()

    def give_up(self) -> None:
        """Forget what is on its way: its workers had their time to answer."""
        for task in self._tasks:
            task.cancel()

    async def release_workers(self) -> None:
        """End this run's idle rank processes on the workers that served it."""
        stop = StopRun(run_id=self._run_id, is_over=True)
        known = set(self._context.slots.addresses())
        await asyncio.gather(
            *(self._context.dispatcher.control(a, stop) for a in self._served & known)
        )

    async def close(self) -> None:
        self.give_up()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
