"""Drives the trials of one run: ask, dispatch in batches, commit, tell, until it is over.

Used by search and map alike.  The order is always the same: events arrive from a worker, are
fenced by attempt, committed to the ledger, folded, and only then decided upon.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_ddl.drivers.committer import Committer
from jupyter_ddl.drivers.flights import Flight, FlightBook, evictions
from jupyter_ddl.drivers.judge import Judge
from jupyter_ddl.drivers.records import to_record
from jupyter_ddl.drivers.source import NotYet, TrialSource
from jupyter_ddl.drivers.values import ValueFiles
from jupyter_ddl.drivers.verdict import final_event
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.events.ledger import LedgerWriter
from jupyter_ddl.events.messages import (
    AttemptFinished,
    Event,
    Notice,
    RankEvent,
    RunStarted,
    StopRequested,
    TrialCreated,
)
from jupyter_ddl.events.reducer import RunState
from jupyter_ddl.events.snapshot import RunSnapshot
from jupyter_ddl.launch.dispatcher import Dispatcher, WorkerLostError
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.search.answers import Proposal
from jupyter_ddl.search.batching import BatchSizer, reuse_process
from jupyter_ddl.spec.assignment import Assignment, StopRun, StopTrial, StopWhen, TrialAssignment
from jupyter_ddl.spec.run import MapSpec, RunSpec, SearchSpec
from jupyter_ddl.spec.seeds import derive_seed

__all__ = ["RunContext", "TrialDriver"]

log = logging.getLogger(__name__)

_TICK_S = 0.5
_NO_WORKER_S = 60.0
_STOP_MARGIN_S = 35.0
"""Beyond the stop ladder's own grace: then a worker that does not answer is given up."""
_SHORT_TRIAL_S = 0.5
"""Below it a second batch waits at the worker, so that its slot is never idle."""


