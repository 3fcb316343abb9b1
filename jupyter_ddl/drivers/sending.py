"""The way down: assignments to workers that have a free slot, signals to those that run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Literal

from jupyter_ddl.drivers.admission import waiting_text
from jupyter_ddl.drivers.assigning import RunContext, make_assignment, make_group
from jupyter_ddl.drivers.flights import Flight, FlightBook, evictions
from jupyter_ddl.drivers.patience import Patience
from jupyter_ddl.drivers.queue import TrialQueue
from jupyter_ddl.drivers.rounds import Rounds, round_notices
from jupyter_ddl.drivers.service import WorkerService
from jupyter_ddl.launch.dispatcher import WorkerLostError
from jupyter_ddl.launch.group import GroupLaunch
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.placement.gpus import Grant
from jupyter_ddl.protocol.assignment import StopRun, StopTrial, StopWhen, TrialAssignment
from jupyter_ddl.protocol.events import Event, RankEvent, WorkerLeaving
from jupyter_ddl.protocol.run import RunSpec

__all__ = ["Sender"]

log = logging.getLogger(__name__)


class Sender(WorkerService):
    """Keeps the slots of one run busy.  Used on the controller's loop only.

    Parameters
    ----------
    put : callable
        Takes events that are to be committed.
    session : int
        Number of this session of the run; makes assignment ids unique.
    """

    def __init__(
        self,
        spec: RunSpec,
        context: RunContext,
        queue: TrialQueue,
        state: RunState,
        put: Callable[[Sequence[Event]], None],
        *,
        session: int,
    ) -> None:
        super().__init__(spec.run_id, context)
        self._spec = spec
        self._queue = queue
        self._state = state
        self._put = put
        self._session = session
        self._flights = FlightBook()
        self._rounds = Rounds(spec, context.slots) if spec.is_grouped else None
        self._patience = Patience(
            spec.run_id,
            spec.verb.ranks.n_fewest,
            context.slots,
            spec.limits.admission_timeout_s,
            spec.gpus_per_rank,
        )
        self._n_assignments = 0

    def __len__(self) -> int:
        """Assignments on their way."""
        return len(self._flights)

    @property
    def max_parallel(self) -> int:
        """Trials that may run at once now."""
        n_slots = self._context.slots.n_slots
        return self._spec.verb.max_parallel or max(1, n_slots // self._spec.n_ranks)

    @property
    def waiting(self) -> str:
        """Why no rank group, or trial on a GPU, can begin yet; empty when none waits."""
        if len(self._flights):
            return ""
        if self._rounds is not None:
            return self._rounds.waiting
        spec, slots = self._spec, self._context.slots
        n_gpus = spec.gpus_per_rank
        if not n_gpus or not self._queue.may_have_more or slots.n_within_reach(spec.run_id, n_gpus):
            return ""
        return waiting_text(spec.run_id, 1, slots, n_gpus)

    def liveness(self) -> dict[int, tuple[str, float]]:
        """Of a run's one group: phase of each running rank, and when it last moved (Unix)."""
        groups = [flight.group for flight in self._flights if flight.group is not None]
        return groups[0].liveness() if len(groups) == 1 else {}

    def poll(self) -> None:
        """See whether a group that had to begin smaller can grow; called at every tick.

        Raises
        ------
        PlacementError
            A group has waited for its slots for too long.
        """
        if self._rounds is None:
            return
        may_begin = self._queue.may_have_more and not len(self._flights)
        self._patience.poll(is_waiting=may_begin)
        for flight in self._flights:
            if flight.group is not None and self._rounds.may_grow(len(flight.workers)):
                flight.group.ask_to_leave()

    # -- assignments ---------------------------------------------------------------------------

    def fill(self) -> None:
        """Send assignments as long as there are a place and a trial for one.

        Raises
        ------
        JupyterDDLError
            The sampler failed.
        """
        n_parallel = self.max_parallel
        if self._rounds is not None and not self._queue.may_have_more:
            self.hold()
            # Asked without a slot in hand: all it can do is to find out that it is empty.
            self._queue.put_back(self._queue.next_batch(n_parallel)[0])
            return
        while places := self._take(n_parallel):
            batch: list[TrialAssignment] = []
            try:
                batch, fresh = self._queue.next_batch(n_parallel)
            finally:
                if not batch:
                    self._give(places)
            if not batch:
                return
            self._launch(batch, fresh, places)

    def _take(self, n_parallel: int) -> Grant | None:
        """Hold a place for a batch, or all places of a group at once."""
        slots, run_id, n_gpus = self._context.slots, self._spec.run_id, self._spec.gpus_per_rank
        if self._rounds is not None:
            return self._rounds.take() if len(self._flights) < n_parallel else None
        if n_gpus:
            # One at a time per GPU: nothing waits at the worker behind it.
            is_room = len(self._flights) < n_parallel
            return slots.take_with_gpus(run_id, 1, n_gpus) if is_room else None
        address = slots.take(run_id, self._queue.depth, n_parallel)
        return None if address is None else Grant((address,))

    def _give(self, places: Grant) -> None:
        gpus = places.gpus or ((),) * len(places.workers)
        for worker, own in zip(places.workers, gpus, strict=True):
            self._context.slots.give(self._spec.run_id, worker, own)

    def hold(self) -> None:
        """Send nothing at present, and keep no other run from doing so."""
        if self._rounds is not None:
            self._rounds.hold()
        self._context.slots.withdraw(self._spec.run_id)

    def _launch(self, batch: list[TrialAssignment], fresh: bool, places: Grant) -> None:
        self._n_assignments += 1
        name = f"{self._spec.run_id}-{self._session}-{self._n_assignments}"
        spec, best = self._spec, self._state.best_value
        if spec.is_grouped:
            assignments = make_group(spec, self._context, batch[0], name, places, best)
            n_ranks = len(places.workers)
            self._put(round_notices(spec, self._state, batch[0], n_ranks, time.time()))
        else:
            alone = make_assignment(
                spec, self._context, batch, name, fresh=fresh, best_value=best, places=places
            )
            assignments = [alone]
        self._served.update(places.workers)
        self._spawn(self._fly(self._flights.launch(assignments, places)))

    async def _fly(self, flight: Flight) -> None:
        started = time.monotonic()
        try:
            await self._execute(flight)
            # Not when this is cancelled: then the whole run ends, and its open attempts with it.
            self._put(evictions(flight, time.time()))
        finally:
            self._land(flight, started)

    async def _execute(self, flight: Flight) -> None:
        def on_events(events: Sequence[RankEvent | Event]) -> None:
            self._put(self._flights.admit(flight, events))
            for event in events:
                if isinstance(event, WorkerLeaving):
                    retire(flight.workers[0])

        retire = self._context.slots.retire
        dispatcher = self._context.dispatcher
        try:
            if self._spec.is_grouped:
                hosts = [self._context.host_of(worker) for worker in flight.workers]
                flight.group = GroupLaunch(
                    dispatcher,
                    flight.assignments,
                    flight.workers,
                    hosts,
                    on_events,
                    on_worker_leaving=retire,
                    hang_timeout_s=self._spec.verb.ranks.hang_timeout_s,
                    devices=self._context.slots.gpus.texts(flight.gpus),
                )
                await flight.group.run()
            else:
                await dispatcher.execute(flight.assignments[0], flight.workers[0], on_events)
        except WorkerLostError as error:
            log.info("%s: %s", self._spec.run_id, error.message)
        except Exception:  # the wall of a loop task: its trials must not be lost with it
            log.exception("%s: an assignment failed", self._spec.run_id)

    def _land(self, flight: Flight, started_s: float) -> None:
        """Give the slot back; what was never started goes to the front of the queue."""
        self._flights.land(flight)
        unstarted = flight.open.keys() - flight.started.keys()
        self._queue.put_back(t for t in flight.trials if t.trial in unstarted)
        done = len(flight.trials) - len(flight.open)
        if done:
            self._queue.observe(done, time.monotonic() - started_s)
        self._give(Grant(flight.workers, flight.gpus))
        self._context.wake_all()

    # -- signals -------------------------------------------------------------------------------

    def prune(self, trial: int) -> None:
        """End a running trial at its next report."""
        self._signal_trial(trial, "next_report", "pruned")

    def stop_trial(self, trial: int, when: StopWhen) -> bool:
        """Cancel one running trial; False when it isn't running."""
        return self._signal_trial(trial, when, "cancelled")

    def stop_all(self, when: StopWhen, *, counts: bool = False) -> None:
        """Cancel everything that is on its way, and what waits at the workers.

        With ``counts``, what has begun ends at its next report as complete instead.
        """
        first: dict[str, list[StopTrial]] = {}
        for flight in self._flights:
            stops = [
                StopTrial(self._spec.run_id, trial, flight.open[trial], "complete", when)
                for trial in (flight.started if counts else ())
            ]
            for worker in set(flight.workers):
                first.setdefault(worker, []).extend(stops)
        for worker, stops in first.items():
            self._spawn(self._stop_worker(worker, stops, when))

    async def _stop_worker(self, worker: str, first: list[StopTrial], when: StopWhen) -> None:
        for stop in first:
            await self._context.dispatcher.control(worker, stop)
        await self._context.dispatcher.control(worker, StopRun(self._spec.run_id, when))

    def _signal_trial(
        self, trial: int, when: StopWhen, reason: Literal["pruned", "cancelled"]
    ) -> bool:
        flight = self._flights.of_trial(trial)
        if flight is None:
            return False
        # Of a group, rank 0 alone leaves at its next report; the launcher ends the others then.
        # Were all asked, each would leave at another step, and one could wait for another.
        rank = 0 if self._spec.is_grouped and when == "next_report" else None
        workers = flight.workers[:1] if rank == 0 else tuple(dict.fromkeys(flight.workers))
        stop = StopTrial(self._spec.run_id, trial, flight.open[trial], reason, when, rank)
        for worker in workers:
            self._spawn(self._context.dispatcher.control(worker, stop))
        return True
