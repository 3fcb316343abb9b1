"""Starts a rank group, brings its ranks together, and ends it as a whole."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import msgspec

from jupyter_ddl.launch.dispatcher import Dispatcher, WorkerLostError
from jupyter_ddl.launch.group_fold import (
    Action,
    AskToLeave,
    AwaitCause,
    GroupFold,
    Join,
    StopOthers,
)
from jupyter_ddl.launch.hang_watch import HangWatch
from jupyter_ddl.protocol.assignment import Assignment, StopTrial, StopWhen
from jupyter_ddl.protocol.events import Event, HangVerdict, RankEvent, WorkerLeaving
from jupyter_ddl.protocol.group import JoinGroup, RankPlace
from jupyter_ddl.ranks.stopping import StopReason

__all__ = ["GroupLaunch", "place_ranks"]

log = logging.getLogger(__name__)

_When: TypeAlias = StopWhen | Literal["next_checkpoint"]

OnEvents = Callable[[Sequence[Event]], None]

_CAUSE_TIMEOUT_S = 0.7
"""How long a failure that looks like a consequence waits for its cause: the end of a killed
process is noticed later than the connections that it closes."""
_END_TIMEOUT_S = 15.0
"""Within it a rank that was told to end is gone, or given up with its worker."""


def place_ranks(
    workers: Sequence[str],
    hosts: Sequence[str],
    base: RankPlace,
    gpus: Sequence[tuple[str, ...]] = (),
) -> list[RankPlace]:
    """Places of a new round on these workers: ranks of one host are neighbours.

    Parameters
    ----------
    workers, hosts
        One worker per rank, and the address of its host; sorted by host.
    base
        What all ranks have in common.
    gpus
        UUIDs of each rank's GPUs; empty: none has any.
    """
    own = gpus or [()] * len(workers)
    here = list(zip(hosts, own, strict=True))
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
                gpus=tuple(uuid for at, each in here if at == host for uuid in each),
                gpus_per_rank=len(own[rank]),
            )
        )
    return places


class GroupLaunch:
    """One round of one group.  Used on the controller's loop only.

    Parameters
    ----------
    on_worker_leaving : callable
        Gets the address of a worker that was told to go: it can have no rank of the next round.
    hang_timeout_s : float, optional
        See :class:`~jupyter_ddl.launch.watch.StepWatch`.
    devices
        What to call the device of each rank; empty: all are CPUs.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        assignments: Sequence[Assignment],
        workers: Sequence[str],
        hosts: Sequence[str],
        on_events: OnEvents,
        *,
        on_worker_leaving: Callable[[str], None] = lambda _: None,
        hang_timeout_s: float | None = None,
        devices: Sequence[str] = (),
    ) -> None:
        self._dispatcher = dispatcher
        self._assignments = tuple(assignments)
        self._workers = tuple(workers)
        self._on_events = on_events
        self._on_worker_leaving = on_worker_leaving
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: list[asyncio.TimerHandle] = []
        loop = asyncio.get_running_loop()
        self._given_up: list[asyncio.Future[None]] = [loop.create_future() for _ in workers]
        self._fold = GroupFold(self._assignments, hosts, devices)
        self._watch = HangWatch(
            dispatcher, self._assignments, self._workers, hang_timeout_s, self._on_hang
        )

    async def run(self) -> None:
        """Until every rank has ended; the group's ``AttemptFinished`` is the last event."""
        self._spawn(self._watch.run())
        try:
            await asyncio.gather(*(self._run_rank(rank) for rank in range(len(self._workers))))
        finally:
            for timer in self._timers:
                timer.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def liveness(self) -> dict[int, tuple[str, float]]:
        """Phase of each running rank, and the Unix seconds at which it last moved."""
        return self._watch.liveness()

    def ask_to_leave(self) -> None:
        """Have rank 0 leave at its next checkpoint, and the others with it, to be started anew.

        Were all asked, each would leave at another step, and one could wait for another.
        """
        self._stop(0, "moved", "next_checkpoint")

    async def _run_rank(self, rank: int) -> None:
        executing = asyncio.create_task(
            self._dispatcher.execute(
                self._assignments[rank],
                self._workers[rank],
                lambda events: self._arrived(rank, events),
            )
        )
        given_up = self._given_up[rank]
        try:
            await asyncio.wait({executing, given_up}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            given_up.cancel()
            executing.cancel()
            (ended,) = await asyncio.gather(executing, return_exceptions=True)
        if isinstance(ended, Exception) and not isinstance(ended, WorkerLostError):
            raise ended
        # A rank without an end was never executed: to the group it is lost like any other.
        why = "its worker did not begin it" if ended is None else "it did not end when told to"
        if isinstance(ended, WorkerLostError):
            why = ended.message
        self._act(*self._fold.lost(rank, time.time(), why))

    def _arrived(self, rank: int, events: Sequence[RankEvent]) -> None:
        recorded: list[Event] = []
        for event in events:
            self._watch.observe(rank, event)
            if isinstance(event, WorkerLeaving):
                self._on_worker_leaving(self._workers[rank])
            found, actions = self._fold.add(rank, event)
            recorded += found
            if actions:
                self._act(recorded, actions)
                recorded = []
        self._act(recorded, ())

    def _on_hang(self, verdict: HangVerdict) -> None:
        self._act(*self._fold.hang(verdict))

    def _act(self, events: Sequence[Event], actions: Sequence[Action]) -> None:
        if events:
            self._on_events(events)
        for action in actions:
            match action:
                case Join(addresses=addresses):
                    self._tell_addresses(addresses)
                case StopOthers(ranks=ranks, grace_s=grace_s):
                    for rank in ranks:
                        self._stop(rank, "cancelled", "now", grace_s)
                        self._later(_END_TIMEOUT_S, partial(self._give_up, rank))
                case AwaitCause():
                    self._later(_CAUSE_TIMEOUT_S, lambda: self._act((), self._fold.cause_is_late()))
                case AskToLeave():
                    self.ask_to_leave()

    def _give_up(self, rank: int) -> None:
        if not self._given_up[rank].done():
            log.warning("rank %d on %s does not end; given up", rank, self._workers[rank])
            self._given_up[rank].set_result(None)

    def _tell_addresses(self, addresses: tuple[str, ...]) -> None:
        trial = self._assignments[0].trials[0]
        run_id = self._assignments[0].run_id
        join = JoinGroup(run_id, trial.trial, trial.attempt, addresses)
        for worker in dict.fromkeys(self._workers):
            self._spawn(self._dispatcher.control(worker, join))

    def _stop(
        self, rank: int, reason: StopReason, when: _When, grace_s: float | None = None
    ) -> None:
        first = self._assignments[0]
        trial = first.trials[0]
        stop = StopTrial(first.run_id, trial.trial, trial.attempt, reason, when, rank, grace_s)
        self._spawn(self._dispatcher.control(self._workers[rank], stop))

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(delay_s, action))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("watching or signalling a rank group failed", exc_info=error)
