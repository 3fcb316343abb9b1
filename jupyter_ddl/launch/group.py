"""Starts a rank group, brings its ranks together, and ends it as a whole."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from jupyter_ddl.events.messages import Event, RankEvent
from jupyter_ddl.launch.dispatcher import Dispatcher, WorkerLostError
from jupyter_ddl.launch.group_fold import Action, GroupFold, Join
from jupyter_ddl.spec.assignment import Assignment, StopTrial
from jupyter_ddl.spec.group import JoinGroup, RankPlace

__all__ = ["GroupLaunch", "place_ranks"]

OnEvents = Callable[[Sequence[Event]], None]


def place_ranks(workers: Sequence[str], hosts: Sequence[str], base: RankPlace) -> list[RankPlace]:
    """Places of a new round on these workers: ranks of one host are neighbours.

    Parameters
    ----------
    workers, hosts
        One worker per rank, and the address of its host; sorted by host.
    base
        What all ranks have in common.
    """
    order = list(dict.fromkeys(hosts))
    group_id = f"{base.group_id}-{secrets.token_hex(16)}"
    seen: dict[str, int] = {}
    places = []
    for rank, host in enumerate(hosts):
        local_rank = seen[host] = seen.get(host, -1) + 1
        places.append(
            msgspec.structs.replace(
                base,
                group_id=group_id,
                rank=rank,
                world_size=len(workers),
                local_rank=local_rank,
                local_world_size=hosts.count(host),
                group_rank=order.index(host),
                n_hosts=len(order),
                hosts=tuple(order),
            )
        )
    return places


class GroupLaunch:
    """One round of one group.  Used on the controller's loop only."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        assignments: Sequence[Assignment],
        workers: Sequence[str],
        hosts: Sequence[str],
        on_events: OnEvents,
    ) -> None:
        self._dispatcher = dispatcher
        self._assignments = tuple(assignments)
        self._workers = tuple(workers)
        self._on_events = on_events
        self._tasks: set[asyncio.Task[None]] = set()
        self.fold = GroupFold(self._assignments, hosts)

    async def run(self) -> None:
        """Until every rank has ended; the group's ``AttemptFinished`` is the last event."""
        try:
            await asyncio.gather(*(self._run_rank(rank) for rank in range(len(self._workers))))
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run_rank(self, rank: int) -> None:
        try:
            await self._dispatcher.execute(
                self._assignments[rank],
                self._workers[rank],
                lambda events: self._arrived(rank, events),
            )
        except WorkerLostError:
            self._act(*self.fold.lost(rank, time.time()))
        # A rank without an end was never executed: to the group it is lost like any other.
        self._act(*self.fold.lost(rank, time.time()))

    def _arrived(self, rank: int, events: Sequence[RankEvent]) -> None:
        for event in events:
            self._act(*self.fold.add(rank, event))

    def _act(self, events: Sequence[Event], actions: Sequence[Action]) -> None:
        if events:
            self._on_events(events)
        for action in actions:
            if isinstance(action, Join):
                self._tell_addresses(action.addresses)
            else:
                for rank in action.ranks:
                    self._stop(rank)

    def _tell_addresses(self, addresses: tuple[str, ...]) -> None:
        trial = self._assignments[0].trials[0]
        run_id = self._assignments[0].run_id
        join = JoinGroup(run_id, trial.trial, trial.attempt, addresses)
        for worker in dict.fromkeys(self._workers):
            self._spawn(self._dispatcher.control(worker, join))

    def _stop(self, rank: int) -> None:
        assignment = self._assignments[rank]
        trial = assignment.trials[0]
        stop = StopTrial(assignment.run_id, trial.trial, trial.attempt, "cancelled", "now", rank)
        self._spawn(self._dispatcher.control(self._workers[rank], stop))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
