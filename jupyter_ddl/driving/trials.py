"""Drives the trials of one run: a search, a map, or a rank group and its rounds.  Pure.

The order is always the same: events arrive from a worker, are fenced by attempt, committed to the
ledger, folded, and only then decided upon.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from jupyter_ddl.driving.assignments import RunContext
from jupyter_ddl.driving.ending import RunStop, final_event
from jupyter_ddl.driving.flights import Flight
from jupyter_ddl.driving.machine import (
    Answered,
    Arrived,
    Ask,
    AskHeld,
    AskSampler,
    AskStop,
    Begun,
    CommitPaused,
    Committed,
    Ended,
    FinishSampler,
    Happening,
    IllegalTransitionError,
    Instruction,
    KeepBlobs,
    LookForBlobs,
    Machine,
    NotAnswered,
    Now,
    Over,
    Record,
    ReleaseWorkers,
    RemoveFile,
    Replay,
    StopWanted,
    Think,
    Told,
    TrialStopWanted,
    WaitUntil,
    WakeOthers,
    Woken,
    Work,
    WriteStacks,
    earliest,
)
from jupyter_ddl.driving.places import Places
from jupyter_ddl.driving.pruning import BestValues, PruningPolicy, SamplerStop
from jupyter_ddl.driving.queue import Backoff, LongWait, MisplacedTrialError, TrialQueue
from jupyter_ddl.driving.sources import TrialSource, to_record
from jupyter_ddl.driving.spending import Spending
from jupyter_ddl.driving.trial_flights import TrialFlights
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.ledger.reducer import fold
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import encoded_snapshot, with_totals
from jupyter_ddl.protocol.assignment import StopWhen, TrialAssignment
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    Event,
    Notice,
    RunFinished,
    RunStarted,
    StopRequested,
    TrialCreated,
)
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.studies.study import Proposal

__all__ = ["TrialMachine"]

log = logging.getLogger(__name__)

_Phase: TypeAlias = Literal[
    "new", "opening", "replaying", "driving", "failing", "finishing", "ending", "over"
]


class TrialMachine(Machine[Happening, Instruction]):
    """One run in one session, from its first record to its last."""

    def __init__(
        self,
        spec: RunSpec,
        source: TrialSource,
        policy: PruningPolicy,
        state: RunState,
        context: RunContext,
    ) -> None:
        super().__init__(spec.run_id)
        self.spec = spec
        self.state = state
        self.phase: _Phase = "new"
        self._source = source
        self._policy = policy
        self._context = context
        self._slots = context.slots
        self._session = state.session + 1
        self._queue = TrialQueue(spec, source, state.n_created)
        self._flights = TrialFlights(spec, context, self._session, self._do, self._ask)
        self._stop = RunStop(spec.limits)
        self._spending = Spending(spec, context.read_meter)
        self._backoff = Backoff()
        self._places = Places(spec, context.slots, context.n_wanted)
        metric = spec.verb.study.metric if spec.verb.study else ""
        self._sampler_stop = SamplerStop(metric) if source.has_own_sampler else None
        self._best_values = BestValues(spec)
        self._uncommitted: deque[Event] = deque()
        self._questions: dict[int, tuple[Work, Flight | None]] = {}
        self._n_questions = 0
        self.failure = ""
        """Why the run fails whatever its trials did (no place came, its sampler failed)."""
        self._stops_before: list[StopWanted] = []
        self._wait_s: float | None = None
        self._wait_is_set = False
        self._long_wait = LongWait()

    # -- what the controller sees ----------------------------------------------------------------

    @property
    def has_begun(self) -> bool:
        """Whether this session's first record is committed."""
        return self.phase not in ("new", "opening")

    @property
    def is_ending(self) -> bool:
        """Whether the run's last record is written or about to be: nothing changes any more."""
        return self.phase in ("ending", "over")

    @property
    def max_parallel(self) -> int:
        """Trials that may run at once now."""
        return self.spec.verb.max_parallel or max(1, self._slots.n_slots // self.spec.n_ranks)

    @property
    def demand_slots(self) -> int:
        """Slots that trials could use at once, were there enough."""
        if self._stop.when is not None or self.is_ending:
            return 0
        unfinished = self._source.n_trials - self.state.counts.finished
        return min(unfinished, self.spec.verb.max_parallel or unfinished) * self.spec.n_ranks

    def is_running(self, trial: int) -> bool:
        """Whether a trial is at a worker."""
        return self._flights.has(trial)

    def paused(self, now: Now) -> str:
        """Why the run waits for something outside it; empty when it doesn't."""
        text = self._places.pauses.text(now.mono_s)
        if text or len(self._flights):
            return text or self._flights.doubt
        return self._places.waiting(may_have_more=self._queue.may_have_more)

    def mark(self, now: Now) -> tuple[object, ...]:
        """What a snapshot would differ by."""
        return self.state.seq, self.paused(now), self._flights.liveness(), self._spending.mark

    def snapshot(self, now: Now) -> EncodedSnapshot:
        liveness = self._flights.liveness()
        spending = self._spending.rows(self.state, now)
        return encoded_snapshot(
            self.state, now.wall_s, self.paused(now), liveness, spending=spending
        )

    # -- events ----------------------------------------------------------------------------------

    def _on(self, event: Happening, now: Now) -> None:
        try:
            self._take(event, now)
        except MisplacedTrialError as error:
            self._illegal(str(error))

    def _take(self, event: Happening, now: Now) -> None:
        if self.phase == "over":
            if isinstance(event, Answered | NotAnswered) and event.question in self._questions:
                del self._questions[event.question]  # it went on longer than the run
            elif isinstance(event, Begun | Committed | Ended | Answered | NotAnswered):
                self._illegal(f"{type(event).__name__} after the end")
            return
        match event:
            case Arrived():
                flight, counting = self._flights.arrived(event, now)
                self._admit(counting)
                if flight is None or flight.round is None:
                    return  # what it changes is decided upon when it is committed
            case Committed(events=events):
                self._committed(events, now)
            case Ended():
                self._ended(event, now)
            case Woken():
                self._wait_is_set = False
            case CommitPaused(text=text):
                self._places.pauses.uncommitted = text
            case Answered() | NotAnswered():
                self._answered(event, now)
            case Told() if self.has_begun and not self.is_ending:
                self._record([Notice(at_s=now.wall_s, text=event.text)])
            case Begun():
                self._begin(now)
            case StopWanted() if self.phase == "new":
                self._stops_before.append(event)
            case StopWanted(how=how, by=by, reason=reason):
                finishes = how in ("epoch", "keep_best")
                reason = reason or (f"finished early by {by}" if finishes else f"stopped by {by}")
                when: StopWhen = "now" if how == "now" else "next_report"
                self._stop_run(when, by, reason, now, finishes=finishes, counts=how == "epoch")
            case TrialStopWanted(trial=trial, when=when, by=by):
                if self._flights.stop_trial(trial, when, "cancelled"):
                    stop = StopRequested(at_s=now.wall_s, when=when, trial=trial, by=by)
                    self._record([stop])
        self._settle(now)

    def _begin(self, now: Now) -> None:
        if self.phase != "new":
            self._illegal("begun twice")
        self.phase = "opening"
        self._slots.join(self.spec.run_id)
        self._stop.begin(self.state, now)
        self._spending.begin(self.state, now)
        if self.state.stop is not None and self.state.end is None:
            before = self.state.stop
            self._stops_before.insert(0, StopWanted(before.when, before.by))
        started = RunStarted(
            at_s=now.wall_s,
            session=self._session,
            n_slots=self._slots.n_slots,
            max_parallel=self.max_parallel,
            controller_pid=self._context.pid,
        )
        self._record([started])

    def _opened(self, now: Now) -> None:
        """The first record is folded: it opens the trials that only ended with the run."""
        self.phase = "replaying"
        state = self.state
        records = tuple(to_record(state.trial(number)) for number in range(state.n_created))
        if self._session > 1:
            self._look()
        if records or self._session > 1:
            self._ask(Replay(records, reads_ledger=self._session > 1))
        else:
            self._go_on(now)

    def _go_on(self, now: Now) -> None:
        self.phase = "driving"
        self._queue.adopt(self.state)
        self._best_values.adopt(self.state)
        if self._session == 1 and self.spec.program.buffers:
            self._ask(KeepBlobs())
        stops, self._stops_before = self._stops_before, []
        for stop in stops:
            self._take(stop, now)

    def _admit(self, counting: Sequence[Event]) -> None:
        """Record events that count."""
        for event in counting:
            if isinstance(event, AttemptFinished):
                self._queue.recording(event.trial)
        self._record(counting)

    def _ended(self, event: Ended, now: Now) -> None:
        flight, counting = self._flights.ended(event.assignment_id, event.lost, now)
        if flight is None:
            self._illegal("an assignment ended that is not under way", event.assignment_id)
        if event.lacks_blob:
            self._look()
        self._admit(counting)
        if not flight.under_way:
            self._land(flight, now)

    def _land(self, flight: Flight, now: Now) -> None:
        """Give the places back; what was never started goes to the front of the queue."""
        done = len(flight.trials) - len(flight.open)
        self._admit(self._flights.land(flight, now))
        unstarted = flight.open.keys() - flight.started.keys()
        self._queue.put_back([trial for trial in flight.trials if trial.trial in unstarted])
        if done:
            self._queue.observe(done, now.mono_s - flight.sent_s)
        self._places.used(now.mono_s, has_begun=flight.has_begun)
        self._places.give(flight.places)
        self._do(WakeOthers())

    # -- what was committed ----------------------------------------------------------------------

    def _record(self, events: Sequence[Event]) -> None:
        if events:
            self._uncommitted.extend(events)
            self._do(Record(tuple(events)))

    def _committed(self, events: Sequence[Event], now: Now) -> None:
        for event in events:
            if not self._uncommitted or self._uncommitted.popleft() is not event:
                self._illegal(f"{type(event).__name__} was committed, and is not the next one")
            fold(self.state, event)
        if self.phase == "opening":
            self._opened(now)
        self._remove_outputs()
        for event in events:
            if isinstance(event, AttemptFinished):
                self._settle_trial(event, now)
            elif isinstance(event, RunFinished):
                self._finished()
                return
        if self.phase == "replaying":
            return  # the policy does not know the sessions before yet
        for trial in self._policy.to_prune(events, self.state):
            self._flights.stop_trial(trial, "next_report", "pruned")
        if self._sampler_stop is not None:
            for record in self._sampler_stop.questions(events, self.state):
                self._ask(AskStop(record))
        if self._stop.when is None and self._policy.hopeless(self.state):
            reason = "every trial so far failed the same way"
            self._stop_run("now", "jupyter_ddl", reason, now)

    def _remove_outputs(self) -> None:
        unkept, self.state.unkept = self.state.unkept, []
        for file in unkept:  # no name is used twice
            self._do(RemoveFile(f"outputs/{file}"))

    def _settle_trial(self, event: AttemptFinished, now: Now) -> None:
        """After an attempt: the trial is over, or goes to the queue again."""
        for name in self._best_values.to_remove(event, self.state):
            self._do(RemoveFile(f"values/{name}"))
        if event.failure is not None and event.failure.kind == "disk":
            self._places.pauses.disk_is_full(event.failure.message, now.mono_s)
        if event.failure is not None and event.failure.kind == "blob":
            self._look()
        trial = self.state.trial(event.trial)
        is_in = trial.state
        if is_in == "running" or trial.attempt != event.attempt:
            self._illegal(f"the end of attempt {event.attempt} did not count", str(event.trial))
        if is_in == "waiting":
            delay_s = self._backoff.delay_s(trial, event)
            due_s = now.mono_s + delay_s if delay_s else None
            self._queue.retry(Proposal(event.trial, trial.params), due_s)
        else:
            self._backoff.forget(event.trial)
            self._source.tell(trial)
            self._queue.ended(event.trial)

    # -- deciding --------------------------------------------------------------------------------

    def _settle(self, now: Now) -> None:
        """Decide all that can be decided, and when to look again."""
        if self.is_ending:
            return  # nothing is left to decide: the last record is on its way
        self._record(self._flights.poll(now))
        self._places.pauses.check(now.mono_s)
        if self._places.pauses.may_look(now.mono_s):
            self._look()
        self._queue.release(now.mono_s)
        if self._stop.is_timed_out(now):
            text = f"stopped by its timeout of {self.spec.limits.timeout_s:.0f} s"
            self._stop_run("now", "timeout", text, now)
        self._see_spending(now)
        if self._stop.is_given_up(now):
            self._flights.give_up()
        if self.phase == "driving":
            try:
                self._drive(now)
            except IllegalTransitionError:
                raise
            except JupyterDDLError as error:
                self._fail(error, now)
        if self.phase == "failing" and self._is_quiet:
            failed = RunFinished(at_s=now.wall_s, state="failed", reason=self.failure)
            self._end(with_totals(self.state, failed))
        if not self.is_ending:
            self._wait(now)

    def _see_spending(self, now: Now) -> None:
        if not self.has_begun or self._stop.when is not None:
            return  # what is spent after a stop stands in the last record
        spent, reason = self._spending.look(now)
        self._record(spent)
        if reason:
            self._stop_run("next_report", "budget", reason, now)

    def _drive(self, now: Now) -> None:
        if self._stop.when is None:
            self._check_groups(now)
        self._queue.waits_for_results = False  # before it was asked once more
        was_in_line = self._places.in_line
        try:
            if self._stop.when is None and self._places.may_send(now.mono_s):
                self._fill(now)
            else:
                self._places.hold()
        finally:
            # Those that this run kept from a place that is free may have it now.
            if was_in_line and not self._places.in_line and self._places.others_in_line:
                self._do(WakeOthers())
        waits_for = self._queue.waits_for if self._queue.waits_for_results else ""
        long = self._long_wait.look(waits_for, now.mono_s)
        notices = [*self._source.take_notices(), *([long] if long else [])]
        self._record([Notice(at_s=now.wall_s, text=text) for text in notices])
        if not self._is_quiet:
            return
        if self._stop.when is not None or self._queue.is_empty:
            self._finish(now)
        elif self._queue.waits_for_results and not self._questions and self._queue.due_s is None:
            self._illegal("the study waits for results, and nothing is under way")

    @property
    def _is_quiet(self) -> bool:
        """Whether nothing is at the workers or on its way to the ledger."""
        return not len(self._flights) and not self._uncommitted

    def _check_groups(self, now: Now) -> None:
        """See how long a group waits, and whether one that lacks ranks can have them.

        Raises
        ------
        PlacementError
            A group has waited for its slots for too long.
        """
        may_begin = self._queue.may_have_more and not len(self._flights)
        self._places.check(now.mono_s, may_begin=may_begin)
        for flight in self._flights:
            n_ranks = len(flight.workers)
            if flight.round is not None and self._places.may_grow(n_ranks, now.mono_s):
                flight.round.ask_to_leave()
        if self._places.may_send(now.mono_s):
            self._record(self._flights.fill(self._places.take_joining, now))

    def _fill(self, now: Now) -> None:
        """Send assignments as long as there are a place and a trial for one.

        Raises
        ------
        JupyterDDLError
            The sampler failed.
        """
        n_parallel = self.max_parallel
        if not self._queue.may_have_more:
            # Asked without a place in hand: all it can do is to find out that there are no more.
            self._places.hold()
            self._queue.find_out()
            self._take_work(now)
            return
        while places := self._places.take(
            len(self._flights), n_parallel, self._queue.depth, now.mono_s
        ):
            batch: list[TrialAssignment] = []
            try:
                batch, fresh = self._queue.next_batch(n_parallel)
            finally:
                if not batch:
                    self._places.give_unused(places)
            self._take_work(now)
            if not batch:
                return
            notices = self._flights.launch(
                batch, fresh=fresh, places=places, state=self.state, now=now
            )
            self._record(notices)

    def _take_work(self, now: Now) -> None:
        """Record what the source has proposed, and have done what it wants done."""
        created, self._queue.created = self._queue.created, []
        self._record([TrialCreated(new.number, new.params, now.wall_s) for new in created])
        work, self._queue.work = self._queue.work, None
        if work is not None:
            self._ask(work)

    def _wait(self, now: Now) -> None:
        due_s = earliest(self._stop.deadline_s(now), self._queue.due_s, self._flights.due_s)
        if self._stop.when is None:
            # Until the first record is committed nothing is written down of what is spent.
            spending_due_s = self._spending.due_s(now) if self.has_begun else None
            due_s = earliest(
                due_s, self._places.due_s(now.mono_s), spending_due_s, self._long_wait.due_s
            )
        if not self._wait_is_set or due_s != self._wait_s:
            self._wait_is_set, self._wait_s = True, due_s
            self._do(WaitUntil(due_s))

    # -- questions -------------------------------------------------------------------------------

    def _ask(self, work: Work, about: Flight | None = None) -> None:
        self._n_questions += 1
        self._questions[self._n_questions] = (work, about)
        self._do(Ask(self._n_questions, work))

    def _answered(self, event: Answered | NotAnswered, now: Now) -> None:
        if event.question not in self._questions:
            self._illegal("an answer to no question", f"{event.question}")
        work, about = self._questions.pop(event.question)
        error = event.error if isinstance(event, NotAnswered) else None
        answer = event.answer if isinstance(event, Answered) else None
        match work:
            case Think() | AskSampler() if error is not None:
                self._source.failed(error)
            case Think() | AskSampler():
                self._source.answered(answer)
            case AskStop(record=record):
                self._stop_answered(record.number, answer is True, error)
            case AskHeld():
                if about is not None:
                    self._flights.held(about, now, is_held=answer is True)
            case WriteStacks():
                if about is not None:
                    self._admit(self._flights.stacks_written(about, now))
            case LookForBlobs():
                self._looked(error.message if error is not None else str(answer or ""), now)
            case KeepBlobs() if answer:
                self._record([Notice(at_s=now.wall_s, text=str(answer))])
            case Replay() | FinishSampler() if error is not None:
                self._fail(error, now)
            case Replay():
                self._go_on(now)
            case FinishSampler():
                self._conclude(now)

    def _look(self) -> None:
        """Send nothing until it is known that all is there which the run is made of."""
        if not self._places.pauses.is_looking:
            self._places.pauses.is_looking = True
            self._ask(LookForBlobs())

    def _looked(self, lost: str, now: Now) -> None:
        told = self._places.pauses.looked(lost, now.mono_s)
        self._record([Notice(at_s=now.wall_s, text=text) for text in told])
        if not lost and self.spec.program.buffers:
            self._ask(KeepBlobs())

    def _stop_answered(self, trial: int, stops: bool, error: JupyterDDLError | None) -> None:
        if self._sampler_stop is None:
            return
        if error is not None:
            log.warning("early check of trial %d: %s", trial, error.message)
        if stops:
            self._flights.stop_trial(trial, "next_report", "pruned")
        is_over = stops or error is not None
        again = self._sampler_stop.answered(trial, self.state, is_over=is_over)
        if again is not None:
            self._ask(AskStop(again))

    # -- the end ---------------------------------------------------------------------------------

    def _stop_run(
        self,
        when: StopWhen,
        by: str,
        reason: str,
        now: Now,
        *,
        finishes: bool = False,
        counts: bool = False,
    ) -> None:
        """End what is on its way, at its next report or at once, and send nothing more."""
        if self.is_ending or not self._stop.request(when, reason, now, finishes=finishes):
            return
        self._record([StopRequested(at_s=now.wall_s, when=when, by=by)])
        self._flights.stop_run(when, counts=counts)

    def _fail(self, error: JupyterDDLError, now: Now) -> None:
        """The sampler failed, or no place came: what runs is ended, what is finished is kept."""
        log.info("%s: %s", self.spec.run_id, error.message)
        self.phase = "failing"
        self._places.hold()
        if self._places.others_in_line:
            self._do(WakeOthers())
        self.failure = error.message
        self._stop_run("now", "jupyter_ddl", error.message, now)

    def _finish(self, now: Now) -> None:
        """All trials are through, or no more are wanted."""
        if not self._source.has_own_sampler:
            self._conclude(now)
        elif not any(isinstance(work, AskSampler) for work, _ in self._questions.values()):
            self.phase = "finishing"
            self._ask(FinishSampler(self._source.last_tells()))

    def _conclude(self, now: Now) -> None:
        hopeless = self._policy.hopeless(self.state) is not None
        stopped = self._stop.when is not None
        if self._stop.finishes and self.state.counts.complete:
            stopped = False
        verdict = (stopped, self._stop.reason, hopeless)
        self._end(final_event(self.spec, self.state, verdict, now.wall_s))

    def _end(self, end: RunFinished) -> None:
        self.phase = "ending"
        self._do(WaitUntil(None))
        usage = self._context.usage(self.spec.run_id)
        spent = self._spending.total()
        self._record([msgspec.structs.replace(end, usage=usage, spent=spent)])

    def _finished(self) -> None:
        """The last record is committed: give back what the run has on the workers."""
        self.phase = "over"
        self._slots.leave(self.spec.run_id)
        self._do(WakeOthers())
        known = set(self._slots.addresses())
        workers = tuple(worker for worker in self._flights.served if worker in known)
        if workers:
            self._do(ReleaseWorkers(workers))
        self._do(Over())
