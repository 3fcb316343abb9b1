"""The way down for trials: batches and rank groups to their places, signals, and what is given up.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import msgspec

from jupyter_ddl.driving.admission import round_notices
from jupyter_ddl.driving.assignments import (
    RunContext,
    by_rank,
    joining_place,
    make_assignment,
    make_group,
)
from jupyter_ddl.driving.flights import Flight, FlightBook, evictions
from jupyter_ddl.driving.leases import AttemptLease
from jupyter_ddl.driving.machine import (
    Abandon,
    Arrived,
    AskHeld,
    EndWorker,
    Instruction,
    Now,
    Send,
    Signal,
    Work,
    earliest,
)
from jupyter_ddl.driving.rounds import Round
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.placement.gpus import Grant
from jupyter_ddl.protocol.assignment import (
    Assignment,
    StopRun,
    StopTrial,
    StopWhen,
    TrialAssignment,
)
from jupyter_ddl.protocol.events import Event, Notice, WorkerLeaving
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.protocol.run import RunSpec

__all__ = ["TrialFlights"]


class TrialFlights:
    """What one run has at the workers.  Methods return what is to be recorded.

    Parameters
    ----------
    session : int
        Of the run; names of assignments differ from one to the next.
    do : callable
        Takes instructions.
    ask : callable
        Takes work, and the flight that its answer is about.
    """

    def __init__(
        self,
        spec: RunSpec,
        context: RunContext,
        session: int,
        do: Callable[[Instruction], None],
        ask: Callable[[Work, Flight], None],
    ) -> None:
        self._spec = spec
        self._context = context
        self._slots = context.slots
        self._session = session
        self._do = do
        self._ask = ask
        self._book = FlightBook()
        self._n_assignments = 0
        self._gave_up = False
        self.served: dict[str, None] = {}
        """Workers that have had work of this run, in order."""

    def __len__(self) -> int:
        return len(self._book)

    def __iter__(self) -> Iterator[Flight]:
        return iter(self._book)

    def has(self, trial: int) -> bool:
        """Whether a trial is at a worker."""
        return self._book.of_trial(trial) is not None

    @property
    def doubt(self) -> str:
        """Which worker does not say that it does its work; empty: none."""
        return next(filter(None, (flight.doubt for flight in self._book)), "")

    def liveness(self) -> dict[int, tuple[str, float]]:
        """Of a run's one group: phase of each running rank, and when it last moved (Unix)."""
        rounds = [flight.round for flight in self._book if flight.round is not None]
        return rounds[0].liveness() if len(rounds) == 1 else {}

    @property
    def due_s(self) -> float | None:
        """When :meth:`poll` has something to do."""
        rounds = (flight.round.due_s for flight in self._book if flight.round is not None)
        leases = (flight.lease.due_s for flight in self._book if flight.lease is not None)
        return earliest(*rounds, *leases)

    # -- down ------------------------------------------------------------------------------------

    def launch(
        self,
        batch: Sequence[TrialAssignment],
        *,
        fresh: bool,
        places: Grant,
        state: RunState,
        now: Now,
    ) -> Sequence[Event]:
        """Send a batch, or one trial's group, to its places."""
        self._n_assignments += 1
        spec, context = self._spec, self._context
        name = f"{spec.run_id}-{self._session}-{self._n_assignments}"
        notices: Sequence[Event] = ()
        if spec.is_grouped:
            assignments = make_group(spec, context, batch[0], name, places, state.best_value)
            place = assignments[0].place
            assert place is not None
            notices = round_notices(spec, state, batch[0], place, now.wall_s)
            places = places._replace(workers=by_rank(places.workers, place))
        else:
            alone = make_assignment(
                spec, context, batch, name, fresh=fresh, best_value=state.best_value, places=places
            )
            assignments = [alone]
        flight = self._book.launch(assignments, places, now.mono_s)
        if spec.is_grouped:
            flight.round = Round(
                assignments,
                places.workers,
                [context.host_of(worker) if worker else "" for worker in places.workers],
                now,
                do=self._do,
                write_stacks=partial(self._ask_about, flight),
                give_up=partial(self._abandon, flight),
                start_again=partial(self._start_again, flight),
                hang_timeout_s=spec.verb.ranks.hang_timeout_s,
                devices=self._slots.gpus.texts(places.gpus),
            )
        else:
            flight.lease = AttemptLease(context.attempt_lease_s, now.mono_s)
        for assignment, worker in zip(assignments, places.workers, strict=True):
            if worker:
                self._send(assignment, worker)
        return notices

    def _send(self, assignment: Assignment, worker: str) -> None:
        self.served[worker] = None
        self._do(Send(assignment, worker))

    def _start_again(self, flight: Flight, rank: int, life: int) -> None:
        """Send a rank that was lost to its place once more, while the others go on."""
        place = flight.assignments[rank].place
        assert place is not None
        same = msgspec.structs.replace(place, life=life)
        self._send_again(flight, rank, same, flight.workers[rank])

    def _send_again(self, flight: Flight, rank: int, place: RankPlace, worker: str) -> None:
        before = flight.assignments[rank]
        name = before.assignment_id.rpartition("-r")[0]
        again = msgspec.structs.replace(
            before, assignment_id=f"{name}-r{rank}-l{place.life}", place=place
        )
        self._book.replace(flight, rank, again, worker)
        self._send(again, worker)

    def fill(self, take: Callable[[Callable[[str], bool]], str | None], now: Now) -> list[Event]:
        """Start ranks that have no worker where there is room, while the others go on.

        Parameters
        ----------
        take : callable
            Holds a slot of a worker that suits.
        """
        events: list[Event] = []
        for flight in self._book:
            if flight.round is None:
                continue
            for rank in flight.round.vacant:
                worker = take(partial(self._suits, flight))
                if worker is None:
                    break
                events += self._fill(flight, flight.round, rank, worker, now)
        return events

    def _fill(self, flight: Flight, of: Round, rank: int, worker: str, now: Now) -> list[Event]:
        host = self._context.host_of(worker)
        life, events = of.give_worker(rank, worker, host, now)
        self._slots.give(self._spec.run_id, flight.workers[rank])
        places = [each.place for each in flight.assignments if each.place is not None]
        there = zip(places, flight.workers, strict=True)
        others = [each for each, at in there if at and each.rank != rank and _host_of(each) == host]
        place = joining_place(places[rank], life, host, [each.local_rank for each in others])
        self._send_again(flight, rank, place, worker)
        return events

    def _suits(self, flight: Flight, worker: str) -> bool:
        """Whether a worker can reach where the ranks of a round meet."""
        place = flight.assignments[0].place
        assert place is not None
        return not place.is_on_one_host or self._context.host_of(worker) in place.hosts

    def _ask_about(self, flight: Flight, work: Work) -> None:
        self._ask(work, flight)

    def stop_run(self, when: StopWhen, *, counts: bool) -> None:
        """End all that is on its way; ``counts``: what has begun counts as complete then."""
        first: dict[str, list[StopTrial]] = {}
        for flight in self._book:
            if flight.round is not None:
                flight.round.may_start_again = False
            stops = [
                StopTrial(self._spec.run_id, trial, flight.open[trial], "complete", when)
                for trial in (flight.started if counts else ())
            ]
            for worker in flight.at_workers:
                first.setdefault(worker, []).extend(stops)
        for worker, stops in first.items():
            self._do(Signal(worker, (*stops, StopRun(self._spec.run_id, when))))

    def stop_trial(
        self, trial: int, when: StopWhen, reason: Literal["pruned", "cancelled"]
    ) -> bool:
        """End one running trial; False when it isn't running."""
        flight = self._book.of_trial(trial)
        if flight is None:
            return False
        if flight.round is not None:
            flight.round.may_start_again = False
        # Of a group, rank 0 alone leaves at its next report; its round ends the others then.
        # Were all asked, each would leave at another step, and one could wait for another.
        rank = 0 if self._spec.is_grouped and when == "next_report" else None
        workers = flight.workers[:1] if rank == 0 else flight.at_workers
        stop = StopTrial(self._spec.run_id, trial, flight.open[trial], reason, when, rank)
        for worker in workers:
            self._do(Signal(worker, (stop,)))
        return True

    # -- up --------------------------------------------------------------------------------------

    def arrived(self, event: Arrived, now: Now) -> tuple[Flight | None, list[Event]]:
        """Whose these events are, and those that count; None: of one that was given up."""
        found = self._book.of_assignment(event.assignment_id)
        if found is None:
            return None, []
        flight, rank = found
        if flight.lease is not None:
            flight.lease.heard(now.mono_s)
        for each in event.events:
            if isinstance(each, WorkerLeaving):
                self._slots.retire(flight.workers[rank])
        if flight.round is None:
            return flight, self._book.admit(flight, event.events)
        return flight, self._book.admit(flight, flight.round.arrived(rank, event.events, now))

    def stacks_written(self, flight: Flight, now: Now) -> list[Event]:
        """The stacks of a group that hangs are saved: who hangs can be said."""
        if flight.round is None or not flight.under_way:
            return []
        return self._book.admit(flight, flight.round.stacks_written(now))

    def ended(self, name: str, lost: str, now: Now) -> tuple[Flight | None, list[Event]]:
        """One assignment is over; the flight is over when nothing of it is under way."""
        found = self._book.assignment_ended(name)
        if found is None:
            return None, []
        flight, rank = found
        if flight.round is None:
            return flight, []
        return flight, self._book.admit(flight, flight.round.rank_ended(rank, lost, now))

    def land(self, flight: Flight, now: Now) -> list[Event]:
        """Forget a flight that is over; what is open in it then was never begun."""
        events: list[Event] = []
        if not self._gave_up:  # else it ends with the whole run
            events = self._book.admit(flight, evictions(flight, now.wall_s))
        self._book.land(flight)
        return events

    # -- deadlines -------------------------------------------------------------------------------

    def poll(self, now: Now) -> list[Event]:
        """Do what has become due of rounds and leases."""
        events: list[Event] = []
        for flight in self._book:
            if flight.round is not None:
                events += flight.round.woken(now)
            elif flight.lease is not None:
                events += self._check_lease(flight, flight.lease, now)
        return events

    def _check_lease(self, flight: Flight, lease: AttemptLease, now: Now) -> list[Event]:
        """Ask for a silent assignment; one whose lease is over is repeated elsewhere."""
        action = lease.poll(now.mono_s)
        if action == "ask":
            self._ask(AskHeld(flight.assignments[0].assignment_id), flight)
        elif action == "end" and flight.open and not self._gave_up:
            self._abandon(flight, 0)
            return [Notice(at_s=now.wall_s, text=flight.doubt)]
        return []

    def held(self, flight: Flight, now: Now, *, is_held: bool) -> None:
        """What a worker says of an assignment."""
        if flight.lease is not None:
            stuck = not flight.has_begun and self._slots.is_leaving(flight.workers[0])
            flight.lease.answered(now.mono_s, is_held=is_held and not stuck)

    def give_up(self) -> None:
        """Forget what is on its way: its workers had their time to answer."""
        if self._gave_up:
            return
        self._gave_up = True
        for flight in self._book:
            for rank, assignment in enumerate(flight.assignments):
                if assignment.assignment_id in flight.under_way:
                    self._abandon(flight, rank)

    def _abandon(self, flight: Flight, rank: int) -> None:
        """Wait for an assignment no longer, and end its worker: what is behind it never begins."""
        self._slots.retire(flight.workers[rank])
        self._do(Abandon(flight.assignments[rank].assignment_id))
        self._do(EndWorker(flight.workers[rank]))


def _host_of(place: RankPlace) -> str:
    return place.hosts[place.group_rank]
