"""The way down: assignments to workers that have a free slot, signals to those that run."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

from jupyter_ddl.drivers.assigning import RunContext, make_assignment
from jupyter_ddl.drivers.flights import Flight, FlightBook, evictions
from jupyter_ddl.drivers.queue import TrialQueue
from jupyter_ddl.events.messages import Event
from jupyter_ddl.events.run_state import RunState
from jupyter_ddl.launch.dispatcher import WorkerLostError
from jupyter_ddl.spec.assignment import StopRun, StopTrial, StopWhen, TrialAssignment
from jupyter_ddl.spec.run import RunSpec

__all__ = ["Sender"]

log = logging.getLogger(__name__)


class Sender:
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
        self._spec = spec
        self._context = context
        self._queue = queue
        self._state = state
        self._put = put
        self._session = session
        self._flights = FlightBook()
        self._n_assignments = 0
        self._served: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Assignments on their way."""
        return len(self._flights)

    @property
    def max_parallel(self) -> int:
        """Trials that may run at once now."""
        return self._spec.verb.max_parallel or max(1, self._context.slots.n_slots)

    # -- assignments ---------------------------------------------------------------------------

    def fill(self) -> None:
        """Send assignments as long as there are a place and a trial for one.

        Raises
        ------
        JupyterDDLError
            The sampler failed.
        """
        slots, run_id, n_parallel = self._context.slots, self._spec.run_id, self.max_parallel
        while (address := slots.take(run_id, self._queue.depth, n_parallel)) is not None:
            batch: list[TrialAssignment] = []
            try:
                batch, fresh = self._queue.next_batch(n_parallel)
            finally:
                if not batch:
                    slots.give(run_id, address)
            if not batch:
                return
            self._launch(batch, fresh, address)

    def hold(self) -> None:
        """Send nothing at present, and keep no other run from doing so."""
        self._context.slots.withdraw(self._spec.run_id)

    def _launch(self, batch: list[TrialAssignment], fresh: bool, address: str) -> None:
        self._n_assignments += 1
        assignment = make_assignment(
            self._spec,
            self._context,
            batch,
            f"{self._spec.run_id}-{self._session}-{self._n_assignments}",
            fresh=fresh,
            best_value=self._state.best_value,
        )
        self._served.add(address)
        self._spawn(self._fly(self._flights.launch(assignment, address)))

    async def _fly(self, flight: Flight) -> None:
        started = time.monotonic()
        try:
            await self._execute(flight)
            # Not when this is cancelled: then the whole run ends, and its open attempts with it.
            self._put(evictions(flight, time.time()))
        finally:
            self._land(flight, started)

    async def _execute(self, flight: Flight) -> None:
        try:
            await self._context.dispatcher.execute(
                flight.assignment,
                flight.worker,
                lambda events: self._put(self._flights.admit(flight, events)),
            )
        except WorkerLostError as error:
            log.info("%s: %s", self._spec.run_id, error.message)
        except Exception:  # the wall of a loop task: its trials must not be lost with it
            log.exception("%s: an assignment failed", self._spec.run_id)

    def _land(self, flight: Flight, started_s: float) -> None:
        """Give the slot back; what was never started goes to the front of the queue."""
        self._flights.land(flight)
        unstarted = flight.open.keys() - flight.started.keys()
        self._queue.put_back(t for t in flight.assignment.trials if t.trial in unstarted)
        done = len(flight.assignment.trials) - len(flight.open)
        if done:
            self._queue.observe(done, time.monotonic() - started_s)
        self._context.slots.give(self._spec.run_id, flight.worker)
        self._context.wake_all()

    # -- signals -------------------------------------------------------------------------------

    def prune(self, trial: int) -> None:
        """End a running trial at its next report."""
        self._signal_trial(trial, "next_report", "pruned")

    def stop_trial(self, trial: int, when: StopWhen) -> bool:
        """Cancel one running trial; False when it isn't running."""
        return self._signal_trial(trial, when, "cancelled")

    def stop_all(self, when: StopWhen) -> None:
        """Cancel everything that is on its way, and what waits at the workers."""
        stop = StopRun(run_id=self._spec.run_id, when=when)
        for worker in {flight.worker for flight in self._flights}:
            self._spawn(self._context.dispatcher.control(worker, stop))

    def give_up(self) -> None:
        """Forget what is on its way: its workers had their time to answer."""
        for task in self._tasks:
            task.cancel()

    async def release_workers(self) -> None:
        """End this run's idle rank processes on the workers that served it."""
        stop = StopRun(run_id=self._spec.run_id, is_over=True)
        known = set(self._context.slots.addresses())
        await asyncio.gather(
            *(self._context.dispatcher.control(a, stop) for a in self._served & known)
        )

    async def close(self) -> None:
        self.give_up()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _signal_trial(
        self, trial: int, when: StopWhen, reason: Literal["pruned", "cancelled"]
    ) -> bool:
        flight = self._flights.of_trial(trial)
        if flight is None:
            return False
        stop = StopTrial(self._spec.run_id, trial, flight.open[trial], reason, when)
        self._spawn(self._context.dispatcher.control(flight.worker, stop))
        return True

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
