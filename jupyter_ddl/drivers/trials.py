"""Drives the trials of one run: dispatch in batches, commit, tell, until it is over.

Used by search and map alike.  The order is always the same: events arrive from a worker, are
fenced by attempt, committed to the ledger, folded, and only then decided upon.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from jupyter_ddl.drivers.assigning import RunContext
from jupyter_ddl.drivers.backoff import Backoff
from jupyter_ddl.drivers.driving import RunDriver
from jupyter_ddl.drivers.early import EarlyCheck
from jupyter_ddl.drivers.judge import Judge
from jupyter_ddl.drivers.pausing import Pauses
from jupyter_ddl.drivers.queue import TrialQueue
from jupyter_ddl.drivers.records import to_record
from jupyter_ddl.drivers.sending import Sender
from jupyter_ddl.drivers.source import TrialSource
from jupyter_ddl.drivers.values import ValueFiles
from jupyter_ddl.drivers.verdict import final_event
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.ledger.file import LedgerWriter
from jupyter_ddl.ledger.reader import read_ledger
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import encoded_snapshot, with_totals
from jupyter_ddl.protocol.assignment import StopWhen
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    Event,
    Notice,
    RunFinished,
    StopRequested,
    TrialCreated,
)
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.protocol.verb import StopHow
from jupyter_ddl.search.study import Proposal

__all__ = ["TrialDriver"]

log = logging.getLogger(__name__)


class TrialDriver(RunDriver):
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
        super().__init__(spec, ledger, state, context)
        self._source = source
        self._judge = judge
        self._queue = TrialQueue(spec, source, state.n_created, self._created, self.wake)
        self._sender: Sender = Sender(
            spec, context, self._queue, state, self._committer.put, session=self._session
        )
        self._early = EarlyCheck(source, _metric_of(spec), self._sender.prune)
        self._pauses = Pauses(self._committer, context.slots, context.n_wanted)
        self._backoff = Backoff()
        self._values = ValueFiles(context.run_dir / "values")
        self._judges = False  # not before the judge knows the sessions before

    # -- what the controller sees ------------------------------------------------------------

    @property
    def demand_slots(self) -> int:
        """Slots that trials could use at once, were there enough."""
        if self._stop.when is not None or self.is_ending:
            return 0
        unfinished = self._source.n_trials - self.state.counts.finished
        return min(unfinished, self.spec.verb.max_parallel or unfinished) * self.spec.n_ranks

    @property
    def paused(self) -> str:
        """Why the run waits for something outside it; empty when it doesn't."""
        return self._pauses.text or self._sender.waiting

    @property
    def mark(self) -> tuple[object, ...]:
        """What a snapshot would differ by."""
        return self.state.seq, self.paused, self._sender.liveness()

    def snapshot(self) -> EncodedSnapshot:
        return encoded_snapshot(self.state, time.time(), self.paused, self._sender.liveness())

    def stop(self, how: StopHow, by: str, reason: str = "") -> None:
        """End the run: running trials at their next report, or all of them now."""
        finishes = how in ("epoch", "keep_best")
        when: StopWhen = "now" if how == "now" else "next_report"
        reason = reason or (f"finished early by {by}" if finishes else f"stopped by {by}")
        if self.is_ending or not self._stop.request(when, reason, finishes=finishes):
            return
        self._put(StopRequested(at_s=time.time(), when=when, by=by))
        self._sender.stop_all(when, counts=how == "epoch")
        self._wake.set()

    def stop_trial(self, trial: int, when: StopWhen, by: str) -> bool:
        """End one running trial; False when it isn't running."""
        if not self._sender.stop_trial(trial, when):
            return False
        self._put(StopRequested(at_s=time.time(), when=when, trial=trial, by=by))
        return True

    # -- the run -----------------------------------------------------------------------------

    async def _drive(self) -> RunFinished:
        """Everything up to the run's last record."""
        try:
            await self._begin()
            while not self._over():
                await self._wait()
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
        stopped = self._stop.when is not None
        if self._stop.finishes and self.state.counts.complete:
            stopped = False
        verdict = (stopped, self._stop.reason, hopeless)
        return final_event(self.spec, self.state, verdict, time.time())

    async def _begin(self) -> None:
        state = self.state
        asked_to_stop = state.stop if state.end is None else None
        await self._open(self._sender.max_parallel)
        await self._source.replay([to_record(state.trial(n)) for n in range(state.n_created)])
        if self._session > 1:
            past = read_ledger(self._ledger.path)
            await asyncio.to_thread(self._judge.begin, past, state)
        self._judges = True
        self._queue.adopt(state)
        self._values.adopt(state)
        if asked_to_stop is not None:
            self.stop(asked_to_stop.when, by=asked_to_stop.by)
        self._wake.set()

    async def _end_flights(self) -> None:
        self.stop("now", by="jupyter_ddl")
        while len(self._sender) or not self._committer.is_idle:
            await self._wait()

    def _poll(self) -> None:
        self._pauses.poll()
        if self._stop.when is None:
            self._sender.poll()

    def _leave(self) -> None:
        self._queue.close()
        self._early.close()

    def _over(self) -> bool:
        if len(self._sender) or not self._committer.is_idle:
            return False
        return self._stop.when is not None or self._queue.is_empty

    def _fill(self) -> None:
        if self._stop.when is not None or self._pauses.text:
            self._sender.hold()
        else:
            self._sender.fill()

    # -- what was committed --------------------------------------------------------------------

    def _created(self, trial: Proposal) -> None:
        self._put(TrialCreated(trial.number, trial.params, time.time()))

    def _take_notices(self) -> None:
        now = time.time()
        self._put(*(Notice(at_s=now, text=text) for text in self._source.take_notices()))

    def _committed(self, events: Sequence[Event]) -> None:
        self._wake.set()
        for event in events:
            if isinstance(event, AttemptFinished):
                self._settle(event)
        for trial in self._judge.poll(events, self.state):
            self._sender.prune(trial)
        if self._source.checks_early:
            self._early.poll(events, self.state)
        if self._judges and self._stop.when is None and self._judge.hopeless(self.state):
            self.stop("now", by="jupyter_ddl", reason="every trial so far failed the same way")

    def _settle(self, event: AttemptFinished) -> None:
        """After an attempt: the trial is over, or goes to the queue again."""
        self._values.settle(event, self.state)
        if event.failure is not None and event.failure.kind == "disk":
            self._pauses.disk_is_full(event.failure.message)
        trial = self.state.trial(event.trial)
        if event.attempt != trial.attempt:
            return
        if trial.state == "waiting":
            delay_s = self._backoff.delay_s(trial, event)
            self._queue.retry(Proposal(event.trial, trial.params), delay_s)
        else:
            self._backoff.forget(event.trial)
            self._source.tell(to_record(trial))
            self._queue.ended(event.trial)


def _metric_of(spec: RunSpec) -> str:
    return spec.verb.study.metric if spec.verb.study else ""
