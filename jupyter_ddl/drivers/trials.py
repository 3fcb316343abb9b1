"""Drives the trials of one run: dispatch in batches, commit, tell, until it is over.

Used by search and map alike.  The order is always the same: events arrive from a worker, are
fenced by attempt, committed to the ledger, folded, and only then decided upon.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Literal

from jupyter_ddl.drivers.assigning import RunContext, make_assignment, make_group
from jupyter_ddl.drivers.committer import Committer
from jupyter_ddl.drivers.early import EarlyCheck
from jupyter_ddl.drivers.flights import Flight, FlightBook, evictions
from jupyter_ddl.drivers.judge import Judge
from jupyter_ddl.drivers.queue import TrialQueue
from jupyter_ddl.drivers.records import to_record
from jupyter_ddl.drivers.source import TrialSource
from jupyter_ddl.drivers.values import ValueFiles
from jupyter_ddl.drivers.verdict import final_event
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.events.ledger import LedgerWriter
from jupyter_ddl.events.messages import (
    AttemptFinished,
    Event,
    Notice,
    RankEvent,
    RunFinished,
    RunStarted,
    StopRequested,
    TrialCreated,
)
from jupyter_ddl.events.reducer import with_totals
from jupyter_ddl.events.run_state import RunState
from jupyter_ddl.events.snapshot import RunSnapshot
from jupyter_ddl.launch.dispatcher import WorkerLostError
from jupyter_ddl.launch.group import GroupLaunch
from jupyter_ddl.search.answers import Proposal
from jupyter_ddl.spec.assignment import StopRun, StopTrial, StopWhen, TrialAssignment
from jupyter_ddl.spec.run import RunSpec, SearchSpec

__all__ = ["TrialDriver"]

log = logging.getLogger(__name__)

_TICK_S = 0.5
_NO_WORKER_S = 60.0
_STOP_MARGIN_S = 35.0
"""Beyond the stop ladder's own grace: then a worker that does not answer is given up."""
_DISK_FULL_PAUSE_S = 2.0


