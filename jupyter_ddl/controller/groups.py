"""The persistent groups of one controller: opened, found, told of their end, closed."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import msgspec

from jupyter_ddl.drivers.group_ranks import GroupRanks
from jupyter_ddl.drivers.group_record import GroupRecord
from jupyter_ddl.drivers.persistent_group import PersistentGroup
from jupyter_ddl.driving.admission import admitted, check_gpus_fit
from jupyter_ddl.errors import GroupLostError, PlacementError, SpecError
from jupyter_ddl.launch.rank_calls import RankCalls
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.cell_results import CellResult
from jupyter_ddl.protocol.replies import GroupResult, GroupStatus
from jupyter_ddl.protocol.requests import ExecuteCell, OpenGroup
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.paths import blob_dirs
from jupyter_ddl.verbs.run import CellGroup

__all__ = ["GroupRegistry"]

log = logging.getLogger(__name__)

_N_REMEMBERED = 50


class GroupRegistry:
    """Owns the persistent groups.  Used on the controller's loop only.

    Parameters
    ----------
    host_of : callable
        Address of a worker's host.
    on_free : callable
        Called when slots have become free.
    gpus_known : callable
        Waits until the workers have told of their GPUs.
    """

    def __init__(
        self,
        slots: SlotBook,
        calls: RankCalls,
        *,
        host_of: Callable[[str], str],
        on_free: Callable[[], None],
        gpus_known: Callable[[], Awaitable[None]],
    ) -> None:
        self._slots = slots
        self._calls = calls
        self._host_of = host_of
        self._on_free = on_free
        self._gpus_known = gpus_known
        self._groups: dict[str, PersistentGroup] = {}  # by name
        self._records: dict[str, GroupRecord] = {}  # by id
        self._ended: OrderedDict[str, str] = OrderedDict()
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def active(self) -> tuple[str, ...]:
        """Ids of the groups that are open."""
        return tuple(group.group_id for group in self._groups.values())

    @property
    def n_busy(self) -> int:
        """Groups that execute a cell."""
        return sum(group.is_busy for group in self._groups.values())

    def status(self) -> tuple[GroupStatus, ...]:
        return tuple(group.status() for group in self._groups.values())

    async def open(self, request: OpenGroup) -> GroupResult:
        """The group of a name: the open one, or a new one.

        Raises
        ------
        PlacementError
            Its ranks do not fit, or the open group has another size.
        LaunchError
            A rank could not be started.
        """
        verb = request.spec.verb
        if not isinstance(verb, CellGroup):
            raise SpecError(f"a group was asked for by a spec of {type(verb).__name__}")
        async with self._changing:
            group = self._groups.get(verb.name)
            if group is not None and request.reset:
                await self._close(group, "complete", "it was replaced (--reset)")
                group = None
            if group is not None:
                _check_same(group, verb)
                return GroupResult(group.status(), is_new=False)
            group = await self._start(request.spec, verb)
            return GroupResult(group.status(), is_new=True)

    async def execute(self, request: ExecuteCell) -> CellResult:
        """Execute a cell on an open group.  Raises :class:`GroupLostError` when it has ended."""
        return await self._group(request.group_id).execute(request.cell, request.targets)

    def poll(self, group_id: str) -> CellResult:
        return self._group(group_id).poll()

    async def interrupt(self, group_id: str) -> None:
        await self._group(group_id).interrupt()

    async def close_group(self, group_id: str, why: str) -> None:
        """End a group; no-op for one that has ended."""
        async with self._changing:
            if group_id in self.active:
                await self._close(self._group(group_id), "complete", why)

    async def close(self) -> None:
        """End all groups, with the cluster."""
        async with self._changing:
            for group in tuple(self._groups.values()):
                await self._close(group, "complete", "the cluster ended")
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _group(self, group_id: str) -> PersistentGroup:
        for group in self._groups.values():
            if group.group_id == group_id:
                return group
        reason = self._ended.get(group_id, "this cluster does not know it")
        raise GroupLostError(
            f"group {group_id} has ended: {reason}; its variables are gone, and the next cell "
            f"starts a new group",
            group_id=group_id,
        )

    async def _start(self, spec: RunSpec, verb: CellGroup) -> PersistentGroup:
        n_ranks = verb.n_ranks or max(1, self._slots.n_free)
        spec = msgspec.structs.replace(spec, verb=msgspec.structs.replace(verb, n_ranks=n_ranks))
        await self._gpus_known()
        spec = admitted(spec, self._slots, self._slots.n_slots)
        check_gpus_fit(spec, self._slots)
        places = self._slots.take_with_gpus(spec.run_id, n_ranks, spec.gpus_per_rank)
        if places is None:
            self._slots.leave(spec.run_id)  # it is refused and does not stand in line
            raise self._no_room(n_ranks, spec.gpus_per_rank)
        try:
            record = self._records[spec.run_id] = GroupRecord(spec, self._slots.n_slots)
            ranks = GroupRanks(
                spec,
                self._calls,
                places,
                [self._host_of(worker) for worker in places.workers],
                self._slots.gpus.texts(places.gpus),
            )
            group = PersistentGroup(
                spec, ranks, record, on_lost=lambda reason: self._spawn_end(group, reason)
            )
            await group.open(tuple(str(path) for path in blob_dirs()))
        except BaseException as error:
            await self._forget(spec.run_id, "failed", f"it could not be started: {error}")
            raise
        self._groups[verb.name] = group
        log.info("group %s: %d ranks are ready", spec.run_id, n_ranks)
        return group

    def _no_room(self, n_ranks: int, gpus_per_rank: int) -> PlacementError:
        n_free, n_slots = self._slots.n_free, self._slots.n_slots
        holders = ", ".join(self._slots.holders())
        why = f", held by {holders}" if holders else ""
        if n_free >= n_ranks and gpus_per_rank:
            return PlacementError(
                f"a group of {n_ranks} ranks needs {n_ranks * gpus_per_rank} free GPUs; "
                f"{self._slots.gpus.n_free} of {self._slots.gpus.n_gpus} are free{why}; pass a "
                f"smaller -n, --gpus-per-rank 0, or wait"
            )
        if n_free >= n_ranks:
            why = ", and runs that have waited for longer get them first"
        return PlacementError(
            f"a group of {n_ranks} ranks needs {n_ranks} free slots; {n_free} of {n_slots} are "
            f"free{why}; pass a smaller -n, wait, or `%cluster scale N`"
        )

    def _spawn_end(self, group: PersistentGroup, reason: str) -> None:
        """A rank has died: end the others."""
        task = asyncio.create_task(self._end_lost(group, reason), name=f"end {group.group_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_lost(self, group: PersistentGroup, reason: str) -> None:
        async with self._changing:
            if group in self._groups.values():
                await self._close(group, "failed", reason)

    async def _close(self, group: PersistentGroup, state: str, reason: str) -> None:
        self._groups = {name: each for name, each in self._groups.items() if each is not group}
        self._ended[group.group_id] = reason
        while len(self._ended) > _N_REMEMBERED:
            self._ended.popitem(last=False)
        await group.close(reason)
        await self._forget(group.group_id, state, reason)
        log.info("group %s has ended: %s", group.group_id, reason)

    async def _forget(self, group_id: str, state: str, reason: str) -> None:
        self._slots.leave(group_id)
        self._on_free()
        record = self._records.pop(group_id, None)
        if record is not None:
            await record.close("failed" if state == "failed" else "complete", reason)


def _check_same(group: PersistentGroup, wanted: CellGroup) -> None:
    n_ranks = group.status().n_ranks
    if wanted.n_ranks is not None and wanted.n_ranks != n_ranks:
        raise PlacementError(
            f"group {group.group_id} has {n_ranks} ranks, {wanted.n_ranks} were asked for; "
            f"--reset replaces it (its variables are lost), or leave -n out"
        )
