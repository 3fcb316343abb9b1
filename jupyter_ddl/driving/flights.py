"""Attempts on their way: their events in order, those that count, and what a loss means.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard, get_args

from jupyter_ddl.driving.leases import AttemptLease
from jupyter_ddl.driving.rounds import Round
from jupyter_ddl.formats import format_bytes
from jupyter_ddl.placement.gpus import Grant
from jupyter_ddl.protocol.assignment import Assignment, TrialAssignment
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    EventChunk,
    Failure,
    Notice,
    OfAttempt,
    OutputShown,
    PipelineTimed,
    ProfileTaken,
    RankEvent,
    Reported,
    StepsTimed,
)

__all__ = ["ChunkInbox", "Flight", "FlightBook", "evictions"]


_MAX_RECORD_BYTES = 512 << 20
"""Of what one assignment reports: a run's record is not to fill the disk of who asked for it."""
_MAX_AHEAD = 1024
"""Chunks that are kept behind a gap; later ones are asked for again."""


class ChunkInbox:
    """Event chunks of one assignment: delivered once each, in order of their numbers."""

    def __init__(self) -> None:
        self.next_number = 0
        self._early: dict[int, tuple[RankEvent, ...]] = {}

    def add(self, chunk: EventChunk) -> Sequence[RankEvent]:
        """Events that may be delivered now; empty for a repeated chunk or behind a gap."""
        if not self.next_number <= chunk.number < self.next_number + _MAX_AHEAD:
            return ()
        self._early[chunk.number] = chunk.events
        ready: list[RankEvent] = []
        while self.next_number in self._early:
            ready.extend(self._early.pop(self.next_number))
            self.next_number += 1
        return ready

    def missing(self, n_chunks: int) -> bool:
        """Whether any of ``n_chunks`` has not been delivered."""
        return self.next_number < n_chunks


@dataclass
class Flight:
    """One assignment at one worker, or one per rank of a group, and how far it got."""

    assignments: tuple[Assignment, ...]
    """One, or one per rank of a group."""
    places: Grant
    """Where each of them runs."""
    sent_s: float = 0.0
    """When it was sent, by the monotonic clock."""
    round: Round | None = None
    """Of a rank group."""
    open: dict[int, int] = field(default_factory=dict)
    """trial -> attempt of those that have not finished."""
    started: dict[int, float] = field(default_factory=dict)
    """trial -> when it started, of those that have not finished."""
    under_way: set[str] = field(default_factory=set)
    """Assignments that have not ended."""
    lease: AttemptLease | None = None
    """Of an assignment by itself; a rank group has its round."""
    n_bytes: int = 0
    """Of what it has reported, about."""
    has_begun: bool = False
    """Whether any of its attempts ever started or ended."""

    @property
    def workers(self) -> tuple[str, ...]:
        """Of each assignment; empty for a rank that has none."""
        return self.places.workers

    @property
    def at_workers(self) -> tuple[str, ...]:
        """The workers at which something of it is, each once."""
        return tuple(dict.fromkeys(filter(None, self.workers)))

    @property
    def doubt(self) -> str:
        """What is to be told of its lease; empty while its worker does what it was sent for."""
        lease = self.lease
        if lease is None or not self.open or not (lease.is_doubted or lease.is_over):
            return ""
        return lease.text(self.workers[0], f"trial {self._in_hand}")

    @property
    def _in_hand(self) -> int:
        """The trial that its worker is at, or was to begin with."""
        return next(iter(self.started or self.open))

    @property
    def trials(self) -> tuple[TrialAssignment, ...]:
        """What was sent; the ranks of a group share one trial."""
        return self.assignments[0].trials