class TrialDriver:
    """One run from its first ask to its last record."""

    def __init__(
        self,
        spec: RunSpec,
        source: TrialSource,
        judge: Judge,
        ledger: LedgerWriter,
        state: RunState,
        context: RunContext,
    ) -> None:
        self.spec = spec
        self.state = state
        self._source = source
        self._judge = judge
        self._ledger = ledger
        self._context = context
        self._committer = Committer(ledger, state, self._committed)
        self._queue = TrialQueue(spec, source, state.n_created, self._created, self.wake)
        self._early = EarlyCheck(source, _metric_of(spec), self._prune)
        self._flights = FlightBook()
        self._values = ValueFiles(context.run_dir / "values")
        self._session = state.session + 1
        self._n_assignments = 0
        self._served: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._stopping: StopWhen | None = None
        self._stop_deadline_s: float | None = None
        self._reason = ""
        self._disk_full = ""
        self._disk_full_until_s = 0.0
        self._no_worker_since_s: float | None = None

    # -- what the controller sees ------------------------------------------------------------

    @property
    def paused(self) -> str:
        """Why the run waits for something outside it; empty when it doesn't."""
        if self._committer.paused:
            return self._committer.paused
        if time.monotonic() < self._disk_full_until_s:
            return self._disk_full
        since = self._no_worker_since_s
        if since is not None and time.monotonic() - since > _NO_WORKER_S:
            return (
                f"no worker has been connected for {time.monotonic() - since:.0f} s; "
                f"see `%cluster logs`, or `%cluster scale N`"
            )
        return ""

    @property
    def stopping(self) -> bool:
        return self._stopping is not None

    @property
    def demand_slots(self) -> int:
        """Trials that could run at once, were there slots for all."""
        counts = self.state.counts
        unfinished = self._source.n_trials - counts.finished
        limit = self.spec.verb.max_parallel or unfinished
        return 0 if self.stopping else min(unfinished, limit)

    def snapshot(self) -> RunSnapshot:
        return self.state.snapshot(time.time(), paused=self.paused)

    def wake(self) -> None:
        """Slots or workers have changed."""
        self._wake.set()

    def stop(self, when: StopWhen, by: str, reason: str = "") -> None:
        """End the run: running trials at their next report, or all of them now."""
        if self._stopping == "now":
            return
        self._stopping = when
        self._reason = self._reason or reason or f"stopped by {by}"
        self._put(StopRequested(at_s=time.time(), when=when, by=by))
        if when == "now":
            grace = self.spec.limits.stop_grace_s + _STOP_MARGIN_S
            self._stop_deadline_s = time.monotonic() + grace
        for flight in self._flights:
            for trial, attempt in flight.open.items():
                self._signal(flight, trial, attempt, when)
        self._wake.set()

    def stop_trial(self, trial: int, when: StopWhen, by: str) -> bool:
        """End one running trial; False when it isn't running."""
        flight = self._flights.of_trial(trial)
        if flight is None:
            return False
        self._put(StopRequested(at_s=time.time(), when=when, trial=trial, by=by))
        self._signal(flight, trial, flight.open[trial], when)
        return True

    # -- the run -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Drive the run to its end.  Cancelling it leaves a ledger that can be resumed."""
        committing = asyncio.create_task(self._committer.run(), name=f"commit {self.spec.run_id}")
        self._context.slots.join(self.spec.run_id)
        try:
            self._put(await self._drive())
            await self._committer.drain()
            await self._release_workers()
        finally:
            self._queue.close()
            self._early.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._context.slots.leave(self.spec.run_id)
            committing.cancel()
            await asyncio.gather(committing, return_exceptions=True)
            self._ledger.close()

    async def _drive(self) -> RunFinished:
        """Everything up to the run's last record."""
        try:
            await self._begin()
            while not self._over():
                await self._wait()
                self._check_deadlines()
                self._fill()
                self._take_notices()
            await self._source.finish()
        except JupyterDDLError as error:
            # The sampler failed: what runs is ended, what is finished is kept.
            log.warning("%s: %s", self.spec.run_id, error.message)
            await self._end_flights()
            failed = RunFinished(at_s=time.time(), state="failed", reason=error.message)
            return with_totals(self.state, failed)
        hopeless = self._judge.hopeless(self.state) is not None
        verdict = (self.stopping, self._reason, hopeless)
        return final_event(self.spec, self.state, verdict, time.time())

    async def _begin(self) -> None:
        asked_to_stop = self.state.stop if self.state.end is None else None
        n_asked = self.state.n_created
        await self._source.replay([to_record(self.state.trial(n)) for n in range(n_asked)])
        self._queue.adopt(self.state)
        self._values.adopt(self.state)
        started = RunStarted(
            at_s=time.time(),
            session=self._session,
            n_slots=self._context.slots.n_slots,
            max_parallel=self._max_parallel(),
            controller_pid=self._context.pid,
        )
        self._put(started)
        if asked_to_stop is not None:
            self.stop(asked_to_stop.when, by=asked_to_stop.by)
        self._wake.set()

    async def _end_flights(self) -> None:
        self.stop("now", by="jupyter_ddl")
        while len(self._flights) or not self._committer.is_idle:
            await self._wait()
            self._check_deadlines()

    def _max_parallel(self) -> int:
        return self.spec.verb.max_parallel or max(1, self._context.slots.n_slots)

    def _take_notices(self) -> None:
        now = time.time()
        self._put(*(Notice(at_s=now, text=text) for text in self._source.take_notices()))

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(_TICK_S):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _over(self) -> bool:
        if len(self._flights) or not self._committer.is_idle:
            return False
        if self._stopping is not None:
            return True
        return self._queue.is_empty

    def _check_deadlines(self) -> None:
        if self._context.slots.n_slots:
            self._no_worker_since_s = None
        elif self._no_worker_since_s is None:
            self._no_worker_since_s = time.monotonic()
        timeout = self.spec.limits.timeout_s
        started = self.state.started_at_s
        if timeout and started and self._stopping is None and time.time() - started > timeout:
            self.stop("now", by="timeout", reason=f"stopped by its timeout of {timeout:.0f} s")
        if self._stop_deadline_s is not None and time.monotonic() > self._stop_deadline_s:
            for task in self._tasks:
                task.cancel()  # its flight lands, and what it had is cancelled with the run

    # -- down: assignments ---------------------------------------------------------------------

    def _fill(self) -> None:
        max_parallel = self._max_parallel()
        while self._stopping is None and not self.paused:
            addresses = self._take(max_parallel)
            if not addresses:
                return
            batch: list[TrialAssignment] = []
            try:
                batch, fresh = self._queue.next_batch(max_parallel)
            finally:
                if not batch:
                    self._give(addresses)
            if not batch:
                return
            self._launch(batch, fresh, addresses)

    def _take(self, max_parallel: int) -> Sequence[str]:
        """Hold a slot for a batch, or all slots of a group at once."""
        slots = self._context.slots
        if self.spec.is_grouped:
            return slots.take_group(self.spec.run_id, self.spec.n_ranks) or ()
        address = slots.take(self.spec.run_id, self._queue.depth, max_parallel)
        return () if address is None else (address,)

    def _give(self, addresses: Sequence[str]) -> None:
        for address in addresses:
            self._context.slots.give(self.spec.run_id, address)

    def _launch(self, batch: list[TrialAssignment], fresh: bool, workers: Sequence[str]) -> None:
        self._n_assignments += 1
        name = f"{self.spec.run_id}-{self._session}-{self._n_assignments}"
        best = self.state.best_value
        if self.spec.is_grouped:
            assignments = make_group(self.spec, self._context, batch[0], name, workers, best)
        else:
            assignments = [
                make_assignment(self.spec, self._context, batch, name, fresh=fresh, best_value=best)
            ]
        self._served.update(workers)
        self._spawn(self._fly(self._flights.launch(assignments, workers)))

    async def _fly(self, flight: Flight) -> None:
        started = time.monotonic()
        n_trials = len(flight.assignments[0].trials)
        try:
            await self._execute(flight)
        except WorkerLostError as error:
            log.info("%s: %s", self.spec.run_id, error.message)
            self._put(*evictions(flight, time.time()))
        finally:
            self._land(flight)
        done = n_trials - len(flight.open)
        if done:
            self._queue.observe(done, time.monotonic() - started)
        self._wake.set()

    async def _execute(self, flight: Flight) -> None:
        def on_events(events: Sequence[RankEvent | Event]) -> None:
            self._put(*self._flights.admit(flight, events))

        dispatcher = self._context.dispatcher
        if not self.spec.is_grouped:
            await dispatcher.execute(flight.assignments[0], flight.workers[0], on_events)
            return
        hosts = [self._context.host_of(worker) for worker in flight.workers]
        flight.group = GroupLaunch(dispatcher, flight.assignments, flight.workers, hosts, on_events)
        await flight.group.run()

    def _land(self, flight: Flight) -> None:
        """Give the slot back; what was never started goes to the front of the queue."""
        self._give(flight.workers)
        self._flights.land(flight)
        unstarted = flight.open.keys() - flight.started.keys()
        self._queue.put_back(t for t in flight.assignments[0].trials if t.trial in unstarted)

    # -- up: events ----------------------------------------------------------------------------

    def _put(self, *events: Event) -> None:
        if events:
            self._committer.put(events)

    def _created(self, trial: Proposal) -> None:
        self._put(TrialCreated(trial.number, trial.params, time.time()))

    def _committed(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, AttemptFinished):
                self._settle(event)
        for trial in self._judge.look(events, self.state):
            self._prune(trial)
        if self._source.checks_early:
            self._early.look(events, self.state)
        if self._stopping is None and self._judge.hopeless(self.state) is not None:
            self.stop("now", by="jupyter_ddl", reason="every trial so far failed the same way")
        self._wake.set()

    def _settle(self, event: AttemptFinished) -> None:
        """After an attempt: the trial is over, or goes to the queue again."""
        self._values.settle(event, self.state)
        if event.failure is not None and event.failure.kind == "disk":
            self._disk_full = event.failure.message
            self._disk_full_until_s = time.monotonic() + _DISK_FULL_PAUSE_S
        trial = self.state.trial(event.trial)
        if trial.state == "waiting":
            self._queue.retry(Proposal(event.trial, trial.params))
            self._judge.restarted(event.trial)
        elif event.attempt == trial.attempt:
            self._source.tell(to_record(trial))
            self._queue.ended(event.trial)

    # -- stopping --------------------------------------------------------------------------------

    def _prune(self, trial: int) -> None:
        flight = self._flights.of_trial(trial)
        if flight is not None:
            self._signal(flight, trial, flight.open[trial], "next_report", "pruned")

    def _signal(
        self,
        flight: Flight,
        trial: int,
        attempt: int,
        when: StopWhen,
        reason: Literal["pruned", "cancelled"] = "cancelled",
    ) -> None:
        # Of a group, rank 0 alone leaves at its next report; the launcher ends the others then.
        # Were all asked, each would leave at another step, and one could wait for another.
        rank = 0 if flight.group is not None and when == "next_report" else None
        workers = flight.workers[:1] if rank == 0 else tuple(dict.fromkeys(flight.workers))
        stop = StopTrial(self.spec.run_id, trial, attempt, reason, when, rank)
        for worker in workers:
            self._spawn(self._context.dispatcher.control(worker, stop))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _release_workers(self) -> None:
        """End this run's idle rank processes on the workers that served it."""
        stop = StopRun(run_id=self.spec.run_id)
        known = set(self._context.slots.addresses())
        await asyncio.gather(
            *(self._context.dispatcher.control(a, stop) for a in self._served & known)
        )


def _metric_of(spec: RunSpec) -> str:
    return spec.verb.metric if isinstance(spec.verb, SearchSpec) else ""
