"""Drives the fits of one cell: the kernel feeds batches, units come back as they are done.  Pure.

As everywhere, an outcome counts once it is committed; only then may the kernel fetch it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Literal

import msgspec

from jupyter_ddl.driving.assignments import RunContext
from jupyter_ddl.driving.ending import RunStop
from jupyter_ddl.driving.fit_candidates import Candidates, FitBatch, Outputs, Take
from jupyter_ddl.driving.fit_events import (
    DropAll,
    FitAsked,
    FitEvent,
    ImportModules,
    LookAtClient,
    ReadPast,
)
from jupyter_ddl.driving.fit_flights import FitFlights, PieceBegun, PieceDone
from jupyter_ddl.driving.machine import (
    Answered,
    Arrived,
    Ask,
    AskHeld,
    Begun,
    CommitPaused,
    Committed,
    Ended,
    Instruction,
    Machine,
    NotAnswered,
    Now,
    Over,
    Record,
    Refuse,
    ReleaseWorkers,
    Reply,
    Signal,
    StopWanted,
    Told,
    TrialStopWanted,
    WaitUntil,
    WakeOthers,
    Woken,
    Work,
    earliest,
)
from jupyter_ddl.driving.places import kept_text
from jupyter_ddl.driving.spending import Spending
from jupyter_ddl.errors import SpecError
from jupyter_ddl.ledger.reducer import fold
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import encoded_snapshot, with_totals
from jupyter_ddl.protocol.assignment import StopRun, StopWhen
from jupyter_ddl.protocol.events import (
    Event,
    FoldFinished,
    Notice,
    RunFinished,
    RunStarted,
    StopRequested,
)
from jupyter_ddl.protocol.fit import DropOutputs, FeedFit, FinishFit, TakeFit, TellFit
from jupyter_ddl.protocol.fit_results import FitResults, NodeResult, TakenUnit
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.verbs.fit import Fit

__all__ = ["FitMachine"]

_SHORT_UNIT_S = 0.02
_GATHER_S = 0.03
"""Outcomes of short units come close behind each other, and are fetched together."""
_IMPORT_TIMEOUT_S = 60.0
_STOP_BATCH_S = 20.0
_LOOK_AFTER_S = 5.0


_Phase = Literal["new", "opening", "driving", "ending", "leaving", "over"]


class FitMachine(Machine[FitEvent, Instruction]):
    """One run of fits in one session, from its first batch to its last record.

    Parameters
    ----------
    state : RunState
        As the sessions before have left it.
    bound_bytes : int
        Outputs of prefixes that a host keeps in memory.
    """

    def __init__(
        self,
        spec: RunSpec,
        verb: Fit,
        state: RunState,
        context: RunContext,
        bound_bytes: int,
    ) -> None:
        super().__init__(f"fit {spec.run_id}")
        self.spec = spec
        self.state = state
        self._verb = verb
        self._context = context
        self._session = state.session + 1
        self._phase: _Phase = "new"
        self._stop = RunStop(spec.limits)
        self._spending = Spending(spec, context.read_meter)
        self._asked_to_stop: StopRequested | None = None
        """A stop that the session before has not lived to see through."""
        self._finish: FinishFit | None = None
        self._finish_requests: list[int] = []
        """Answered once the end is on record: until then, it may have to be asked for again."""
        self._give_up_at_s: float | None = None
        self._outputs = Outputs(spec.run_id, bound_bytes)
        self._flights = FitFlights(spec, context, self._outputs, self._session, self._do, self._ask)
        self._candidates = Candidates(state, verb.metric)
        self._batches: dict[int, FitBatch] = {}
        self._closed: set[int] = set()
        """Batches that the kernel waits for no longer."""
        self._before: dict[bytes, FoldFinished] = {}
        self._n_recorded = 0
        self._n_committed = 0
        self._deliveries: deque[tuple[int, FitBatch, TakenUnit]] = deque()
        """Outcomes in the order of the record, and how much is to be on record before each."""
        self._closings: deque[tuple[int, int]] = deque()
        """Requests to close a batch, likewise: who is answered asks for nothing of it again."""
        self._stopping: dict[int, tuple[FitBatch, tuple[str, ...], float]] = {}
        """Batches that were given up while they ran: where, and how long their end is awaited."""
        self._early: list[FitEvent] = []
        """What was asked before this session's first record is committed."""
        self._refused: list[int] = []
        """Requests that come too late; they are told so once the stop is on record."""
        self._takes: list[Take] = []
        self._commit_pause = ""
        self._questions: dict[int, Work] = {}
        self._importing: dict[int, FitBatch] = {}
        self._n_questions = 0
        self._heard_s = self._looked_s = 0.0
        self._is_client_gone = False
        self._wakes_at_s: float | None = None

    # -- what the controller sees ----------------------------------------------------------------

    @property
    def is_ending(self) -> bool:
        """Whether the run's last record is written or about to be: nothing changes any more."""
        return self._phase in ("ending", "leaving", "over")

    @property
    def is_over(self) -> bool:
        return self._phase == "over"

    @property
    def demand_slots(self) -> int:
        """Slots that could be used at once, were there enough."""
        if self._stop.when is not None or self.is_ending:
            return 0
        return sum(b.graph.n_ready for b in self._active()) + len(self._flights)

    def paused(self, now: Now) -> str:
        """Why the run waits for something outside it; empty when it doesn't."""
        if self._commit_pause:
            return self._commit_pause
        if self._context.slots.n_slots == 0 and self._context.n_wanted():
            return "no worker is connected"
        return self._flights.doubt if len(self._flights) else kept_text(self._context.slots)

    def mark(self, now: Now) -> tuple[object, ...]:
        """What a snapshot would differ by."""
        return self.state.seq, self.paused(now), self._spending.mark

    def snapshot(self, now: Now) -> EncodedSnapshot:
        spending = self._spending.rows(self.state, now)
        return encoded_snapshot(self.state, now.wall_s, self.paused(now), spending=spending)

    @property
    def has_begun(self) -> bool:
        """Whether this session's first record is committed."""
        return not self._is_early

    def is_running(self, trial: int) -> bool:
        """Whether there is anything of a candidate to be stopped alone.

        Raises
        ------
        SpecError
            It is needed by who has begun it.
        """
        batch = self._batch_of(trial)
        if (batch is not None and batch.is_whole) or self._candidates.is_told(trial):
            raise SpecError(
                f"row {trial} of run {self.spec.run_id} is not a candidate: whoever began it "
                f"needs all its parts; stop the run instead"
            )
        if batch is None or self.is_ending or self._stop.when is not None:
            return False
        return batch.graph.has_open(batch.trials.index(trial))

    @property
    def _is_early(self) -> bool:
        return self._phase in ("new", "opening")

    # -- events ----------------------------------------------------------------------------------

    def _on(self, event: FitEvent, now: Now) -> None:
        match event:
            case Begun():
                self._begin(now)
            case Committed(events=events):
                self._committed(events, now)
            case CommitPaused(text=text):
                self._commit_pause = text
            case Arrived(assignment_id=name, events=events):
                for fact in self._flights.arrived(name, events, now):
                    self._take_in(fact, now)
            case Ended(assignment_id=name, lost=lost):
                if name not in self._flights:
                    self._illegal(f"assignment {name} ends, and is not on its way", name)
                for fact in self._flights.ended(name, lost, now):
                    self._take_in(fact, now)
            case Answered(question=question, answer=answer):
                self._answered(question, answer, now)
            case NotAnswered(question=question):
                self._answered(question, None, now)
            case FitAsked(body=FeedFit() | TellFit()) | StopWanted() if self._is_early:
                self._early.append(event)
            case FitAsked():
                self._asked(event, now)
            case Told() if not self._is_early and not self.is_ending:
                self._record(Notice(now.wall_s, event.text))
            case StopWanted(how=how, by=by, reason=reason):
                self._stop_run("now" if how == "now" else "next_report", by, reason, now)
            case TrialStopWanted(trial=trial, by=by):
                self._stop_candidate(trial, by, now)
            case Woken():
                self._wakes_at_s = None  # what has become due is seen below
        self._settle(now)

    def _settle(self, now: Now) -> None:
        """Do everything that can be done now; the next deadline is the last instruction."""
        if self._phase == "driving":
            self._see_limits(now)
            self._see_stopped_batches(now)
            self._flights.poll(now)
            if self._is_finishing:
                self._context.slots.withdraw(self.spec.run_id)
            elif self._stopping or kept_text(self._context.slots):
                # Workers that were told to stop begin nothing of this run until they are told.
                self._context.slots.withdraw(self.spec.run_id)
            else:
                importing = {batch.number for batch in self._importing.values()}
                self._flights.fill([b for b in self._active() if b.number not in importing], now)
            self._drop_outputs(self._outputs.take_unwanted(now.mono_s))
            if self._is_through:
                self._end(now)
        while self._deliveries and self._deliveries[0][0] <= self._n_committed:
            _, batch, unit = self._deliveries.popleft()
            batch.deliver(unit)
        self._answer_closings()
        if self._is_on_record:
            self._refuse_late()
        self._answer_takes(now)
        at_s = self._deadline_s(now)
        if at_s != self._wakes_at_s and not self.is_over:
            self._wakes_at_s = at_s
            self._do(WaitUntil(at_s))

    def _deadline_s(self, now: Now) -> float | None:
        takes = [min(take.until_s, take.gathered_s or take.until_s) for take in self._takes]
        if self._phase != "driving":
            return earliest(*takes)
        looking = any(isinstance(work, LookAtClient) for work in self._questions.values())
        return earliest(
            *takes,
            self._stop.deadline_s(now),
            None if self._stop.when is not None else self._spending.due_s(now),
            self._give_up_at_s,
            self._outputs.drop_at_s,
            self._flights.due_s,
            None if looking or self._is_client_gone else self._look_at_s,
            *(at_s for _, _, at_s in self._stopping.values()),
            *(batch.import_until_s for batch in self._importing.values()),
        )

    def _record(self, *events: Event) -> None:
        if events:
            self._n_recorded += len(events)
            self._do(Record(events))

    def _deliver(self, batch: FitBatch, unit: TakenUnit) -> None:
        """Have the kernel fetch an outcome, once all that was recorded up to now is committed."""
        self._deliveries.append((self._n_recorded, batch, unit))

    def _ask(self, work: Work) -> int:
        self._n_questions += 1
        self._questions[self._n_questions] = work
        self._do(Ask(self._n_questions, work))
        return self._n_questions

    # -- begin and end ---------------------------------------------------------------------------

    def _begin(self, now: Now) -> None:
        if self._phase != "new":
            self._illegal("it begins a second time")
        self._phase = "opening"
        if self.state.stop is not None and self.state.end is None:
            self._asked_to_stop = self.state.stop
        self._heard_s = now.mono_s
        self._context.slots.join(self.spec.run_id)
        if self._session > 1:
            self._ask(ReadPast())
        else:
            self._open(now)

    def _open(self, now: Now) -> None:
        self._stop.begin(self.state, now)
        self._spending.begin(self.state, now)
        n_slots = self._context.slots.n_slots
        # Folded before anything is told: it opens the trials that only ended with the run.
        self._record(RunStarted(now.wall_s, self._session, n_slots, n_slots, self._context.pid))

    def _answered(self, question: int, answer: object, now: Now) -> None:
        work = self._questions.pop(question, None)
        match work:
            case None:
                self._illegal(f"question {question} was not asked, or is answered twice")
            case ReadPast():
                for event in answer if isinstance(answer, list) else ():
                    if isinstance(event, FoldFinished):
                        self._before[event.key] = event
                    else:
                        self._candidates.remember(event)
                self._open(now)
            case ImportModules():
                self._importing.pop(question, None)
            case DropAll():
                self._go(now)
            case AskHeld(assignment_id=name):
                self._flights.held(name, now, is_held=answer is True)
            case LookAtClient():
                self._looked_s = now.mono_s
                self._is_client_gone = answer is False

    def _see_limits(self, now: Now) -> None:
        for question, batch in tuple(self._importing.items()):
            if batch.import_until_s is not None and now.mono_s >= batch.import_until_s:
                del self._importing[question]  # its ranks import what they need themselves
        if self._stop.is_timed_out(now):
            text = f"stopped by its timeout of {self.spec.limits.timeout_s:.0f} s"
            self._stop_run("now", "timeout", text, now)
        if self._stop.when is None:
            spent, reason = self._spending.look(now)
            self._record(*spent)
            if reason:
                self._stop_run("next_report", "budget", reason, now)
        give_up_at_s = self._give_up_at_s
        if self._stop.is_given_up(now) or (give_up_at_s and now.mono_s >= give_up_at_s):
            self._give_up_at_s = None
            self._flights.abandon()  # what it had is cancelled with the run
        looking = any(isinstance(work, LookAtClient) for work in self._questions.values())
        if not looking and not self._is_client_gone and now.mono_s >= self._look_at_s:
            self._ask(LookAtClient(self._verb.client, now.mono_s - self._heard_s))

    @property
    def _look_at_s(self) -> float:
        return max(self._heard_s, self._looked_s) + _LOOK_AFTER_S

    @property
    def _is_finishing(self) -> bool:
        """Whether nothing more is to be begun."""
        return self._finish is not None or self._stop.when is not None

    @property
    def _is_quiet(self) -> bool:
        return not len(self._flights) and self._is_on_record

    @property
    def _is_on_record(self) -> bool:
        return self._n_committed == self._n_recorded

    @property
    def _is_through(self) -> bool:
        if not self._is_quiet:
            return False
        return self._is_finishing or (self._is_client_gone and not self._active())

    def _end(self, now: Now) -> None:
        self._phase = "ending"
        if self._finish is not None and self._stop.when is None:
            end = RunFinished(now.wall_s, self._finish.state, self._finish.reason)
        elif self._stop.when is not None:
            end = RunFinished(now.wall_s, "cancelled", self._stop.reason)
        else:
            reason = "the notebook's kernel ended before the cell did"
            end = RunFinished(now.wall_s, "cancelled", reason)
        usage, spent = self._context.usage(self.spec.run_id), self._spending.total()
        end = msgspec.structs.replace(end, usage=usage, spent=spent)
        self._record(with_totals(self.state, end))

    def _leave(self, now: Now) -> None:
        """The end is on record: give back what the run has on the workers."""
        for request in self._finish_requests:
            self._do(Reply(request))
        self._finish_requests.clear()
        workers = tuple(self._hosts().values())
        if workers and (self._outputs.may_have_any or self._session > 1):
            self._phase = "leaving"
            self._ask(DropAll(workers, self._drop_of(())))
        else:
            self._go(now)

    def _go(self, now: Now) -> None:
        self._phase = "over"
        known = set(self._context.slots.addresses())
        self._do(ReleaseWorkers(tuple(sorted(self._flights.served & known))))
        self._context.slots.leave(self.spec.run_id)
        self._do(WakeOthers())
        self._answer_closings()
        self._refuse_late()
        self._answer_takes(now)
        for request in self._finish_requests:
            self._do(Reply(request))
        self._do(Over())

    # -- what the kernel asks --------------------------------------------------------------------

    def _asked(self, asked: FitAsked, now: Now) -> None:
        self._heard_s = now.mono_s
        match asked.body:
            case FeedFit() | TellFit() if self.is_ending or self._is_finishing:
                self._refused.append(asked.request)
            case FeedFit():
                self._feed(asked.request, asked.body, now)
            case TellFit():
                self._record(*self._candidates.told(asked.body, now.wall_s))
                self._do(Reply(asked.request))
            case TakeFit(batch=number, n_taken=n_taken, timeout_s=timeout_s):
                batch = self._batches.get(number)
                if batch is None:
                    text = f"batch {number} was not fed to run {self.spec.run_id}"
                    self._do(Refuse(asked.request, SpecError(text)))
                elif units := batch.take(n_taken):
                    self._do(Reply(asked.request, FitResults(units)))
                else:
                    until_s = now.mono_s + timeout_s
                    self._takes.append(Take(asked.request, batch, n_taken, until_s))
            case FinishFit(batch=None):
                self._finish_asked(asked.request, asked.body, now)
            case FinishFit(batch=int() as number):
                self._give_up(number, now)
                self._closings.append((self._n_recorded, asked.request))

    def _answer_closings(self) -> None:
        while self._closings and self._closings[0][0] <= self._n_committed:
            _, request = self._closings.popleft()
            self._do(Reply(request))

    def _refuse_late(self) -> None:
        refused, self._refused = self._refused, []
        for request in refused:
            text = f"run {self.spec.run_id} is over and takes no more fits"
            self._do(Refuse(request, SpecError(text)))

    def _feed(self, request: int, body: FeedFit, now: Now) -> None:
        """Take in a part of a batch."""
        batch = self._batches.get(body.batch)
        n_parts = 0 if batch is None else batch.n_parts
        if body.batch in self._closed or body.part < n_parts:
            self._do(Reply(request))  # it was told before
            return
        if body.part > n_parts or (batch is not None and batch.graph.is_fed):
            text = f"part {body.part} of batch {body.batch} was not expected"
            self._do(Refuse(request, SpecError(text)))
            return
        if batch is None:
            batch = self._batches[body.batch] = FitBatch(body.batch, body.table, body.cell_id)
            workers = tuple(self._context.slots.addresses())
            if body.imports and workers:
                batch.import_until_s = now.mono_s + _IMPORT_TIMEOUT_S
                self._importing[self._ask(ImportModules(workers, body.imports))] = batch
        batch.n_parts += 1
        numbers, events = self._candidates.add(
            body.candidates, body.first_candidate, body.cell_id, at_s=now.wall_s
        )
        self._record(*events, *(Notice(now.wall_s, text) for text in body.notes))
        batch.trials += numbers
        batch.is_whole |= any(candidate.is_whole for candidate in body.candidates)
        self._add_units(batch, body, now)
        if body.is_last:
            batch.graph.begin()
        self._do(Reply(request))

    def _add_units(self, batch: FitBatch, body: FeedFit, now: Now) -> None:
        first = batch.graph.n_units
        known: dict[int, FoldFinished] = {}
        left_out: set[int] = set()
        for index, unit in enumerate(body.units, first):
            if (outcome := self._before.get(unit.key)) is not None:
                known[index] = outcome
            elif unit.candidate in batch.stopped or self._candidates.is_left_out(
                batch.trials[unit.candidate]
            ):
                left_out.add(index)
        batch.graph.add(body.nodes, body.units, frozenset((*known, *left_out)))
        for index, outcome in known.items():
            trial = batch.trials[body.units[index - first].candidate]
            mine = msgspec.structs.replace(outcome, trial=trial)
            self._record(*self._candidates.finished(mine, now.wall_s))
            self._deliver(batch, _taken(index, outcome))
        for index in left_out:
            self._deliver(batch, TakenUnit(index, is_stopped=True))

    def _finish_asked(self, request: int, body: FinishFit, now: Now) -> None:
        """The cell is over."""
        self._finish_requests.append(request)
        if self._finish is None and not self.is_ending:
            self._finish = body
            self._give_up_at_s = now.mono_s + self.spec.limits.stop_grace_s + _STOP_BATCH_S
            self._flights.stop_all("now")

    def _give_up(self, number: int, now: Now) -> None:
        """The kernel needs nothing more of a batch, which may not be over."""
        batch = self._batches.pop(number, None)
        self._closed.add(number)
        if batch is None or batch.is_over:
            return
        batch.is_given_up = True
        batch.graph.abandon()
        self._outputs.release(batch)
        if not self.is_ending:  # behind a run's end nothing is recorded
            self._record(*self._candidates.given_up(batch.trials, now.wall_s))
        if workers := self._flights.stop_batch(batch):
            until_s = now.mono_s + self.spec.limits.stop_grace_s + _STOP_BATCH_S
            self._stopping[batch.number] = batch, workers, until_s

    def _see_stopped_batches(self, now: Now) -> None:
        """Go on once nothing runs any more of what was given up."""
        for number, (batch, workers, until_s) in tuple(self._stopping.items()):
            is_late = now.mono_s >= until_s
            if self._flights.has(batch) and not is_late:
                continue
            del self._stopping[number]
            if is_late:
                self._flights.abandon(batch)
            # A stopped run's workers begin nothing of it for a while, unless this is said.
            for worker in workers:
                self._do(Signal(worker, (StopRun(self.spec.run_id, is_over=True),)))

    def _answer_takes(self, now: Now) -> None:
        takes, self._takes = self._takes, []
        for take in takes:
            results = self._results(take, now)
            if results is None:
                self._takes.append(take)
            else:
                self._do(Reply(take.request, results))

    def _results(self, take: Take, now: Now) -> FitResults | None:
        """The answer to a request for outcomes; None: it waits for some."""
        batch = take.batch
        units = batch.take(take.n_taken)
        is_stopped = self._stop.when is not None and (self._is_quiet or self.is_ending)
        if is_stopped or self.is_over or batch.is_delivered or now.mono_s >= take.until_s:
            is_stopped = is_stopped and not units
            return FitResults(units, is_stopped, self._stop.reason if is_stopped else "")
        if not units:
            return None
        unit_s = batch.graph.unit_s
        if take.gathered_s is None and unit_s is not None and unit_s < _SHORT_UNIT_S:
            take.gathered_s = min(now.mono_s + _GATHER_S, take.until_s)
        if take.gathered_s is not None and now.mono_s < take.gathered_s:
            return None
        return FitResults(units)

    # -- stops -----------------------------------------------------------------------------------

    def _stop_run(self, when: StopWhen, by: str, reason: str, now: Now) -> None:
        """End the run: what is computed is kept, what runs ends now or with its unit."""
        if self.is_ending or not self._stop.request(when, reason or f"stopped by {by}", now):
            return
        self._record(StopRequested(at_s=now.wall_s, when=when, by=by))
        self._flights.stop_all(when)

    def _stop_candidate(self, trial: int, by: str, now: Now) -> None:
        """End one candidate's folds that are not done, for a fit has no reports."""
        batch = self._batch_of(trial)
        if batch is None or batch.is_whole or self.is_ending or self._stop.when is not None:
            return
        candidate = batch.trials.index(trial)
        units = batch.graph.stop_candidate(candidate)
        if not units:
            return
        batch.stopped.add(candidate)
        asked = StopRequested(now.wall_s, "now", trial, by, batch.cell_id)
        self._record(asked, *self._candidates.given_up([trial], now.wall_s))
        for index in units:
            self._deliver(batch, TakenUnit(index, is_stopped=True))
        self._flights.stop_units(batch, units)
        self._outputs.release(batch)

    # -- outcomes --------------------------------------------------------------------------------

    def _batch_of(self, trial: int) -> FitBatch | None:
        return next((b for b in self._batches.values() if trial in b.trials), None)

    def _active(self) -> Sequence[FitBatch]:
        return [b for b in self._batches.values() if b.graph.is_fed and not b.is_over]

    def _take_in(self, fact: PieceBegun | PieceDone | Notice, now: Now) -> None:
        match fact:
            case Notice():
                self._record(fact)
            case PieceBegun(batch=batch, piece=piece, event=event):
                unit = None if piece.is_node else batch.graph.unit(piece.index)
                if unit is not None:
                    trial = batch.trials[unit.candidate]
                    self._record(*self._candidates.started(trial, event))
            case PieceDone(batch=batch, piece=piece) if piece.is_node:
                result = fact.node or NodeResult("nowhere", reason="failed")
                batch.graph.settle_node(piece.index, result)
                self._outputs.release(batch)
            case PieceDone():
                self._unit_done(fact, now)

    def _unit_done(self, done: PieceDone, now: Now) -> None:
        """Record a unit's outcome, and what it means for its candidate."""
        batch, index = done.batch, done.piece.index
        unit = batch.graph.settle_unit(index)
        self._outputs.release(batch)
        if unit is None or batch.is_given_up:
            return
        result = done.unit
        event = FoldFinished(
            trial=batch.trials[unit.candidate],
            fold=batch.graph.place(index),
            key=unit.key,
            at_s=done.at_s,
            duration_s=done.duration_s,
            outcome=b"" if result is None else result.outcome,
            file="" if result is None else result.file,
            score=None if result is None else result.score,
            has_raised=result is not None and result.has_raised,
            failure=done.failure if result is None else result.failure,
            is_lost=result is None,
            log=done.log,
            log_start=done.log_start,
            log_end=done.log_end,
        )
        self._record(event, *self._candidates.finished(event, now.wall_s))
        self._deliver(batch, _taken(index, event))

    def _committed(self, events: Sequence[Event], now: Now) -> None:
        self._n_committed += len(events)
        if self._n_committed > self._n_recorded:
            self._illegal("more is on record than was to be recorded")
        for event in events:
            fold(self.state, event)
            match event:
                case RunStarted():
                    self._phase = "driving"
                    if (stop := self._asked_to_stop) is not None:
                        self._stop_run(stop.when, stop.by, "", now)
                    early, self._early = self._early, []
                    for each in early:
                        self._on(each, now)
                case RunFinished():
                    self._leave(now)

    # -- outputs ---------------------------------------------------------------------------------

    def _drop_outputs(self, names: tuple[str, ...]) -> None:
        """Remove outputs from all hosts."""
        for address in self._hosts().values() if names else ():
            self._do(Signal(address, (self._drop_of(names),)))

    def _drop_of(self, names: tuple[str, ...]) -> DropOutputs:
        """The signal that removes files; without names, all of the run."""
        spill_dir = str(self._context.run_dir / "spill")
        return DropOutputs(self.spec.run_id, names, (*self._context.blob_dirs[:1], spill_dir))

    def _hosts(self) -> dict[str, str]:
        """One worker of each host."""
        context = self._context
        return {context.host_of(address): address for address in context.slots.addresses()}


def _taken(index: int, event: FoldFinished) -> TakenUnit:
    lost = event.failure if event.is_lost else None
    return TakenUnit(index, event.outcome, event.file, event.has_raised, lost)
