"""Attempts on their way: fenced by attempt, evicted only when they had begun."""

from __future__ import annotations

import pytest

from jupyter_ddl.driving import flights
from jupyter_ddl.driving.flights import Flight, FlightBook, evictions
from jupyter_ddl.placement.gpus import Grant
from jupyter_ddl.protocol.assignment import Assignment, TrialAssignment
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    CheckpointSaved,
    EventChunk,
    Notice,
    Reported,
)


def assignment(name: str, *trials: tuple[int, int]) -> Assignment:
    parts = tuple(TrialAssignment(trial, attempt, {}, 0) for trial, attempt in trials)
    return Assignment("r1", name, "p", parts, "/run", (), "topic")


def started(trial: int, attempt: int = 1) -> AttemptStarted:
    return AttemptStarted(trial, attempt, 10.0, "w0", 1, "log", 0)


def finished(trial: int, attempt: int = 1) -> AttemptFinished:
    return AttemptFinished(trial, attempt, "complete", 11.0, 1.0)


def flown() -> tuple[FlightBook, Flight]:
    book = FlightBook()
    return book, book.launch([assignment("a1", (0, 1), (1, 1), (2, 1))], Grant(("w0",)))


def test_events_count_while_their_attempt_is_open() -> None:
    book, flight = flown()
    events = [started(0), Reported(0, 1, 0, {"a": 1.0}, 10.5), finished(0)]
    assert book.admit(flight, events) == events
    late = [finished(0), Reported(0, 1, 1, {"a": 1.0}, 10.6), started(1, attempt=2), started(9)]
    assert book.admit(flight, late) == []
    assert book.admit(flight, [started(1)]) == [started(1)]
    assert book.admit(flight, [started(1)]) == [], "it begins once"
    notice = Notice(at_s=1.0, text="hello")
    assert book.admit(flight, [notice]) == [notice]


def test_only_begun_attempts_are_evicted() -> None:
    book, flight = flown()
    book.admit(flight, [started(0), finished(0), started(1)])
    (eviction,) = evictions(flight, 12.0)
    assert isinstance(eviction, AttemptFinished)
    assert (eviction.trial, eviction.attempt, eviction.outcome) == (1, 1, "evicted")
    assert eviction.duration_s == 2.0
    assert set(flight.open) == {1, 2}


def test_a_trial_belongs_to_its_latest_flight() -> None:
    book, first = flown()
    book.land(first)
    assert (book.of_trial(1), len(book)) == (None, 0)
    second = book.launch([assignment("a2", (1, 2))], Grant(("w1",)))
    book.land(first)  # landing again takes nothing from the second
    assert book.of_trial(1) is second
    assert book.admit(second, [started(1, attempt=1)]) == []
    assert [flight.workers for flight in book] == [("w1",)]


def test_an_attempt_that_reports_without_end_has_its_end_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flights, "_MAX_RECORD_BYTES", 10_000)
    book, flight = flown()
    book.admit(flight, [started(0)])
    counted = [
        event
        for step in range(1000)
        for event in book.admit(flight, [Reported(0, 1, step, {"a": 1.0}, 10.5)])
    ]
    *reports, notice = counted
    assert isinstance(notice, Notice)
    assert "trial 0 has reported" in notice.text
    assert "what it reports from now on is" in notice.text
    assert 100 < len(reports) < 200
    assert [type(each) for each in reports] == [Reported] * len(reports)
    saved = CheckpointSaved(0, 1, 5, "trial-0/step-5-a1.ckpt", 10, 10.6)
    ends = [saved, finished(0)]
    assert book.admit(flight, [Notice(1.0, "x" * 100), *ends]) == ends, "what it goes on from"


def test_chunks_far_ahead_are_not_kept_and_asked_for_again() -> None:
    inbox = flights.ChunkInbox()
    for number in range(10**6, 10**6 + 10):
        assert inbox.add(EventChunk("r1", "a1", number, (started(0),))) == ()
    assert not inbox._early
    assert inbox.missing(10**6)
    assert inbox.add(EventChunk("r1", "a1", 0, (started(0),))) == [started(0)]
