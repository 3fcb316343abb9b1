"""Drives one persistent group: its ranks start and end together, and execute cells in between."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from jupyter_ddl.drivers.group_record import GroupRecord
from jupyter_ddl.errors import GroupLostError, JupyterDDLError, LaunchError, SpecError
from jupyter_ddl.events.cell_results import (
    CellDone,
    CellResult,
    RankAddress,
    RankAnswer,
    RankGone,
    RankReady,
)
from jupyter_ddl.events.status import GroupStatus, RankStatus
from jupyter_ddl.launch.dispatcher import WorkerLostError
from jupyter_ddl.launch.group import place_ranks
from jupyter_ddl.launch.rank_calls import RankCalls
from jupyter_ddl.placement.gpus import Grant
from jupyter_ddl.spec.cells import (
    Cell,
    CloseRank,
    InterruptRank,
    JoinRank,
    OpenRank,
    RankCall,
    RejoinRank,
    RunCell,
    WatchRank,
)
from jupyter_ddl.spec.group import RankPlace
from jupyter_ddl.spec.run import GroupSpec, RunSpec

__all__ = ["PersistentGroup"]

log = logging.getLogger(__name__)

_START_TIMEOUT_S = 180.0
"""Of a start with everything in it: forks, an import of torch, the rendezvous."""
_JOIN_TIMEOUT_S = 120.0
_CONTROL_TIMEOUT_S = 5.0


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
    places, hosts, devices
        One worker per rank with its GPUs, the address of its host, and what to call its device
        where it has GPUs.
    on_lost
        Called once with the reason when the group has ended without being asked to.
    """

    def __init__(
        self,
        spec: RunSpec,
        calls: RankCalls,
        record: GroupRecord,
        places: Grant,
        hosts: Sequence[str],
        devices: Sequence[str],
        on_lost: Callable[[str], None],
    ) -> None:
        self.spec = spec
        self.group_id = spec.run_id
        self._calls = calls
        self._record = record
        self._workers = places.workers
        self._gpus = places.gpus
        self._devices = tuple(devices)
        self._hosts = tuple(hosts)
        self._on_lost = on_lost
        self._started_at_s = time.time()
        self._ranks: list[RankStatus] = []
        self._has_process_group = False
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
            name=verb.name if isinstance(verb, GroupSpec) else "",
            started_at_s=self._started_at_s,
            n_cells=self._n_cells,
            is_busy=self.is_busy,
            ranks=tuple(self._ranks),
            has_process_group=self._has_process_group,
        )

    # -- start and end ----------------------------------------------------------------------------

    async def open(self, blob_dirs: tuple[str, ...]) -> None:
        """Start all ranks and bring them together.

        Raises
        ------
        LaunchError
            A rank could not be started; none is left.
        """
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                addresses = await self._start(blob_dirs)
                ready = await self._join(addresses)
        except TimeoutError:
            await self._end_ranks()
            raise LaunchError(
                f"starting {len(self._workers)} ranks took longer than {_START_TIMEOUT_S:.0f} s; "
                f"see `%cluster logs`"
            ) from None
        except BaseException:
            await self._end_ranks()
            raise
        self._ranks = [
            RankStatus(
                rank=rank,
                worker=self._workers[rank],
                host=address.host,
                pid=address.pid,
                device=self._devices[rank] if self._devices else ready[rank].device,
                log=f"rank-{rank}.log",
                log_end=0,
            )
            for rank, address in enumerate(addresses)
        ]
        self._has_process_group = all(each.has_process_group for each in ready)
        for rank in range(len(self._workers)):
            self._spawn(self._watch(rank), f"watch {self.group_id} {rank}")

    async def _start(self, blob_dirs: tuple[str, ...]) -> list[RankAddress]:
        verb = self.spec.verb
        base = RankPlace(group_id=self.group_id)
        if isinstance(verb, GroupSpec):
            base = msgspec.structs.replace(
                base, backend=verb.backend, initialize=verb.initialize, timeout_s=_JOIN_TIMEOUT_S
            )
        places = place_ranks(self._workers, self._hosts, base, self._gpus)
        run_dir = str(self._record.directory)
        answers = await self._ask_all(
            [OpenRank(self.group_id, run_dir, blob_dirs, place) for place in places]
        )
        return [self._expected(rank, each, RankAddress) for rank, each in enumerate(answers)]

    async def _join(self, addresses: Sequence[RankAddress]) -> list[RankReady]:
        known = tuple(f"{each.host}:{each.port}" for each in addresses)
        answers = await self._ask_all(
            [
                JoinRank(self.group_id, rank, known, _JOIN_TIMEOUT_S)
                for rank in range(len(addresses))
            ]
        )
        return [self._expected(rank, each, RankReady) for rank, each in enumerate(answers)]

    def _expected(self, rank: int, answer: RankAnswer, kind: type[Any]) -> Any:
        if isinstance(answer, RankReady) and answer.failure is not None:
            failure = answer.failure
            raise LaunchError(
                f"rank {rank} could not join its group: {failure.type_name}: {failure.message}; "
                f"--no-init starts ranks without a process group",
                traceback=failure.traceback,
            )
        if not isinstance(answer, kind):
            reason = answer.reason if isinstance(answer, RankGone) else f"answered {answer!r}"
            raise LaunchError(f"rank {rank} (on {self._workers[rank]}) {reason}")
        return answer

    async def close(self, why: str) -> None:
        """End the ranks; what they execute is killed, and the next cell is told ``why``."""
        if not self._lost.done():
            self._lost.set_result(why)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._end_ranks()

    async def _end_ranks(self) -> None:
        closing = [
            self._calls.call(worker, CloseRank(self.group_id, rank), _CONTROL_TIMEOUT_S)
            for rank, worker in enumerate(self._workers)
        ]
        await asyncio.gather(*closing, return_exceptions=True)  # a worker that is gone has none

    async def _watch(self, rank: int) -> None:
        try:
            answer = await self._ask(rank, WatchRank(self.group_id, rank), None)
            reason = answer.reason if isinstance(answer, RankGone) else f"answered {answer!r}"
        except WorkerLostError:
            reason = "was lost with its worker"
        if not self._lost.done():
            where = f"rank {rank} (pid {self._ranks[rank].pid} on {self._hosts[rank]})"
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
                f"{len(other.targets)} of {len(self._workers)} ranks, for "
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

    def look(self) -> CellResult:
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
        asked = [
            self._ask(rank, InterruptRank(self.group_id, rank, running.number), _CONTROL_TIMEOUT_S)
            for rank in waiting
        ]
        await asyncio.gather(*asked, return_exceptions=True)  # a lost rank ends the cell anyway

    def _checked(self, targets: Sequence[int] | None) -> tuple[int, ...]:
        n_ranks = len(self._workers)
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
            answer = await self._ask(rank, call, None)
        except WorkerLostError:
            answer = RankGone("was lost with its worker")
        if not isinstance(answer, CellDone):
            # The watch of this rank tells how it ended, now.
            await asyncio.wait({self._lost})
            self._raise_if_lost()
            return
        running.done[rank] = answer
        status = self._ranks[rank]
        self._ranks[rank] = msgspec.structs.replace(status, log_end=answer.log_end)

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
        calls = [
            RejoinRank(self.group_id, rank, round_id, _JOIN_TIMEOUT_S)
            for rank in range(len(self._workers))
        ]
        try:
            for rank, answer in enumerate(await self._ask_all(calls)):
                self._expected(rank, answer, RankReady)
        except JupyterDDLError as error:
            if not self._lost.done():
                self._lost.set_result(f"its process group could not be made anew: {error.message}")
                self._on_lost(self._lost.result())
            self._raise_if_lost()
        return (
            "the collective that hung was broken off and the process group made anew; variables "
            "are kept, wrap models in DDP again"
        )

    # -- calls ------------------------------------------------------------------------------------

    async def _ask(self, rank: int, call: RankCall, timeout_s: float | None) -> RankAnswer:
        return await self._calls.call(self._workers[rank], call, timeout_s)

    async def _ask_all(self, calls: Sequence[RankCall]) -> list[RankAnswer]:
        asked = (self._ask(rank, call, _START_TIMEOUT_S) for rank, call in enumerate(calls))
        return list(await asyncio.gather(*asked))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
