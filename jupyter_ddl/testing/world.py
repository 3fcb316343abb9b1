"""A cluster with its runs, in virtual time: everything that can happen, in a random order.

The machines, the slots, the study, the reducer and the audit are the real ones.  Simulated are the
workers with their ranks, the disk, the clock, and whoever stops, scales and kills.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Literal, TypeAlias, get_args

from jupyter_ddl.driving.assignments import RunContext
from jupyter_ddl.driving.machine import (
    Abandon,
    Answered,
    Arrived,
    Ask,
    AskHeld,
    AskSampler,
    AskStop,
    Begun,
    CommitPaused,
    Committed,
    EndWorker,
    Happening,
    Instruction,
    LookForBlobs,
    NotAnswered,
    Over,
    Record,
    Replay,
    Send,
    Signal,
    StopWanted,
    Think,
    TrialStopWanted,
    WaitUntil,
    WakeOthers,
    Woken,
    Work,
)
from jupyter_ddl.driving.pruning import PruningPolicy, make_policy
from jupyter_ddl.driving.sources import StudySource, TrialSource, make_source
from jupyter_ddl.driving.trials import TrialMachine
from jupyter_ddl.errors import TrialError
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    Event,
    RunSubmitted,
    Spent,
    StopRequested,
    TrialCreated,
)
from jupyter_ddl.protocol.prices import Budget, Held, Reading
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.protocol.verb import StopHow
from jupyter_ddl.studies.study import Proposal, Study
from jupyter_ddl.testing.clock import Timer, VirtualClock
from jupyter_ddl.testing.dispatcher import FakeDispatcher, Faults
from jupyter_ddl.verbs.search import Search

__all__ = ["DEEDS", "Deed", "SimulatedRun", "World", "WorldError"]

Deed: TypeAlias = Literal[
    "lose worker",
    "add worker",
    "tell worker to go",
    "stop run",
    "stop trial",
    "fill disk",
    "restart",
    "take slots",
    "lose blobs",
]
"""What somebody or something does to a world."""
DEEDS: tuple[Deed, ...] = get_args(Deed)

_LONGEST_S = 20_000.0
"""Virtual seconds within which every run has to be over, whatever was done to it."""
_MOST_STEPS = 20_000
_HOUR_S = 3600.0
_HOW: tuple[StopHow, ...] = ("next_report", "now", "epoch", "keep_best")


class WorldError(AssertionError):
    """A promise was broken; the message has the seed and the story."""


class _Meter:
    """Counts what a run holds in virtual time, for one controller."""

    def __init__(self, run_id: str, slots: SlotBook, now_s: Callable[[], float]) -> None:
        self._run_id = run_id
        self._slots = slots
        self._now_s = now_s
        self._read_at_s = now_s()
        self._n_held = 0
        self._held_s = 0.0

    def __call__(self) -> Reading:
        now_s = self._now_s()
        self._held_s += self._n_held * (now_s - self._read_at_s)
        self._read_at_s = now_s
        self._n_held = self._slots.holders().get(self._run_id, 0)
        return Reading(Held(self._held_s / _HOUR_S), Held(float(self._n_held)))


class SimulatedRun:
    """One run: its ledger in memory, and the machine of its present session."""

    def __init__(self, spec: RunSpec, world: World) -> None:
        self.spec = spec
        self.world = world
        self.ledger: list[Event] = [RunSubmitted(spec, world.clock.now().wall_s)]
        self.is_over = False
        self.was_stopped = False
        self.lost_blobs = False
        self.n_losses = 0
        self.n_handled = 0
        self.machine: TrialMachine | None = None
        self._source: TrialSource
        self._policy: PruningPolicy
        self._events: deque[Happening] = deque()
        self._is_handling = False
        self._uncommitted: list[Event] = []
        self._committing: Timer | None = None
        self._disk_is_full = False
        self._n_thoughts = 0  # in this session
        self._has_failed = False
        self._timer: Timer | None = None
        self._session = 0

    def begin(self, slots: SlotBook) -> None:
        """A controller takes the run up: for the first time, or from its ledger."""
        self._session += 1
        self._n_thoughts = 0
        state = fold_all(self.ledger)
        n_slots = self.spec.verb.max_parallel or 2
        self._source = self.world.make_source(self.spec, n_slots)
        self._policy = make_policy(self.spec, n_slots)
        context = RunContext(
            slots=slots,
            topic="events",
            run_dir=Path("run"),
            blob_dirs=(),
            program_digest="program",
            pid=1,
            host_of=lambda worker: worker,
            n_wanted=lambda: 1,
            new_token=lambda: "token",
            read_meter=_Meter(self.spec.run_id, slots, lambda: self.world.clock.now().mono_s),
        )
        self.machine = TrialMachine(self.spec, self._source, self._policy, state, context)
        self.feed(Begun())

    def end_session(self) -> None:
        """The controller is killed: what it has not written is lost, or some of it."""
        if self.is_over:
            return
        n_written = self.world.rng.randint(0, len(self._uncommitted))
        self.ledger += self._uncommitted[:n_written]
        self._uncommitted.clear()
        self._events.clear()
        for timer in (self._timer, self._committing):
            if timer is not None:
                timer.cancel()
        self._timer = self._committing = self.machine = None
        self._disk_is_full = False
        self._session += 1

    def feed(self, event: Happening) -> None:
        if self.machine is None or self.is_over:
            return
        self._events.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events and self.machine is not None and not self.is_over:
                self.n_handled += 1
                handled = self.machine.handle(self._events.popleft(), self.world.clock.now())
                for instruction in handled:
                    self._carry_out(instruction)
                if self.machine.failure and not self._has_failed:
                    self._has_failed = True
                    self.world.check_refusal(self.spec, self.machine.failure)
        finally:
            self._is_handling = False

    def _carry_out(self, instruction: Instruction) -> None:
        world = self.world
        match instruction:
            case Record(events=events):
                self._uncommitted += events
                if self._committing is None and not self._disk_is_full:
                    self._committing = world.clock.call_later(
                        world.rng.random() * 0.01, self._commit
                    )
            case Send(assignment=assignment, worker=worker):
                world.dispatcher.send(assignment, worker, self._of_session())
            case Signal(worker=worker, controls=controls):
                world.dispatcher.signal(worker, controls)
            case Abandon(assignment_id=name):
                world.dispatcher.abandon(name)
            case EndWorker(worker=worker):
                world.dispatcher.end_worker(worker)
            case Ask(question=question, work=work):
                self._n_thoughts += isinstance(work, Think)
                delay_s = world.rng.random() * (0.01 if isinstance(work, Replay) else 1.0)
                if world.rng.random() < world.faults.long:
                    delay_s *= 60.0
                world.clock.call_later(delay_s, self._answer, self._session, question, work)
            case WaitUntil(at_s=at_s):
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = None
                if at_s is not None:
                    self._timer = world.clock.call_at(at_s, self.feed, Woken())
            case WakeOthers():
                world.clock.call_later(0.0, world.wake_all)
            case Over():
                self.is_over = True
            case _:
                pass

    def _of_session(self) -> Callable[[Happening], None]:
        session = self._session

        def feed(event: Happening) -> None:
            if session == self._session:
                self.feed(event)

        return feed

    def _commit(self) -> None:
        self._committing = None
        if self._disk_is_full or not self._uncommitted:
            return
        batch, self._uncommitted = self._uncommitted, []
        self.ledger += batch
        self.feed(Committed(tuple(batch)))

    def fill_disk(self) -> None:
        """Nothing can be committed for a while."""
        if self._disk_is_full or self.machine is None:
            return
        self._disk_is_full = True
        self.feed(CommitPaused("the disk is full"))
        self.world.clock.call_later(
            self.world.rng.random() * 5.0, self._disk_is_free, self._session
        )

    def _disk_is_free(self, session: int) -> None:
        if session == self._session:
            self._disk_is_full = False
            self.feed(CommitPaused(""))
            self._commit()

    def _answer(self, session: int, question: int, work: Work) -> None:
        if session != self._session or self.is_over or self.machine is None:
            return
        fails = self.world.rng.random() < self.world.sampler_fails
        if fails and isinstance(work, Think | AskSampler | AskStop):
            self.feed(NotAnswered(question, TrialError("the sampler failed")))
            return
        answer: object = None
        if isinstance(work, AskHeld):
            answer = self.world.dispatcher.holds(work.assignment_id)
            if answer is None:
                self.feed(NotAnswered(question, TrialError("the worker does not answer")))
                return
        match work:
            case Think() if isinstance(self._source, StudySource):
                answer = self._source.study.ask()
            case AskSampler(number=number):
                answer = self.world.params_of(number)
            case AskStop():
                answer = self.world.rng.random() < 0.3
            case Replay(records=records):
                self._source.replay(records)
                self._policy.begin(iter(self.ledger), self.machine.state)
            case LookForBlobs():
                answer = "a value is lost" if self.lost_blobs else ""
            case _:
                pass
        self.feed(Answered(question, answer))

    def lose_blobs(self) -> None:
        """What the run is made of is gone for a while: somebody runs its cell again then."""
        if not self.lost_blobs:
            self.lost_blobs = True
            self.n_losses += 1
            self.world.clock.call_later(self.world.rng.random() * 60.0, self._blobs_are_back)

    def _blobs_are_back(self) -> None:
        self.lost_blobs = False

    # -- promises --------------------------------------------------------------------------------

    def check(self) -> None:
        """What holds at the end of every run.

        Raises
        ------
        AssertionError
            Something was lost, doubled, or used up.
        """
        assert self.machine is not None
        violations = audit(self.ledger)
        assert not violations, violations
        state = self.machine.state
        assert state.end is not None
        self._check_spending(state)
        # A trial or the end per thought, or a wait until the next result.
        assert self._n_thoughts <= 2 * self.spec.n_trials + 2, "asked again and again"
        limits = self.spec.limits
        for trial in state.trials.values():
            assert trial.own_failures <= limits.max_own_failures, f"trial {trial.number}"
        ended = dict.fromkeys(state.trials, 0)
        unfit = dict.fromkeys(state.trials, 0)
        for event in self.ledger:
            if isinstance(event, AttemptFinished) and event.outcome == "complete":
                ended[event.trial] += 1
            elif isinstance(event, AttemptFinished) and _is_for_blobs(event):
                unfit[event.trial] += 1
            elif isinstance(event, TrialCreated):
                expected = self.world.expected_params(self.spec, event.trial)
                assert expected is None or event.params == expected, "params depend on timing"
        assert all(number <= 1 for number in ended.values()), f"doubled: {ended}"
        # Once it is known that something is lost, nothing is sent before it is back.
        assert max(unfit.values(), default=0) <= self.n_losses, f"sent without blobs: {unfit}"
        is_through = not self.was_stopped and state.end.state != "cancelled"
        is_hopeless = self._policy.hopeless(state) is not None
        if is_through and not self.machine.failure and not is_hopeless:
            lost = state.waiting | state.running | state.ended_with_run
            assert not lost, f"lost: {lost}"
            assert self.world.may_end_early or state.n_created == self.spec.n_trials, "not all ran"

    def _check_spending(self, state: RunState) -> None:
        """What is on record only grows; a budget that is not spent ends nothing, and one that is
        begins nothing more."""
        spent = [each.held.cpu_hours for each in self.ledger if isinstance(each, Spent)]
        total = None if state.end is None else state.end.spent
        if isinstance(total, Held):
            spent.append(total.cpu_hours)
        assert spent == sorted(spent), f"spent less than before: {spent}"
        stops = [each for each in self.ledger if isinstance(each, StopRequested)]
        budget = self.spec.limits.budget
        if any(each.by == "budget" for each in stops):
            assert isinstance(budget, Budget)
            assert spent[-1] >= budget.amount, f"{spent[-1]} of {budget.amount} is spent"


class World:
    """One cluster and its runs.

    Parameters
    ----------
    seed : int
        Everything random follows from it.
    specs
        The runs; they compete for the same slots.
    workers
        Slots of each worker that there is at the beginning.
    deeds
        What is done to the world, each at a random time.
    sampler_fails : float
        How likely it is that a question to a sampler fails.
    """

    def __init__(
        self,
        seed: int,
        specs: Sequence[RunSpec],
        faults: Faults,
        *,
        workers: Sequence[int] = (1, 1),
        deeds: Sequence[Deed] = (),
        sampler_fails: float = 0.0,
        is_slow: bool = False,
    ) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.clock = VirtualClock(self.rng)
        self.faults = faults
        self.sampler_fails = sampler_fails
        self.may_end_early = False
        self.n_steps = 0
        self._is_slow = is_slow
        self._slots = SlotBook()
        self._sizes = tuple(workers)
        self._n_workers = 0
        self.dispatcher = FakeDispatcher(
            self.clock, self.rng, faults, self._forgotten, self._gone, self._has_lost
        )
        self.runs = [SimulatedRun(spec, self) for spec in specs]
        self._deeds = tuple(deeds)

    def run(self) -> None:
        """Everything, until all runs are over.

        Raises
        ------
        WorldError
            A promise was broken.
        """
        self.begin()
        last_s = 0.0
        for deed in self._deeds:
            at_s = self.rng.random() * 3.0
            last_s = max(last_s, at_s)
            self.clock.call_at(at_s, self.do, deed)
        self.clock.call_at(last_s + self.rng.random() * 2.0, self.restore)
        self.finish()

    def begin(self) -> None:
        """Workers come, and the runs begin."""
        for size in self._sizes:
            self._add_worker(size)
        for run in self.runs:
            run.begin(self._slots)

    def advance(self, n_steps: int) -> None:
        """The next things that happen, if any do: runs may wait for workers.

        Raises as :meth:`run` does.
        """
        try:
            for _ in range(n_steps):
                if not self.is_over and len(self.clock):
                    self._step()
        except Exception as error:
            raise self._error(error) from error

    def finish(self) -> None:
        """Until all runs are over, and has everything been kept?  Raises as :meth:`run` does."""
        try:
            while not self.is_over:
                self._step()
            for run in self.runs:
                run.check()
            held = {name: n for name, n in self._slots.holders().items() if name != "group"}
            assert not held, f"slots are held: {held}"
        except Exception as error:
            raise self._error(error) from error

    @property
    def is_over(self) -> bool:
        return all(run.is_over for run in self.runs)

    def _step(self) -> None:
        self.n_steps += 1
        assert self.clock.step(), "nothing will ever happen again"
        assert self.n_steps < _MOST_STEPS, "endless"
        assert self.clock.now_s < _LONGEST_S, "a wait never ends"

    def _error(self, error: Exception) -> WorldError:
        return WorldError(f"seed {self.seed}: {error!r}\n{self._story()}")

    @property
    def n_handled(self) -> int:
        """Events that machines were given."""
        return sum(run.n_handled for run in self.runs)

    # -- deeds -----------------------------------------------------------------------------------

    def do(self, deed: Deed) -> None:
        """Do something to the world."""
        rng, workers = self.rng, tuple(self.dispatcher.workers)
        run = rng.choice(self.runs)
        match deed:
            case "lose worker" if workers:
                address = rng.choice(workers)
                if rng.random() < 0.5:
                    self.dispatcher.remove_worker(address)
                    self._workers_changed()
                else:
                    self._slots.set_workers(
                        {a: n for a, n in self.dispatcher.workers.items() if a != address}
                    )
                    self.dispatcher.remove_worker(address)
                    self.wake_all()
            case "add worker":
                self._add_worker(rng.randint(1, 2))
            case "tell worker to go" if workers:
                address = rng.choice(workers)
                self.dispatcher.tell_to_go(address)
                self.clock.call_later(rng.random() * 5.0, self._gone, address)
            case "stop run":
                run.was_stopped = True
                run.feed(StopWanted(rng.choice(_HOW), "user"))
            case "stop trial":
                run.feed(TrialStopWanted(rng.randrange(3), rng.choice(_HOW[:2]), "user"))  # type: ignore[arg-type]
            case "fill disk":
                run.fill_disk()
            case "take slots":
                if not self._slots.kept():
                    taken = self._slots.take_group("group", self._slots.n_free)
                    if taken is None:
                        self._slots.leave("group")  # a persistent group does not wait
            case "restart":
                self._restart()
            case "lose blobs":
                run.lose_blobs()
            case _:
                pass

    def check_refusal(self, spec: RunSpec, why: str) -> None:
        """A run gives up: for want of slots only if it could not have had them."""
        if "for slots" in why:
            n_ranks = spec.verb.ranks.n_fewest
            assert self._slots.n_within_reach(spec.run_id) < n_ranks, "slots were free"

    def _gone(self, address: str) -> None:
        if address in self.dispatcher.workers:
            self.dispatcher.remove_worker(address)
            self._workers_changed()

    def _restart(self) -> None:
        """The controller is killed, and with it all workers; another one takes its place."""
        for run in self.runs:
            run.end_session()
        self.dispatcher.reset()
        self._slots = SlotBook()
        self.clock.call_later(self.rng.random() * 0.1, self._take_up, self._slots)

    def _take_up(self, slots: SlotBook) -> None:
        if slots is not self._slots:
            return  # killed again before it had begun
        for run in self.runs:
            if not run.is_over:
                run.begin(slots)
        for size in self._sizes:
            self.clock.call_later(self.rng.random() * 0.1, self._add_worker, size)

    def restore(self) -> None:
        """From now on there is room for everybody, or nothing could be promised."""
        if self._slots.kept():
            self._slots.leave("group")
            self.wake_all()
        n_wanted = max(run.spec.n_ranks for run in self.runs)
        while self._slots.n_slots < n_wanted:
            self._add_worker(1)
        if not all(run.is_over for run in self.runs):
            self.clock.call_later(60.0, self.restore)

    def _add_worker(self, n_slots: int) -> None:
        self._n_workers += 1
        self.dispatcher.add_worker(f"w{self._n_workers}", n_slots)
        self._workers_changed()

    def _workers_changed(self) -> None:
        self._slots.set_workers(self.dispatcher.workers)
        self.wake_all()

    def wake_all(self) -> None:
        for run in self.runs:
            run.feed(Woken())

    def _has_lost(self, run_id: str) -> bool:
        return any(run.lost_blobs for run in self.runs if run.spec.run_id == run_id)

    def _forgotten(self, event: Arrived) -> None:
        for run in self.runs:
            run.feed(event)

    # -- samplers --------------------------------------------------------------------------------

    def make_source(self, spec: RunSpec, max_parallel: int) -> TrialSource:
        source = make_source(spec, max_parallel)
        asked = spec.verb.study
        if asked is None or not isinstance(source, StudySource) or source.has_own_sampler:
            return source
        if self._is_slow:
            source.study = _SlowStudy(asked, spec.seed, asked.window or 2)
        return source

    def params_of(self, number: int) -> dict[str, float]:
        """What the own sampler of this world proposes."""
        return {"x": (number % 7) / 7.0}

    def expected_params(self, spec: RunSpec, number: int) -> dict[str, object] | None:
        """What a trial has for parameters, whatever happened; None where the world can't tell."""
        asked = spec.verb.study
        if asked is None:
            return {}
        if ":" in asked.sampler.name:
            return dict(self.params_of(number))
        return _proposed(spec.seed, asked.n_trials, number)

    def _story(self) -> str:
        lines: list[str] = []
        for run in self.runs:
            lines.append(f"run {run.spec.run_id}, {type(run.spec.verb).__name__}:")
            if run.machine is not None:
                lines.append(f"  phase {run.machine.phase}")
                lines += [f"  {line}" for line in run.machine.story()]
        return "\n".join(lines)


def _is_for_blobs(event: AttemptFinished) -> bool:
    return event.failure is not None and event.failure.kind == "blob"


class _SlowStudy(Study):
    """A study that is asked in a thread."""

    @property
    def is_slow(self) -> bool:
        return True


@cache
def _proposed(seed: int, n_trials: int, number: int) -> dict[str, object]:
    verb = Search("loss", "min", n_trials, {"x": Uniform(0.0, 1.0)})
    study = Study(verb, seed, 1000)
    answers = [study.ask() for _ in range(number + 1)]
    last = answers[-1]
    assert isinstance(last, Proposal)
    return dict(last.params)