class FlightBook:
    """All flights of one run; fences off what no longer counts."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}
        self._of_assignment: dict[str, tuple[Flight, int]] = {}
        self._of_trial: dict[int, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __iter__(self) -> Iterator[Flight]:
        return iter(tuple(self._flights.values()))

    def launch(
        self, assignments: Sequence[Assignment], places: Grant, sent_s: float = 0.0
    ) -> Flight:
        first = assignments[0]
        flight = Flight(
            tuple(assignments),
            places,
            sent_s,
            open={trial.trial: trial.attempt for trial in first.trials},
        )
        self._flights[first.assignment_id] = flight
        for rank, (each, worker) in enumerate(zip(assignments, places.workers, strict=True)):
            if worker:
                flight.under_way.add(each.assignment_id)
                self._of_assignment[each.assignment_id] = (flight, rank)
        for trial in flight.open:
            self._of_trial[trial] = flight
        return flight

    def replace(self, flight: Flight, rank: int, assignment: Assignment, worker: str) -> None:
        """A rank of a group, not the first, is sent once more, perhaps to another worker."""
        workers = list(flight.workers)
        workers[rank] = worker
        flight.places = flight.places._replace(workers=tuple(workers))
        ranks = list(flight.assignments)
        ranks[rank] = assignment
        flight.assignments = tuple(ranks)
        flight.under_way.add(assignment.assignment_id)
        self._of_assignment[assignment.assignment_id] = (flight, rank)

    def land(self, flight: Flight) -> None:
        """Forget a flight; what it leaves open no longer belongs to it."""
        self._flights.pop(flight.assignments[0].assignment_id, None)
        for trial in flight.open:
            if self._of_trial.get(trial) is flight:
                del self._of_trial[trial]

    def of_trial(self, trial: int) -> Flight | None:
        return self._of_trial.get(trial)

    def of_assignment(self, assignment_id: str) -> tuple[Flight, int] | None:
        """The flight that an assignment belongs to, and its rank there; None when it is over."""
        return self._of_assignment.get(assignment_id)

    def assignment_ended(self, assignment_id: str) -> tuple[Flight, int] | None:
        """The same, for the last time; None when it has ended before, or was never sent."""
        found = self._of_assignment.pop(assignment_id, None)
        if found is not None:
            found[0].under_way.discard(assignment_id)
        return found

    def admit(self, flight: Flight, events: Sequence[RankEvent | Event]) -> list[Event]:
        """The events that count: those of attempts which are open in this flight."""
        counting: list[Event] = []
        for event in events:
            if not self._admit(event, flight):
                continue
            n_before = flight.n_bytes
            flight.n_bytes += _weight(event)
            if flight.n_bytes <= _MAX_RECORD_BYTES or not isinstance(event, _UNBOUNDED):
                counting.append(event)
            elif n_before <= _MAX_RECORD_BYTES:
                counting.append(_told_too_much(event))
        return counting

    def _admit(self, event: Any, flight: Flight) -> TypeGuard[Event]:
        # By its kind in one look: every event of every trial comes through here.
        kind = type(event)
        if kind not in _OF_ATTEMPT:
            return kind is Notice
        if flight.open.get(event.trial) != event.attempt:
            return False
        if kind is AttemptStarted:
            if event.trial in flight.started:
                return False
            flight.started[event.trial] = event.at_s
            flight.has_begun = True
        elif kind is AttemptFinished:
            del flight.open[event.trial]
            flight.started.pop(event.trial, None)
            flight.has_begun = True
            self._of_trial.pop(event.trial, None)
        return True


_OF_ATTEMPT = frozenset(get_args(OfAttempt))
_UNBOUNDED = (Reported, Notice, OutputShown, PipelineTimed, ProfileTaken, StepsTimed)
"""What a cell tells as often as it likes, and a run does without."""


def _weight(event: Event | RankEvent) -> int:
    """About as many bytes as its record has."""
    if type(event) not in _UNBOUNDED:
        return 256
    if isinstance(event, Reported):
        return 48 + sum(len(name) + 10 for name in event.metrics)
    if isinstance(event, PipelineTimed):
        return 1024 + 48 * len(event.times.spans)
    return 64 + len(event.text) if isinstance(event, Notice) else 256


def _told_too_much(
    event: Reported | Notice | OutputShown | PipelineTimed | ProfileTaken | StepsTimed,
) -> Notice:
    whose = "it" if isinstance(event, Notice) else f"trial {event.trial}"
    text = (
        f"{whose} has reported {format_bytes(_MAX_RECORD_BYTES)}: what it reports from now on is "
        f"not recorded, how it ends is; report every so many steps"
    )
    return Notice(event.at_s, text)


def evictions(flight: Flight, now_s: float) -> list[Event]:
    """What is to be recorded when the worker of ``flight`` is lost: started attempts only.

    Of a flight whose lease is over, the one that was never started counts, too: it would be sent
    for ever.
    """
    started, failure = flight.started, None
    if flight.lease is not None and flight.lease.is_over and flight.open:
        failure = Failure("launch", "LeaseOver", flight.doubt)
        started = started or {next(iter(flight.open)): now_s}
    return [
        AttemptFinished(
            trial=trial,
            attempt=flight.open[trial],
            outcome="evicted",
            at_s=now_s,
            duration_s=max(0.0, now_s - started_s),
            failure=failure,
        )
        for trial, started_s in started.items()
    ]
