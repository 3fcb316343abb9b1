"""Workers and ranks that are not there, and a dispatcher that sends assignments to them.

A rank does what a real one's messages tell of: it begins, reports, fails, leaves when it is told
to, or not at all.  What it says travels in numbered chunks, which are late, lost or doubled at
random, and are put in order by the real :class:`~jupyter_ddl.driving.flights.ChunkInbox`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from jupyter_ddl.driving.flights import ChunkInbox
from jupyter_ddl.driving.machine import Arrived, Ended, Happening
from jupyter_ddl.protocol.assignment import (
    Assignment,
    Control,
    DumpStacks,
    StopRun,
    StopTrial,
    TrialAssignment,
)
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    CheckpointSaved,
    EventChunk,
    Failure,
    GroupSettled,
    Outcome,
    Probe,
    RankEvent,
    RendezvousReady,
    Reported,
    WorkerLeaving,
)
from jupyter_ddl.protocol.group import JoinGroup
from jupyter_ddl.testing.clock import VirtualClock

__all__ = ["FakeDispatcher", "Faults"]

_LATE_CHUNK_S = 1.0
_CLOSED = Failure("exception", "RuntimeError", "Connection closed by peer", line=3)
_RAISED = Failure("exception", "ValueError", "no", line=3)
_KILLED = Failure("crash", "SIGKILL", "killed by signal 9")
_NO_BLOB = Failure("blob", "BlobMissingError", "a captured value is no longer on this host")
_NO_SPACE = Failure("disk", "OSError", "no space left on device")

Feed = Callable[[Happening], None]


class Faults(msgspec.Struct, frozen=True):
    """How likely each fault is, per occasion."""

    lost_chunk: float = 0.0
    doubled_chunk: float = 0.0
    lost_signal: float = 0.0
    deaf: float = 0.0
    """A rank that ignores what it is told."""
    swallowed: float = 0.0
    """A worker that beats, takes an assignment, and does nothing with it for minutes or ever."""
    never_begun: float = 0.0
    """A worker that gives an assignment back without having begun it."""
    fails: float = 0.0
    crashes: float = 0.0
    disk_full: float = 0.0
    slow: float = 0.0
    """A message that takes seconds instead of milliseconds."""
    long: float = 0.0
    """A trial that takes minutes."""


class _Rank:
    """One assignment at one worker."""

    def __init__(self, assignment: Assignment, worker: _Worker) -> None:
        self.assignment = assignment
        self.worker = worker
        self.chunks: list[EventChunk] = []
        self.trials = deque(assignment.trials)
        self.current: TrialAssignment | None = None
        self.n_steps_left = 0
        self.step = 0
        self.is_over = False
        self.is_deaf = False
        self.is_swallowed = False
        self.is_blocked = False  # in a rendezvous or a collective: only others can end it
        self.leaves: dict[str, str] = {}  # when -> outcome, as it was told


class _Worker:
    def __init__(self, address: str, n_slots: int) -> None:
        self.address = address
        self.n_slots = n_slots
        self.is_there = True
        self.answers = True
        self.running: list[_Rank] = []
        self.waiting: deque[_Rank] = deque()
        self.stopped: set[str] = set()


class _Flight:
    def __init__(self, worker: str, feed: Feed) -> None:
        self.worker = worker
        self.feed = feed
        self.inbox = ChunkInbox()


class FakeDispatcher:
    """Assignments down, events up: in virtual time.

    Parameters
    ----------
    on_forgotten : callable
        Gets the events of assignments that nobody waits for: the driver has to fence them.
    on_lost : callable
        Gets the address of a worker that hangs, to have it removed.
    has_lost : callable
        Whether something that a run is made of, by its id, is not there at present.
    """

    def __init__(
        self,
        clock: VirtualClock,
        rng: Random,
        faults: Faults,
        on_forgotten: Callable[[Arrived], None] = lambda _: None,
        on_lost: Callable[[str], None] | None = None,
        has_lost: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._clock = clock
        self._rng = rng
        self._faults = faults
        self._on_forgotten = on_forgotten
        self._on_lost = on_lost or self.remove_worker
        self._has_lost = has_lost
        self._workers: dict[str, _Worker] = {}
        self._flights: dict[str, _Flight] = {}
        self._groups: dict[tuple[str, int, int], list[_Rank]] = {}
        self.slowness: dict[str, float] = {}
        """How many times as long as others' the steps of a worker's ranks take, by its address."""

    # -- workers ---------------------------------------------------------------------------------

    @property
    def workers(self) -> dict[str, int]:
        """Slots of the workers that there are, by address."""
        return {worker.address: worker.n_slots for worker in self._workers.values()}

    def add_worker(self, address: str, n_slots: int) -> None:
        self._workers[address] = _Worker(address, n_slots)

    def remove_worker(self, address: str) -> None:
        """A worker is lost, and what it had to do with it."""
        worker = self._workers.pop(address)
        self._kill(worker)
        for name, flight in tuple(self._flights.items()):
            if flight.worker == address:
                self._end(name, f"worker {address} is gone")

    def tell_to_go(self, address: str) -> None:
        """A worker is told to go: those that it serves learn of it."""
        for rank in self._workers[address].running:
            if rank.current is not None:
                current = rank.current
                self._say(rank, WorkerLeaving(current.trial, current.attempt, 30.0))

    def reset(self) -> None:
        """The controller is gone: nobody waits for anything any more, and all workers end."""
        self._flights.clear()
        for worker in self._workers.values():
            self._kill(worker)
        self._workers.clear()

    def _kill(self, worker: _Worker) -> None:
        worker.is_there = False
        for rank in worker.running:
            rank.is_over = True
            self._peer_gone(rank)
        worker.waiting.clear()

    # -- down ------------------------------------------------------------------------------------

    def send(self, assignment: Assignment, worker: str, feed: Feed) -> None:
        """Have an assignment executed; ``feed`` gets its events, then its ``Ended``."""
        name = assignment.assignment_id
        self._flights[name] = _Flight(worker, feed)
        if worker in self._workers:
            rank = _Rank(assignment, self._workers[worker])
            self._later(self._arrive, rank)
        else:
            self._later(self._end, name, f"worker {worker} is gone")

    def abandon(self, name: str) -> None:
        """Wait for an assignment no longer."""
        self._later(self._end, name, "it was given up")

    def signal(self, worker: str, controls: Sequence[Control]) -> None:
        for control in controls:
            if self._rng.random() >= self._faults.lost_signal:
                self._later(self._control, worker, control)

    # -- at the worker ---------------------------------------------------------------------------

    def _arrive(self, rank: _Rank) -> None:
        worker = rank.worker
        if not worker.is_there:
            return
        worker.waiting.append(rank)
        self._begin_next(worker)

    def _begin_next(self, worker: _Worker) -> None:
        while worker.waiting and len(worker.running) < worker.n_slots:
            rank = worker.waiting.popleft()
            worker.running.append(rank)
            if self._rng.random() < self._faults.swallowed:
                self._swallow(rank)
            elif (
                rank.assignment.run_id in worker.stopped
                or self._rng.random() < self._faults.never_begun
            ):
                self._leave(rank)
            else:
                self._next_trial(rank)

    def _swallow(self, rank: _Rank) -> None:
        """The worker has forgotten it, or answers nobody; perhaps it comes to itself too late."""
        rank.is_swallowed = True
        rank.worker.answers = self._rng.random() < 0.5
        if self._rng.random() < 0.5:
            self._clock.call_later(300.0 * self._rng.random(), self._find_again, rank)

    def _find_again(self, rank: _Rank) -> None:
        rank.is_swallowed, rank.worker.answers = False, True
        if rank.worker.is_there and not rank.is_over:
            self._next_trial(rank)

    def holds(self, name: str) -> bool | None:
        """Whether a worker executes an assignment, or will; None: it does not answer."""
        for worker in self._workers.values():
            for rank in (*worker.running, *worker.waiting):
                if rank.assignment.assignment_id == name:
                    return not rank.is_swallowed if worker.answers else None
        return False

    def end_worker(self, worker: str) -> None:
        """A worker that does not do its work is ended; not one that belongs to others."""
        if worker in self._workers and self._rng.random() < 0.7:
            self._later(self._end_worker, worker)

    def _end_worker(self, worker: str) -> None:
        if worker in self._workers:
            self._on_lost(worker)

    def _next_trial(self, rank: _Rank) -> None:
        rank.leaves.clear()
        rank.is_blocked = False
        if not rank.trials:
            self._leave(rank)
            return
        rank.current = trial = rank.trials.popleft()
        rng, faults = self._rng, self._faults
        rank.is_deaf = rng.random() < faults.deaf
        rank.n_steps_left = rng.randrange(3)
        rank.step = 0
        address = rank.worker.address
        self._say(
            rank,
            AttemptStarted(
                trial.trial, trial.attempt, self._wall_s, address, 1, rank.assignment.run_id, 0
            ),
        )
        place = rank.assignment.place
        if self._has_lost(rank.assignment.run_id):
            self._finish(rank, "evicted", _NO_BLOB)
        elif place is not None and place.world_size > 1:
            self._groups.setdefault(self._group_of(rank), []).append(rank)
            self._block(rank, trial)
            self._say(rank, RendezvousReady(trial.trial, trial.attempt, address, 1))
        else:
            self._go_on(rank)

    def _go_on(self, rank: _Rank) -> None:
        delay_s = self._rng.random()
        if self._rng.random() < self._faults.long:
            delay_s *= 300.0
        delay_s *= self.slowness.get(rank.worker.address, 1.0)
        self._clock.call_later(delay_s, self._work, rank, rank.current)

    def _work(self, rank: _Rank, trial: TrialAssignment) -> None:
        """One step of the user's code."""
        if rank.is_over or rank.is_blocked or rank.current is not trial:
            return
        rng, faults = self._rng, self._faults
        dice = rng.random()
        if dice < faults.fails:
            self._finish(rank, "failed", _RAISED)
        elif dice < faults.fails + faults.crashes:
            self._finish(rank, "failed", _KILLED)
        elif dice < faults.fails + faults.crashes + faults.disk_full:
            self._finish(rank, "failed", _NO_SPACE)
        elif not rank.n_steps_left:
            self._finish(rank, "complete")
        else:
            rank.n_steps_left -= 1
            rank.step += 1
            step = rank.step
            value = float(trial.trial)
            self._say(
                rank,
                Reported(
                    trial.trial, trial.attempt, step, {"loss": value}, self._wall_s, _no(rank)
                ),
            )
            if "next_report" in rank.leaves and not rank.is_deaf:
                self._finish(rank, rank.leaves["next_report"])
                return
            if _no(rank) == 0 and rng.random() < 0.5:
                file = f"{trial.trial}-a{trial.attempt}-s{step}"
                saved = CheckpointSaved(trial.trial, trial.attempt, step, file, 1, self._wall_s)
                self._say(rank, saved)
                if "next_checkpoint" in rank.leaves and not rank.is_deaf:
                    self._finish(rank, rank.leaves["next_checkpoint"])
                    return
            self._go_on(rank)

    def _finish(self, rank: _Rank, outcome: str, failure: Failure | None = None) -> None:
        trial = rank.current
        if trial is None:
            return
        value = float(trial.trial) if outcome in ("complete", "pruned") else None
        said: Outcome = outcome  # type: ignore[assignment]
        self._say(
            rank,
            AttemptFinished(
                trial.trial, trial.attempt, said, self._wall_s, 0.1, value, failure=failure
            ),
        )
        rank.current = None
        if outcome != "complete":
            self._peer_gone(rank)
        if failure is not None and failure.kind == "crash":
            self._leave(rank)  # what was behind it in the same process is not begun
        else:
            self._clock.call_later(self._rng.random() * 0.01, self._next_if_there, rank)

    def _next_if_there(self, rank: _Rank) -> None:
        if not rank.is_over:
            self._next_trial(rank)

    def _leave(self, rank: _Rank) -> None:
        """The future of the assignment is done."""
        rank.is_over = True
        worker = rank.worker
        if rank in worker.running:
            worker.running.remove(rank)
        if worker.is_there:
            self._later(self._result, rank)
            self._begin_next(worker)

    def _peer_gone(self, rank: _Rank) -> None:
        """What becomes of a group when one of its ranks is not there any more."""
        place = rank.assignment.place
        if place is None or place.is_dispensable(place.rank) or place.is_awaited(place.rank):
            return
        ranks = self._groups.get(self._group_of(rank), ())
        for other in ranks:
            if other is not rank and other.current is not None and not other.is_over:
                if self._rng.random() < 0.3:
                    self._block(other, other.current)
                else:
                    self._later(self._fail_as_consequence, other, other.current)

    def _block(self, rank: _Rank, trial: TrialAssignment) -> None:
        """It waits for others; torch gives up after minutes."""
        rank.is_blocked = True
        at_s = self._clock.now_s + 120.0 + 60.0 * self._rng.random()
        self._clock.call_at(at_s, self._wait_ends, rank, trial)

    def _wait_ends(self, rank: _Rank, trial: TrialAssignment) -> None:
        if rank.is_blocked:
            self._fail_as_consequence(rank, trial)

    def _fail_as_consequence(self, rank: _Rank, trial: TrialAssignment) -> None:
        if not rank.is_over and rank.current is trial:
            self._finish(rank, "failed", _CLOSED)

    # -- signals ---------------------------------------------------------------------------------

    def _control(self, address: str, control: Control) -> None:
        worker = self._workers.get(address)
        if worker is None or not worker.answers:
            return
        if isinstance(control, StopRun):
            if control.is_over:
                return
            worker.stopped.add(control.run_id)
        for rank in tuple(worker.running):
            match control:
                case StopRun(run_id=run_id, when=when):
                    if rank.assignment.run_id == run_id:
                        rank.trials.clear()
                        self._tell_to_leave(rank, when, "cancelled")
                case StopTrial() if self._is_meant(rank, control):
                    self._tell_to_leave(rank, control.when, control.reason)
                case JoinGroup() if self._is_meant(rank, control) and rank.is_blocked:
                    rank.is_blocked = False
                    if _no(rank) == 0:
                        self._say(rank, GroupSettled(control.trial, control.attempt))
                    self._go_on(rank)
                case DumpStacks() if self._is_meant(rank, control):
                    self._say(rank, Probe(control.trial, control.attempt, "S", 0.0, ""))

    def _is_meant(self, rank: _Rank, control: StopTrial | JoinGroup | DumpStacks) -> bool:
        trial = rank.current
        if trial is None or rank.assignment.run_id != control.run_id:
            return False
        if (trial.trial, trial.attempt) != (control.trial, control.attempt):
            return False
        which = control.rank if isinstance(control, StopTrial) else None
        return which is None or which == _no(rank)

    def _tell_to_leave(self, rank: _Rank, when: str, outcome: str) -> None:
        if rank.current is None:
            return
        if rank.is_deaf:
            if when == "now":
                # The ladder's last rung, or the end of a worker that does not answer any more.
                call = self._killed if self._rng.random() < 0.5 else self._worker_hangs
                self._clock.call_later(60.0 * self._rng.random(), call, rank, rank.current)
            return
        if when == "now":
            self._finish(rank, outcome)
        else:
            rank.leaves.setdefault(when, outcome)

    def _killed(self, rank: _Rank, trial: TrialAssignment) -> None:
        if not rank.is_over and rank.current is trial:
            self._finish(rank, "cancelled")

    def _worker_hangs(self, rank: _Rank, trial: TrialAssignment) -> None:
        if not rank.is_over and rank.current is trial and rank.worker.is_there:
            self._on_lost(rank.worker.address)

    # -- up --------------------------------------------------------------------------------------

    def _say(self, rank: _Rank, *events: RankEvent) -> None:
        assignment = rank.assignment
        chunk = EventChunk(
            assignment.run_id, assignment.assignment_id, len(rank.chunks), tuple(events)
        )
        rank.chunks.append(chunk)
        if self._rng.random() >= self._faults.lost_chunk:
            self._later(self._deliver, chunk)
        if self._rng.random() < self._faults.doubled_chunk:
            self._later(self._deliver, chunk)

    def _deliver(self, chunk: EventChunk) -> None:
        flight = self._flights.get(chunk.assignment_id)
        if flight is None:
            self._on_forgotten(Arrived(chunk.assignment_id, chunk.events))
            return
        events = flight.inbox.add(chunk)
        if events:
            flight.feed(Arrived(chunk.assignment_id, tuple(events)))

    def _result(self, rank: _Rank) -> None:
        """The result of the future is here, perhaps before all events that it counts."""
        name = rank.assignment.assignment_id
        flight = self._flights.get(name)
        if flight is None:
            return
        if flight.inbox.missing(len(rank.chunks)):
            self._clock.call_later(_LATE_CHUNK_S, self._replay, rank)
        else:
            self._end(name)

    def _replay(self, rank: _Rank) -> None:
        name = rank.assignment.assignment_id
        flight = self._flights.get(name)
        if flight is None:
            return
        if not rank.worker.is_there:
            self._end(name, "the worker did not answer")
            return
        for chunk in rank.chunks[flight.inbox.next_number :]:
            self._deliver(chunk)
        self._end(name)

    def _end(self, name: str, lost: str = "") -> None:
        flight = self._flights.pop(name, None)
        if flight is not None:
            flight.feed(Ended(name, lost))

    def _later(self, call: Callable[..., None], *args: object) -> None:
        delay_s = self._rng.random() * 0.05
        if self._rng.random() < self._faults.slow:
            delay_s *= 100.0
        self._clock.call_later(delay_s, call, *args)

    @property
    def _wall_s(self) -> float:
        return self._clock.now().wall_s

    def _group_of(self, rank: _Rank) -> tuple[str, int, int]:
        trial = rank.assignment.trials[0]
        return rank.assignment.run_id, trial.trial, trial.attempt


def _no(rank: _Rank) -> int:
    place = rank.assignment.place
    return 0 if place is None else place.rank
