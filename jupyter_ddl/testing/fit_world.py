"""Fits in virtual time: a kernel that feeds and fetches, workers that are lost, and one machine.

:func:`fit_story` plays one story that follows from its seed, and raises ``AssertionError`` where
something was lost or doubled, a wait did not end, or a slot was not given back.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from jupyter_ddl.driving.assignments import RunContext
from jupyter_ddl.driving.fit_events import (
    DropAll,
    FitAsked,
    ImportModules,
    LookAtClient,
    ReadPast,
    past_of_fit,
)
from jupyter_ddl.driving.fits import FitMachine
from jupyter_ddl.driving.machine import (
    Abandon,
    Answered,
    Arrived,
    Ask,
    AskHeld,
    Begun,
    CommitPaused,
    Committed,
    Ended,
    EndWorker,
    NotAnswered,
    Over,
    Record,
    Refuse,
    ReleaseWorkers,
    Reply,
    Send,
    Signal,
    StopWanted,
    TrialStopWanted,
    WaitUntil,
    WakeOthers,
    Woken,
)
from jupyter_ddl.errors import LaunchError, SpecError
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.assignment import Assignment, Control, StopRun, StopTrial
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Failure,
    FoldFinished,
    RankEvent,
    RunFinished,
    RunStarted,
    RunSubmitted,
)
from jupyter_ddl.protocol.fit import DropOutputs, FitItem, TakeFit, node_file
from jupyter_ddl.protocol.fit_results import FitResults, NodeResult, UnitResult
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.requests import FitBody
from jupyter_ddl.protocol.run import Limits, RunSpec
from jupyter_ddl.testing.clock import VirtualClock
from jupyter_ddl.testing.fit_kernel import FedBatch, SimulatedKernel, outcome_of
from jupyter_ddl.verbs.fit import Fit

__all__ = ["FitWorld", "fit_story"]

_PATIENCE_S = 3 * 3600.0
_BLOCK_S = 30.0
"""How long a worker begins nothing of a run that it was told to stop."""
_OTHER = "another-run"


class _Job:
    """An assignment at a worker."""

    def __init__(self, assignment: Assignment, worker: str) -> None:
        assert assignment.fit is not None
        self.name = assignment.assignment_id
        self.worker = worker
        self.batch = assignment.fit.batch
        self.items = deque(assignment.fit.items)
        self.running: FitItem | None = None
        self.unsent: list[RankEvent] = []
        self.sent: list[RankEvent] = []
        self.is_over = False
        self.has_ended = False
        self.is_swallowed = False
        """Whether its worker takes up its slot with it, and does nothing."""
        self.n_looks = 0
        self.turn = 0
        """Fences off what was planned for an item that was stopped."""


class FitWorld:
    """One run, from its first session to its end."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = Random(seed)
        self.clock = VirtualClock(rng)
        self.spec = RunSpec(
            "f1",
            Fit(max_parallel=rng.choice([None, None, 1, 2])),
            Program("", "fit"),
            seed,
            "local",
            0.0,
            limits=Limits(
                timeout_s=rng.choice([None] * 9 + [20.0]), max_own_failures=1, max_evictions=4
            ),
        )
        self.ledger: list[Event] = [RunSubmitted(self.spec, 0.0)]
        self.on_record: set[bytes] = set()
        """Keys of the units whose outcomes are."""
        self.session = 0
        self.n_steps = 0
        self.p_loss = rng.choice([0.0, 0.0, 0.02, 0.1])
        self.p_crash = rng.choice([0.0, 0.0, 0.05])
        self.p_raise = rng.choice([0.0, 0.0, 0.0, 0.02])
        self.p_late = rng.choice([0.0, 0.2])
        self.p_swallow = rng.choice([0.0, 0.0, 0.02, 0.2])
        self.unit_s = rng.choice([0.001, 0.05, 3.0])
        self.losses_left = 12
        self.is_alive = True
        self.stops = 0
        self.was_stopped = False
        self.was_given_up: set[int] = set()
        self.stopped_trials: set[int] = set()
        self.cell_id = "cell"
        self.parts: list[FedBatch] = []
        n_candidates = 0
        for number in range(1, rng.randint(1, 3) + 1):
            part = FedBatch(rng, number, n_candidates)
            n_candidates += len(part.candidates)
            self.parts.append(part)
        self._start()
        self._plan_troubles()
        self.kernel = SimulatedKernel(self)
        self.kernel.begin_batch()

    # -- controllers -----------------------------------------------------------------------------

    def _start(self) -> None:
        """A controller with workers of its own."""
        self.session += 1
        rng = self.rng
        self.slots = SlotBook()
        self.hosts: dict[str, str] = {}
        self.n_workers = getattr(self, "n_workers", 0)
        self.jobs: dict[str, _Job] = {}
        self.blocked: dict[str, float] = {}
        self.swallowed: list[_Job] = []
        """Those that their workers have forgotten, whether anybody waits for them or not."""
        self.mute: set[str] = set()
        """Workers that answer nobody."""
        self.recording: list[Event] = []
        self.is_committing = False
        self.is_disk_full = False
        self.timer: Any = None
        self.open_requests: dict[int, FitBody] = {}
        self.questions: set[int] = set()
        self.names: set[str] = set()
        self.kept: set[str] = set()
        self.dropped: set[str] = set()
        self.is_all_dropped = False
        self.is_over = False
        self.n_signals = 0
        self.crashed: Counter[tuple[int, int]] = Counter()
        for _ in range(rng.randint(1, 3)):
            self._add_worker()
        self.slots.set_workers({address: self.n_slots_of[address] for address in self.hosts})
        context = RunContext(
            slots=self.slots,
            topic="t",
            run_dir=Path("/run"),
            blob_dirs=("/shm", "/disk"),
            program_digest="",
            pid=1,
            host_of=lambda address: self.hosts.get(address, ""),
            n_wanted=lambda: 1,
        )
        verb = Fit.of(self.spec)
        self.machine = FitMachine(self.spec, verb, fold_all(self.ledger), context, 1000)
        self.feed(Begun())

    n_slots_of: dict[str, int]

    def _add_worker(self) -> None:
        self.n_workers += 1
        address = f"w{self.n_workers}"
        self.hosts[address] = f"h{self.rng.randint(1, 2)}"
        if not hasattr(self, "n_slots_of"):
            self.n_slots_of = {}
        self.n_slots_of[address] = self.rng.randint(1, 2)

    def restart(self) -> None:
        """The controller is killed; another one goes on from what is on record."""
        if self.is_over or isinstance(self.ledger[-1], RunFinished):
            return  # nobody takes up what has ended
        self._start()
        self.kernel.controller_lost()

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """Do something in a while, unless the controller is gone by then."""
        session = self.session

        def run() -> None:
            if self.session == session:
                work()

        self.clock.call_at(self.clock.now().mono_s + seconds, run)

    def delay(self) -> float:
        return self.rng.choice([0.0, 0.001, 0.001, 0.01, 0.3])

    # -- the shell -------------------------------------------------------------------------------

    def feed(self, event: Any) -> None:
        if self.is_over:
            return
        self.n_steps += 1
        for instruction in self.machine.handle(event, self.clock.now()):
            assert not self.is_over, f"{instruction} after Over"
            self._carry_out(instruction)

    def _carry_out(self, instruction: Any) -> None:
        match instruction:
            case Record(events=events):
                self.recording += events
                if not self.is_committing:
                    self.is_committing = True
                    self.later(self.delay(), self._commit)
            case Send(assignment=assignment, worker=worker):
                assert assignment.assignment_id not in self.names, "sent twice"
                self.names.add(assignment.assignment_id)
                job = self.jobs[assignment.assignment_id] = _Job(assignment, worker)
                if worker not in self.hosts:
                    self.later(0.0, lambda: self._end(job, "worker is gone"))
                else:
                    self.later(self.delay(), lambda: self._begin(job))
            case Abandon(assignment_id=name):
                if (flying := self.jobs.get(name)) is not None:
                    self.later(0.0, lambda: self._end(flying, "it was given up"))
            case EndWorker(worker=worker):
                if self.rng.random() < 0.7:  # else it belongs to others
                    self.later(self.delay(), lambda: self._remove(worker))
                self.later(5.0, self._scale)
            case Signal(worker=worker, controls=controls):
                if self.rng.random() < self.p_loss and self.losses_left:
                    self.losses_left -= 1
                else:
                    self.n_signals += 1
                    self.later(self.delay(), lambda: self._signal(worker, controls))
            case Ask(question=question, work=work):
                self.questions.add(question)
                slow = isinstance(work, ImportModules) and self.rng.random() < 0.1
                self.later(90.0 if slow else self.delay(), lambda: self._answer(question, work))
            case WaitUntil(at_s=at_s):
                if self.timer is not None:
                    self.timer.cancel()
                self.timer = None
                if at_s is not None:
                    session = self.session
                    self.timer = self.clock.call_at(
                        at_s, lambda: self.feed(Woken()) if self.session == session else None
                    )
            case Reply(request=request, result=result):
                body = self.open_requests.pop(request)  # KeyError: answered twice
                results: Any = result
                self._check_on_record(body, results)
                self.later(self.delay(), lambda: self.kernel.replied(body, results))
            case Refuse(request=request, error=error):
                body = self.open_requests.pop(request)
                self.later(self.delay(), lambda: self.kernel.refused(body, error))
            case WakeOthers() | ReleaseWorkers():
                pass
            case Over():
                self.is_over = True

    def _commit(self) -> None:
        if self.is_disk_full:
            self.feed(CommitPaused("the disk is full"))
            self.later(1.0, self._commit)
            return
        if self.machine.paused(self.clock.now()):
            self.feed(CommitPaused(""))
        n = self.rng.randint(1, len(self.recording))
        events, self.recording = tuple(self.recording[:n]), self.recording[n:]
        self.ledger += events
        self.on_record |= {event.key for event in events if isinstance(event, FoldFinished)}
        self.feed(Committed(events))
        self.is_committing = bool(self.recording)
        if self.recording:
            self.later(self.delay(), self._commit)

    def _check_on_record(self, body: FitBody, results: FitResults | None) -> None:
        """What the kernel is told has to outlive a controller that is killed now."""
        if not isinstance(body, TakeFit) or results is None:
            return
        part = self.parts[body.batch - 1]
        for taken in results.units:
            unit = part.units[taken.unit]
            if not taken.is_stopped:
                told = f"{part.number}.{unit.candidate}.{unit.fold}"
                assert unit.key in self.on_record, f"{told} was told before it was on record"

    def _answer(self, question: int, work: Any) -> None:
        self.questions.remove(question)
        if isinstance(work, ReadPast):
            past = past_of_fit(list(self.ledger))
            self.feed(Answered(question, past))
        elif isinstance(work, DropAll):
            self.is_all_dropped = True
            self.feed(Answered(question))
        elif isinstance(work, LookAtClient):
            self.feed(Answered(question, self.is_alive))
        elif isinstance(work, AskHeld):
            self._answer_held(question, self.jobs.get(work.assignment_id))
        elif self.rng.random() < 0.1:
            self.feed(NotAnswered(question, LaunchError("no worker answers")))
        else:
            self.feed(Answered(question))

    def _answer_held(self, question: int, job: _Job | None) -> None:
        if job is not None and job.worker in self.mute:
            self.feed(NotAnswered(question, LaunchError("the worker does not answer")))
        else:
            self.feed(Answered(question, job is not None and not job.is_swallowed))

    def ask(self, body: FitBody) -> None:
        """A request of the kernel."""
        number = self.kernel.n_requests = self.kernel.n_requests + 1

        def arrive() -> None:
            self.open_requests[number] = body
            if self.is_over:
                del self.open_requests[number]
                self.kernel.refused(body, SpecError("the run is not active"))
            else:
                self.feed(FitAsked(number, body))

        self.later(self.delay(), arrive)

    # -- workers ---------------------------------------------------------------------------------

    def _begin(self, job: _Job) -> None:
        if job.has_ended:
            return
        here = [each for each in self.jobs.values() if each.worker == job.worker]
        n_busy = sum(each.running is not None for each in here)
        n_busy += sum(each.worker == job.worker for each in self.swallowed)
        if n_busy >= self.n_slots_of[job.worker]:
            job.n_looks += 1
            self.later(min(self.unit_s * 2.0**job.n_looks, 3.0), lambda: self._begin(job))
            return
        if self.rng.random() < self.p_swallow:
            self._swallow(job)
            return
        if self.clock.now().mono_s < self.blocked.get(job.worker, 0.0):
            self._cancel_rest(job)
            return
        self._next(job)

    def _swallow(self, job: _Job) -> None:
        """Its worker has forgotten it, or answers nobody; perhaps it comes to itself too late."""
        job.is_swallowed = True
        self.swallowed.append(job)
        if self.rng.random() < 0.5:
            self.mute.add(job.worker)
        if self.rng.random() < 0.5:
            self.later(200.0 * self.rng.random(), lambda: self._find_again(job))

    def _find_again(self, job: _Job) -> None:
        self.mute.discard(job.worker)
        if job in self.swallowed:
            self.swallowed.remove(job)
            job.is_swallowed = False
            self._next(job)

    def _next(self, job: _Job) -> None:
        job.running = None
        if job.has_ended or job.is_over:
            return
        if not job.items:
            self._finish(job)
            return
        item = job.running = job.items.popleft()
        self._check_outputs(job, item)
        job.turn += 1
        turn = job.turn
        now = self.clock.now()
        log = f"{job.worker}.log"
        self._emit(job, AttemptStarted(item.number, 1, now.wall_s, job.worker, 7, log, 0))
        seconds = self.unit_s * self.rng.choice([0.5, 1.0, 1.0, 4.0])

        def done() -> None:
            if job.turn == turn and not job.has_ended and not job.is_over:
                self._emit(job, self._outcome(job, item))
                self._next(job)

        self.later(seconds, done)

    def _check_outputs(self, job: _Job, item: FitItem) -> None:
        if job.batch in self.was_given_up or self.was_stopped:
            return
        part = self.parts[job.batch - 1]
        for prefix in item.have:
            name = node_file("f1", job.batch, prefix, item.fold)
            if item.prefix is None:
                trial = self.trial_of(part, item.candidate)
                if trial in self.stopped_trials or (trial < 0 and self.stopped_trials):
                    continue
            elif self.stopped_trials:
                continue
            assert name not in self.dropped, f"{name} was dropped before its user began"

    def trial_of(self, part: FedBatch, candidate: int) -> int:
        batch = self.machine._batches.get(part.number)
        return -1 if batch is None else batch.trials[candidate]

    def _outcome(self, job: _Job, item: FitItem) -> AttemptFinished:
        rng = self.rng
        outcome: Any = "complete"
        failure = None
        result = b""
        dice = rng.random()
        if dice < self.p_crash:
            kind: Any = rng.choice(["crash", "crash", "memory"])
            outcome, failure = "failed", Failure(kind, "SIGKILL", "killed")
        elif dice < self.p_crash + self.p_loss:
            outcome, failure = "evicted", Failure("blob", "BlobMissingError", "gone")
        elif item.prefix is not None:
            where: Any = rng.choice(["memory", "memory", "disk", "nowhere"])
            reason: Any = (
                rng.choice(["", "failed", "random", "bound"]) if where == "nowhere" else ""
            )
            result = msgspec.msgpack.encode(NodeResult(where, 300, self.unit_s, reason))
            if where != "nowhere":
                self.kept.add(node_file("f1", job.batch, item.prefix, item.fold))
        else:
            part = self.parts[job.batch - 1]
            text = outcome_of(part, item.candidate, item.fold)
            has_raised = rng.random() < self.p_raise
            score = float(str(part.candidates[item.candidate].params["v"]))
            result = msgspec.msgpack.encode(UnitResult(text, score=score, has_raised=has_raised))
        return AttemptFinished(
            item.number,
            1,
            outcome,
            self.clock.now().wall_s,
            self.unit_s,
            failure=failure,
            result=result,
        )

    def _emit(self, job: _Job, event: RankEvent) -> None:
        job.unsent.append(event)
        if len(job.unsent) == 1:
            self.later(self.delay(), lambda: self._deliver(job))

    def _deliver(self, job: _Job) -> None:
        events, job.unsent = tuple(job.unsent), []
        if job.has_ended:
            if self.rng.random() < self.p_late:
                self.feed(Arrived(job.name, events))
            return
        if events:
            job.sent += events
            self.feed(Arrived(job.name, events))
        if job.is_over and not job.unsent:
            self._end(job, "")

    def _finish(self, job: _Job) -> None:
        """The worker has done all of it: its end comes behind its events."""
        job.is_over = True
        job.running = None
        if not job.unsent:
            self.later(self.delay(), lambda: self._deliver(job))

    def _cancel_rest(self, job: _Job) -> None:
        if job.has_ended or job.is_over or job.is_swallowed:
            return
        now = self.clock.now().wall_s
        for item in ([job.running] if job.running is not None else []) + list(job.items):
            self._emit(job, AttemptFinished(item.number, 1, "cancelled", now, 0.0))
        job.items.clear()
        self._finish(job)

    def _end(self, job: _Job, lost: str) -> None:
        if job.has_ended:
            return
        job.has_ended = True
        job.running = None
        del self.jobs[job.name]
        self.feed(Ended(job.name, lost))
        if job.sent and self.rng.random() < self.p_late:  # told a second time
            events = tuple(job.sent)
            self.later(self.delay(), lambda: self.feed(Arrived(job.name, events)))

    def _signal(self, worker: str, controls: tuple[Control, ...]) -> None:
        self.n_signals -= 1
        if worker in self.mute:
            return
        for control in controls:
            match control:
                case StopRun(is_over=True):
                    self.blocked.pop(worker, None)
                case StopRun(when=when):
                    self.blocked[worker] = self.clock.now().mono_s + _BLOCK_S
                    for job in [j for j in self.jobs.values() if j.worker == worker]:
                        if when == "now" or job.running is None:
                            self._cancel_rest(job)
                        else:
                            job.items.clear()
                case StopTrial(trial=number):
                    for job in [j for j in self.jobs.values() if j.worker == worker]:
                        if job.running is not None and job.running.number == number:
                            now = self.clock.now().wall_s
                            self._emit(job, AttemptFinished(number, 1, "cancelled", now, 0.0))
                            self._next(job)
                case DropOutputs(names=names):
                    self.dropped |= set(names)
                    self.is_all_dropped |= not names

    # -- troubles --------------------------------------------------------------------------------

    def _plan_troubles(self) -> None:
        rng, clock = self.rng, self.clock
        span = self.unit_s * rng.choice([3, 10, 40]) + 0.5
        start = clock.now().mono_s

        def at(work: Callable[[], None]) -> None:
            clock.call_at(start + rng.random() * span, work)

        for _ in range(rng.choice([0, 0, 1, 3])):
            at(self._lose_worker)
        for _ in range(rng.choice([0, 0, 1, 2])):
            at(self._scale)
        if rng.random() < 0.2:
            at(self._fill_disk)
        if rng.random() < 0.2:
            at(self._others_come)
        for _ in range(rng.choice([0, 0, 0, 1, 2])):
            at(self.restart)
        for _ in range(rng.choice([0, 0, 1, 2])):
            at(self._stop_trial)
        if rng.random() < 0.2:
            how = rng.choice(["now", "next_report"])
            at(lambda: self._stop(how))
            if rng.random() < 0.5:
                at(lambda: self._stop("now"))
        if rng.random() < 0.15:
            at(lambda: setattr(self, "is_alive", False))

    def _lose_worker(self) -> None:
        if not self.hosts or self.is_over:
            return
        self._remove(self.rng.choice(sorted(self.hosts)))
        self.later(self.rng.choice([0.1, 5.0, 60.0]), self._scale)

    def _remove(self, address: str) -> None:
        if self.hosts.pop(address, None) is None:
            return
        self.swallowed = [job for job in self.swallowed if job.worker != address]
        lost = [job for job in self.jobs.values() if job.worker == address]
        if self.rng.random() < 0.5:
            self.slots.set_workers({a: self.n_slots_of[a] for a in self.hosts})
        for job in lost:
            self._end(job, f"worker {address} is gone")
        self._workers_changed()

    def _scale(self) -> None:
        if not self.is_over:
            self._add_worker()
            self._workers_changed()

    def _workers_changed(self) -> None:
        self.slots.set_workers({a: self.n_slots_of[a] for a in self.hosts})
        self.feed(Woken())

    def _fill_disk(self) -> None:
        self.is_disk_full = True
        self.later(self.rng.choice([2.0, 30.0]), lambda: setattr(self, "is_disk_full", False))

    def _others_come(self) -> None:
        """Another run takes what it gets, and gives it back later."""
        self.slots.join(_OTHER)
        taken = []
        while (address := self.slots.take(_OTHER, 1, 99)) is not None:
            taken.append(address)

        def leave() -> None:
            self.slots.leave(_OTHER)
            self.feed(Woken())

        self.later(self.rng.choice([1.0, 20.0]), leave)

    def _stop(self, how: Any) -> None:
        if not self.is_over:
            self.was_stopped = True
            self.feed(StopWanted(how, "user"))

    def _stop_trial(self) -> None:
        trial = self.rng.randrange(6)
        try:
            can_stop = not self.is_over and self.machine.is_running(trial)
        except SpecError:
            return
        if can_stop:
            self.stopped_trials.add(trial)
            self.feed(TrialStopWanted(trial, "now", "user"))

    # -- the story -------------------------------------------------------------------------------

    def run(self) -> None:
        """Play it to its end, and see what has become of it."""
        end_s = self.clock.now().mono_s + _PATIENCE_S
        while not (self.is_over and self.kernel.is_over and not self.n_signals):
            assert self.clock.step(), "nothing will ever happen any more, and the run is not over"
            assert self.clock.now().mono_s < end_s, "a wait does not end"
        self.check()

    def check(self) -> None:
        """Nothing lost, nothing doubled, nothing kept."""
        assert not (violations := audit(self.ledger)), violations
        assert not self.open_requests, f"never answered: {self.open_requests}"
        assert self.spec.run_id not in self.slots.holders(), self.slots.holders()
        is_told = self.is_all_dropped or not self.hosts
        assert not self.kept or is_told, "outputs were left on the hosts"
        self._check_folds()
        end = self.ledger[-1]
        assert isinstance(end, RunFinished)
        stopped = self.was_stopped or not self.is_alive or self.spec.limits.timeout_s is not None
        if not stopped:
            assert end.state == self.kernel.state, (end, self.kernel.state)
        if end.state == "complete":
            for part in self.parts:
                assert len(part.done) == len(part.units), "a unit has no outcome"

    def _check_folds(self) -> None:
        seen: set[tuple[int, int]] = set()
        good: set[tuple[int, int]] = set()
        for event in self.ledger:
            match event:
                case RunStarted():
                    seen.clear()
                case FoldFinished(trial=trial, fold=place):
                    assert (trial, place) not in seen, f"{trial}.{place} has two outcomes"
                    assert (trial, place) not in good, f"{trial}.{place} was computed again"
                    seen.add((trial, place))
                    if not event.is_lost and not event.has_raised:
                        good.add((trial, place))


def fit_story(seed: int) -> tuple[int, int]:
    """Play the story of a seed; returns how many events machines took, and requests."""
    world = FitWorld(seed)
    try:
        world.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
    return world.n_steps, world.kernel.n_requests
