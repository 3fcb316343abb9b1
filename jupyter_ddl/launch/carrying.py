"""One assignment whose files travel: down before it starts, up before its events are passed on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from jupyter_ddl.launch.calls import WorkerLostError
from jupyter_ddl.launch.courier import Courier, blobs_of_program, blobs_of_table
from jupyter_ddl.protocol.assignment import Assignment
from jupyter_ddl.protocol.events import RankEvent

__all__ = ["Carrying"]

log = logging.getLogger(__name__)

OnEvents = Callable[[Sequence[RankEvent]], None]

_LOG_INTERVAL_S = 1.0


class Carrying:
    """Used on the controller's loop only: ``begin``, ``add`` …, ``finish``; always ``close``."""

    def __init__(
        self, courier: Courier, assignment: Assignment, worker: str, on_events: OnEvents
    ) -> None:
        self._courier = courier
        self._assignment = assignment
        self._run_dir = Path(assignment.run_dir)
        self._worker = worker
        self._on_events = on_events
        self._logs: set[str] = set()
        self._waiting: list[RankEvent] = []
        self._arrived = asyncio.Event()
        self._is_over = False
        self._turn = asyncio.Lock()
        self._pump = asyncio.create_task(self._pass_on(), name="ddl-fetch")
        self._tail = asyncio.create_task(self._follow_logs(), name="ddl-logs")

    async def begin(self) -> None:
        """Send down what the trials need.

        Raises
        ------
        WorkerLostError
            The worker is gone.
        BlobMissingError
            The controller's own store has lost a blob.
        """
        assignment = self._assignment
        dirs = tuple(Path(directory) for directory in assignment.blob_dirs)
        digests = blobs_of_program(assignment.program, dirs)
        await self._courier.send_blobs(
            self._worker, assignment.run_id, assignment.run_id, digests, dirs
        )
        if assignment.fit is not None:
            table = assignment.fit.table
            await self._courier.send_blobs(
                self._worker, assignment.run_id, table, blobs_of_table(table, dirs), dirs
            )
        for trial in assignment.trials:
            await self._courier.send_checkpoints(
                self._worker, assignment.run_id, self._run_dir, trial.trial
            )

    def add(self, events: Sequence[RankEvent]) -> None:
        """Events have come; they go on in this order."""
        self._waiting.extend(events)
        self._arrived.set()

    async def finish(self) -> None:
        """Every event was added: wait until all have been passed on.

        Raises
        ------
        WorkerLostError
            The worker is gone with files that events speak of.
        """
        self._is_over = True
        self._arrived.set()
        await self._pump
        await self._courier.all_fetched(self._worker, self._assignment.assignment_id)

    async def close(self) -> None:
        for task in (self._pump, self._tail):
            task.cancel()
        await asyncio.gather(self._pump, self._tail, return_exceptions=True)

    async def _pass_on(self) -> None:
        while self._waiting or not self._is_over:
            self._arrived.clear()
            events, self._waiting = self._waiting, []
            if events:
                async with self._turn:
                    ready = await self._courier.fetch_for(
                        self._worker, self._assignment.run_id, self._run_dir, events, self._logs
                    )
                self._on_events(ready)
            elif not self._is_over:
                await self._arrived.wait()

    async def _follow_logs(self) -> None:
        """What is printed shows in the run directory a second later."""
        while True:
            await asyncio.sleep(_LOG_INTERVAL_S)
            with contextlib.suppress(WorkerLostError):  # the flight itself ends by that
                async with self._turn:
                    await self._courier.fetch_logs(
                        self._worker, self._assignment.run_id, self._run_dir, self._logs
                    )