@dataclass(frozen=True)
class RunContext:
    """What a driver shares with the others of its controller."""

    slots: SlotBook
    dispatcher: Dispatcher
    run_dir: Path
    blob_dirs: tuple[str, ...]
    program_digest: str
    pid: int


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
        self._flights = FlightBook()
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._again: deque[Proposal] = deque()  # were not executed, or come from a session before
        self._retries: deque[Proposal] = deque()  # failed or evicted: alone, in a fresh process
        self._attempts: dict[int, int] = {}
        self._exhausted = False
        self._stopping: StopWhen | None = None
        self._stop_deadline_s: float | None = None
        self._reason = ""
        self._sizer = BatchSizer()
        self._values = ValueFiles(context.run_dir / "values")
        self._n_assignments = 0
        self._no_worker_since_s: float | None = None
        self._working: asyncio.Task[None] | None = None
        self._n_asked = state.n_created
        self._served: set[str] = set()

    # -- what the controller sees ------------------------------------------------------------

    @property
    def paused(self) -> str:
        """Why the run waits for something outside it; empty when it doesn't."""
        if self._committer.paused:
            return self._committer.paused
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
            await self._begin()
            while not self._over():
                await self._wait()
                self._check_deadlines()
                self._fill()
                self._take_notices()
            self._put(final_event(self.spec, self.state, self._verdict_inputs(), time.time()))
            await self._committer.drain()
            await self._source.finish()
            await self._release_workers()
        finally:
            for task in [*self._tasks, *([self._working] if self._working else [])]:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._context.slots.leave(self.spec.run_id)
            committing.cancel()
            await asyncio.gather(committing, return_exceptions=True)
            self._ledger.close()

    async def _begin(self) -> None:
        await self._source.replay([to_record(self.state.trial(n)) for n in range(self._n_asked)])
        for row in self.state.unfinished():
            self._attempts[row.number] = self.state.next_attempt(row.number) - 1
            self._again.append(Proposal(row.number, row.params))
        self._values.adopt(self.state)
        n_slots = self._context.slots.n_slots
        started = RunStarted(
            at_s=time.time(),
            session=self.state.session + 1,
            n_slots=n_slots,
            max_parallel=self._max_parallel(),
            controller_pid=self._context.pid,
        )
        self._put(started)
        self._wake.set()

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
        return self._exhausted and not self._again and not self._retries

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
                task.cancel()

    # -- down: assignments ---------------------------------------------------------------------

    def _fill(self) -> None:
        trial_s = self._sizer.median_trial_s
        depth = 2 if trial_s is not None and trial_s < _SHORT_TRIAL_S else 1
        while self._stopping is None and not self._committer.paused:
            address = self._context.slots.take(self.spec.run_id, depth, self._max_parallel())
            if address is None:
                return
            batch, fresh = self._next_batch()
            if not batch:
                self._context.slots.give(self.spec.run_id, address)
                return
            self._launch(batch, fresh, address)

    def _next_batch(self) -> tuple[list[Proposal], bool]:
        if self._retries:
            return [self._retries.popleft()], True
        n_left = self._source.n_trials - self._n_asked + len(self._again)
        size = self._sizer.next_size(n_left, 2 * self._max_parallel())
        batch: list[Proposal] = []
        while len(batch) < size and self._again:
            batch.append(self._again.popleft())
        while len(batch) < size:
            trial = self._ask()
            if trial is None:
                break
            batch.append(trial)
        return batch, self.spec.isolate or not reuse_process(self._sizer.median_trial_s)

    def _ask(self) -> Proposal | None:
        if self._exhausted:
            return None
        answer = self._source.ask()
        if isinstance(answer, Proposal):
            self._n_asked += 1
            self._put(TrialCreated(answer.number, answer.params, time.time()))
            return answer
        if isinstance(answer, NotYet):
            if answer.work is not None and self._working is None:
                self._working = asyncio.create_task(self._work(answer.work))
            return None
        self._exhausted = True
        return None

    async def _work(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for a slow sampler; a failure of it ends the run at the next ask."""
        try:
            await work()
        except JupyterDDLError as error:
            log.warning("%s: %s", self.spec.run_id, error.message)
        finally:
            self._working = None
            self._wake.set()

    def _launch(self, batch: list[Proposal], fresh: bool, address: str) -> None:
        self._n_assignments += 1
        verb = self.spec.verb
        search, mapped = (verb, None) if isinstance(verb, SearchSpec) else (None, verb)
        assignment = Assignment(
            run_id=self.spec.run_id,
            assignment_id=f"{self.spec.run_id}-{self.state.session}-{self._n_assignments}",
            program=self._context.program_digest,
            trials=tuple(self._to_assignment(trial) for trial in batch),
            run_dir=str(self._context.run_dir),
            blob_dirs=self._context.blob_dirs,
            topic=self._context.dispatcher.topic,
            bring=self.spec.bring,
            best_value=self.state.best_value if self.spec.bring else None,
            fresh_process=fresh,
            stop_grace_s=self.spec.limits.stop_grace_s,
            metric=search.metric if search else None,
            mode=search.mode if search else "max",
            over=mapped.over if mapped else None,
            element=mapped.element if mapped else None,
        )
        flight = self._flights.launch(assignment, address)
        self._served.add(address)
        task = asyncio.create_task(self._fly(flight), name=assignment.assignment_id)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _to_assignment(self, trial: Proposal) -> TrialAssignment:
        attempt = self._attempts.get(trial.number, 0) + 1
        self._attempts[trial.number] = attempt
        return TrialAssignment(
            trial=trial.number,
            attempt=attempt,
            params=trial.params,
            seed=derive_seed(self.spec.seed, trial.number),
            item=trial.number if isinstance(self.spec.verb, MapSpec) else None,
        )

    async def _fly(self, flight: Flight) -> None:
        started = time.monotonic()
        n_trials = len(flight.assignment.trials)
        try:
            await self._context.dispatcher.execute(
                flight.assignment, flight.worker, lambda events: self._arrived(flight, events)
            )
        except WorkerLostError as error:
            log.info("%s: %s", self.spec.run_id, error.message)
            self._put(*evictions(flight, time.time()))
        finally:
            self._land(flight)
        done = n_trials - len(flight.open)
        if done:
            self._sizer.observe(done, time.monotonic() - started)
        self._wake.set()

    def _land(self, flight: Flight) -> None:
        """Give the slot back; what was never started goes to the front of the queue."""
        self._context.slots.give(self.spec.run_id, flight.worker)
        self._flights.land(flight)
        params = {trial.trial: trial.params for trial in flight.assignment.trials}
        for trial in reversed(flight.open):
            if trial not in flight.started:
                self._again.appendleft(Proposal(trial, params[trial]))

    # -- up: events ----------------------------------------------------------------------------

    def _put(self, *events: Event) -> None:
        if events:
            self._committer.put(events)

    def _arrived(self, flight: Flight, events: Sequence[RankEvent]) -> None:
        self._put(*self._flights.admit(flight, events))

    def _committed(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, AttemptFinished):
                self._settle(event)
        for stop in self._judge.look(events, self.state):
            flight = self._flights.of_trial(stop)
            if flight is not None:
                self._signal(flight, stop, flight.open[stop], "next_report", reason="pruned")
        if self._stopping is None and self._judge.hopeless(self.state) is not None:
            self.stop("now", by="jupyter_ddl", reason="every trial so far failed the same way")
        self._wake.set()

    def _settle(self, event: AttemptFinished) -> None:
        """After an attempt: the trial is over, or goes to the queue again."""
        self._values.settle(event, self.state)
        row = self.state.trial(event.trial)
        if row.state == "waiting":
            self._retries.append(Proposal(event.trial, row.params))
            self._judge.restarted(event.trial)
        else:
            self._source.tell(to_record(row))
            self._attempts.pop(event.trial, None)

    def _signal(
        self, flight: Flight, trial: int, attempt: int, when: StopWhen, reason: str = "cancelled"
    ) -> None:
        stop = StopTrial(
            run_id=self.spec.run_id,
            trial=trial,
            attempt=attempt,
            reason="pruned" if reason == "pruned" else "cancelled",
            when=when,
        )
        task = asyncio.create_task(self._context.dispatcher.control(flight.worker, stop))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- the end -------------------------------------------------------------------------------

    def _verdict_inputs(self) -> tuple[bool, str, bool]:
        return self.stopping, self._reason, self._judge.hopeless(self.state) is not None

    async def _release_workers(self) -> None:
        """End this run's idle rank processes on the workers that served it."""
        stop = StopRun(run_id=self.spec.run_id)
        known = set(self._context.slots.addresses())
        await asyncio.gather(
            *(self._context.dispatcher.control(a, stop) for a in self._served & known)
        )
