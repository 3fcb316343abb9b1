"""Attempts on their way: which event belongs to a live attempt, and what a loss means.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from jupyter_ddl.launch.group import GroupLaunch
from jupyter_ddl.placement.gpus import Grant
from jupyter_ddl.protocol.assignment import Assignment, TrialAssignment
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Notice,
    OfAttempt,
    RankEvent,
    Unrecorded,
)

__all__ = ["Flight", "FlightBook", "evictions"]


@dataclass
class Flight:
    """One assignment at one worker, and how far it got."""

    assignments: tuple[Assignment, ...]
    """One, or one per rank of a group."""
    workers: tuple[str, ...]
    """Where each of them runs."""
    gpus: tuple[tuple[str, ...], ...] = ()
    """UUIDs of each one's GPUs; empty: none has any."""
    open: dict[int, int] = field(default_factory=dict)
    """trial -> attempt of those that have not finished."""
    group: GroupLaunch | None = None
    started: dict[int, float] = field(default_factory=dict)
    """trial -> when it started, of those that have not finished."""

    @property
    def trials(self) -> tuple[TrialAssignment, ...]:
        """What was sent; the ranks of a group share one trial."""
        return self.assignments[0].trials


class FlightBook:
    """All flights of one run; fences off what no longer counts."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}
        self._of_trial: dict[int, Flight] = {}

    def __len__(self) -> int:
        return len(self._flights)

    def __iter__(self) -> Iterator[Flight]:
        return iter(tuple(self._flights.values()))

    def launch(self, assignments: Sequence[Assignment], places: Grant) -> Flight:
        first = assignments[0]
        flight = Flight(
            tuple(assignments),
            places.workers,
            places.gpus,
            {t.trial: t.attempt for t in first.trials},
        )
        self._flights[first.assignment_id] = flight
        for trial in flight.open:
            self._of_trial[trial] = flight
        return flight

    def land(self, flight: Flight) -> None:
        """Forget a flight; what it leaves open no longer belongs to it."""
        self._flights.pop(flight.assignments[0].assignment_id, None)
        for trial in flight.open:
            if self._of_trial.get(trial) is flight:
                del self._of_trial[trial]

    def of_trial(self, trial: int) -> Flight | None:
        return self._of_trial.get(trial)

    def admit(self, flight: Flight, events: Sequence[RankEvent | Event]) -> list[Event]:
        """The events that count: those of attempts which are open in this flight."""
        return [
            event
            for event in events
            if not isinstance(event, Unrecorded) and self._admit(flight, event)
        ]

    def _admit(self, flight: Flight, event: Event) -> bool:
        if not isinstance(event, OfAttempt):
            return isinstance(event, Notice)
        if flight.open.get(event.trial) != event.attempt:
            return False
        if isinstance(event, AttemptStarted):
            flight.started[event.trial] = event.at_s
        elif isinstance(event, AttemptFinished):
            del flight.open[event.trial]
            flight.started.pop(event.trial, None)
            self._of_trial.pop(event.trial, None)
        return True


def evictions(flight: Flight, now_s: float) -> list[AttemptFinished]:
    """What is to be recorded when the worker of ``flight`` is lost: started attempts only."""
    return [
        AttemptFinished(
            trial=trial,
            attempt=flight.open[trial],
            outcome="evicted",
            at_s=now_s,
            duration_s=max(0.0, now_s - started),
        )
        for trial, started in flight.started.items()
    ]
