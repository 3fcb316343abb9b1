"""Drives one persistent group: its ranks start and end together, and execute cells in between."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from jupyter_ddl.drivers.group_ranks import GroupRanks
from jupyter_ddl.drivers.group_record import GroupRecord
from jupyter_ddl.driving.dispatcher import WorkerLostError
from jupyter_ddl.errors import GroupLostError, JupyterDDLError, SpecError
from jupyter_ddl.protocol.cell_results import CellDone, CellResult, RankGone
from jupyter_ddl.protocol.cells import Cell, RunCell, WatchRank
from jupyter_ddl.protocol.replies import GroupStatus, RankStatus
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.verbs.run import CellGroup

__all__ = ["PersistentGroup"]

log = logging.getLogger(__name__)


class _Running:
    """The cell that is being executed."""

    def __init__(self, number: int, cell: Cell, targets: tuple[int, ...]) -> None:
        self.number = number
        self.cell = cell
        self.targets = targets
        self.at_s = time.time()
        self.done: dict[int, CellDone] = {}

    def result(self, group_id: str, note: str = "") -> CellResult:
        done = tuple(self.done[rank] for rank in sorted(self.done))
        waiting = tuple(rank for rank in self.targets if rank not in self.done)
        return CellResult(group_id, self.number, done, waiting, note)


class PersistentGroup:
    """Used on the controller's loop only: ``open`` once, ``close`` once, cells in between.

    Parameters
    ----------
    on_lost
        Called once with the reason when the group has ended without being asked to.
    """

    def __init__(
        self,
        spec: RunSpec,
        ranks: GroupRanks,
        record: GroupRecord,
        on_lost: Callable[[str], None],
    ) -> None:
        self.spec = spec
        self.group_id = spec.run_id
        self._ranks = ranks
        self._record = record
        self._on_lost = on_lost
        self._started_at_s = time.time()
        self._statuses: list[RankStatus] = []
        self._n_cells = 0
        self._running: _Running | None = None
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def is_busy(self) -> bool:
        """Whether it executes a cell."""
        return self._running is not None

    def status(self) -> GroupStatus:
        verb = self.spec.verb
        return GroupStatus(
            group_id=self.group_id,
            name=verb.name if isinstance(verb, CellGroup) else "",
            started_at_s=self._started_at_s,
            n_cells=self._n_cells,
            is_busy=self.is_busy,
            ranks=tuple(self._statuses),
            has_process_group=self._ranks.has_process_group,
        )

    # -- start and end ----------------------------------------------------------------------------

    async def open(self, blob_dirs: tuple[str, ...]) -> None:
        """Start all ranks and bring them together.

        Raises
        ------
        LaunchError
            A rank could not be started; none is left.
        """
        self._statuses = await self._ranks.open(self._record.directory, blob_dirs)
        for rank in range(len(self._ranks)):
            self._spawn(self._watch(rank), f"watch {self.group_id} {rank}")

    async def close(self, why: str) -> None:
        """End the ranks; what they execute is killed, and the next cell is told ``why``."""
        if not self._lost.done():
            self._lost.set_result(why)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._ranks.close()

    async def _watch(self, rank: int) -> None:
        try:
            answer = await self._ranks.ask(rank, WatchRank(self.group_id, rank), None)
            reason = answer.reason if isinstance(answer, RankGone) else f"answered {answer!r}"
        except WorkerLostError:
            reason = "was lost with its worker"
        if not self._lost.done():
            where = f"rank {rank} (pid {self._statuses[rank].pid} on {self._ranks.hosts[rank]})"
            self._lost.set_result(f"{where} {reason}")
            log.info("group %s: %s", self.group_id, self._lost.result())
            self._on_lost(self._lost.result())

    # -- cells ------------------------------------------------------------------------------------

    async def execute(self, cell: Cell, targets: Sequence[int] | None) -> CellResult:
        """Execute a cell on ranks; returns when it has ended on all of them.

        Raises
        ------
        SpecError
            There is no such rank, or another cell is being executed.
        GroupLostError
            A rank died, and the group with it.
        """
        chosen = self._checked(targets)
        if (other := self._running) is not None:
            raise SpecError(
                f"group {self.group_id} still executes {other.cell.filename} on "
                f"{len(other.targets)} of {len(self._ranks)} ranks, for "
                f"{time.time() - other.at_s:.0f} s; wait for it, or replace the group with --reset"
            )
        self._n_cells += 1
        running = self._running = _Running(self._n_cells, cell, chosen)
        try:
            await self._on_all(running)
            note = await self._mended(running)
        finally:
            self._running = None
            lost = self._lost.result() if self._lost.done() else ""
            self._record.cell(cell, chosen, running.done, running.number, running.at_s, lost)
        return running.result(self.group_id, note)

    def poll(self) -> CellResult:
        """The cell that is being executed, as far as it is."""
        if self._running is None:
            return CellResult(self.group_id, self._n_cells, ())
        return self._running.result(self.group_id)

    async def interrupt(self) -> None:
        """Raise ``KeyboardInterrupt`` where a cell is still being executed."""
        running = self._running
        if running is None:
            return
        waiting = [rank for rank in running.targets if rank not in running.done]
        await self._ranks.interrupt(waiting, running.number)

    def _checked(self, targets: Sequence[int] | None) -> tuple[int, ...]:
        n_ranks = len(self._ranks)
        if targets is None:
            return tuple(range(n_ranks))
        wrong = [rank for rank in targets if not 0 <= rank < n_ranks]
        if wrong or not targets:
            named = ", ".join(map(str, wrong)) or "none"
            raise SpecError(f"group {self.group_id} has ranks 0 to {n_ranks - 1}; -t names {named}")
        return tuple(sorted(set(targets)))

    async def _on_all(self, running: _Running) -> None:
        self._raise_if_lost()
        work = asyncio.gather(*(self._on_rank(running, rank) for rank in running.targets))
        try:
            ends: set[asyncio.Future[Any]] = {work, self._lost}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                self._raise_if_lost()
            work.result()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _on_rank(self, running: _Running, rank: int) -> None:
        call = RunCell(self.group_id, rank, running.number, running.cell)
        try:
            answer = await self._ranks.ask(rank, call, None)
        except WorkerLostError:
            answer = RankGone("was lost with its worker")
        if not isinstance(answer, CellDone):
            # The watch of this rank tells how it ended, now.
            await asyncio.wait({self._lost})
            self._raise_if_lost()
            return
        running.done[rank] = answer
        status = self._statuses[rank]
        self._statuses[rank] = msgspec.structs.replace(status, log_end=answer.log_end)

    def _raise_if_lost(self) -> None:
        if self._lost.done():
            raise GroupLostError(
                f"group {self.group_id} has ended: {self._lost.result()}; its variables are gone, "
                f"and the next cell starts a new group",
                group_id=self.group_id,
            )

    async def _mended(self, running: _Running) -> str:
        """Replace a process group whose connections were cut; returns what to say of it."""
        if not any(done.is_cut_off for done in running.done.values()):
            return ""
        round_id = f"{self.group_id}-{secrets.token_hex(16)}"
        try:
            await self._ranks.rejoin(round_id)
        except JupyterDDLError as error:
            if not self._lost.done():
                self._lost.set_result(f"its process group could not be made anew: {error.message}")
                self._on_lost(self._lost.result())
            self._raise_if_lost()
        return (
            "the collective that hung was broken off and the process group made anew; variables "
            "are kept, wrap models in DDP again"
        )

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
