"""Which trial a candidate is, from one controller to the next and from one cell to the next."""

from __future__ import annotations

from jupyter_ddl.driving.fit_candidates import Candidates
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    FoldFinished,
    RunStarted,
    RunSubmitted,
    StopRequested,
)
from jupyter_ddl.protocol.fit import FitCandidate
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.verbs.fit import Fit

SPEC = RunSpec("f1", Fit(), Program("", "fit"), 7, "local", 1000.0)
THREE = tuple(FitCandidate({"c": c}, 2) for c in (0, 1, 2))


class Ledger:
    """What the controllers of one run have recorded."""

    def __init__(self) -> None:
        self.events: list[Event] = [RunSubmitted(SPEC, 1000.0)]
        self._session = 0

    def controller(self) -> Candidates:
        """Another one takes the run up."""
        self._session += 1
        candidates = Candidates(fold_all(self.events), "score")
        for event in self.events:
            candidates.remember(event)
        self.events.append(RunStarted(1001.0, self._session, 2, 2, 42))
        return candidates

    def feed(self, candidates: Candidates, cell_id: str, n_before: int = 0) -> list[int]:
        numbers, events = candidates.add(THREE, n_before, cell_id, at_s=1001.0)
        self.events += events
        return numbers

    def stop(self, candidates: Candidates, trial: int, cell_id: str) -> None:
        begun = AttemptStarted(trial, 1, 1002.0, "w", 7, "a.log", 0)
        self.events += candidates.started(trial, begun)
        asked = StopRequested(1003.0, "now", trial, "me", cell_id)
        self.events += [asked, *candidates.given_up([trial], 1003.0)]


def fold(trial: int, number: int) -> FoldFinished:
    return FoldFinished(trial, number, bytes([trial, number]), 1003.0, 1.0, score=0.5)


def left_out(candidates: Candidates, numbers: list[int]) -> list[int]:
    return [number for number in numbers if candidates.is_left_out(number)]


def test_a_stopped_candidate_stays_so_for_the_controller_that_follows() -> None:
    ledger = Ledger()
    first = ledger.controller()
    assert ledger.feed(first, "a") == [0, 1, 2]
    ledger.stop(first, 1, "a")
    second = ledger.controller()
    numbers = ledger.feed(second, "a")
    assert (numbers, left_out(second, numbers)) == ([0, 1, 2], [1])
    third = ledger.controller()
    assert left_out(third, ledger.feed(third, "a")) == [1]
    outcomes = [event for event in ledger.events if isinstance(event, AttemptFinished)]
    assert [(event.trial, event.outcome) for event in outcomes] == [(1, "cancelled")]


def test_another_execution_of_the_cell_computes_it_and_may_stop_it_again() -> None:
    ledger = Ledger()
    first = ledger.controller()
    ledger.feed(first, "a")
    ledger.stop(first, 1, "a")
    resumed = ledger.controller()
    numbers = ledger.feed(resumed, "b")
    assert (numbers, left_out(resumed, numbers)) == ([0, 3, 2], [])
    after = ledger.controller()
    numbers = ledger.feed(after, "b")
    assert (numbers, left_out(after, numbers)) == ([0, 3, 2], [])
    ledger.stop(after, 3, "b")
    last = ledger.controller()
    numbers = ledger.feed(last, "b")
    assert (numbers, left_out(last, numbers)) == ([0, 3, 2], [3])


def test_what_is_complete_is_not_recorded_again() -> None:
    ledger = Ledger()
    first = ledger.controller()
    ledger.feed(first, "a")
    for number in range(2):
        ledger.events += first.finished(fold(0, number), 1003.0)
    assert fold_all(ledger.events).trials[0].state == "complete"
    second = ledger.controller()
    ledger.feed(second, "a")
    assert [second.finished(fold(0, number), 1003.0) for number in range(2)] == [[], []]
    assert second.finished(fold(1, 0), 1003.0) != []


def test_later_candidates_keep_their_trials_behind_one_that_was_made_anew() -> None:
    ledger = Ledger()
    first = ledger.controller()
    ledger.feed(first, "a")
    ledger.stop(first, 0, "a")
    resumed = ledger.controller()
    assert ledger.feed(resumed, "b") + ledger.feed(resumed, "b", 3) == [3, 1, 2, 4, 5, 6]
    after = ledger.controller()
    assert ledger.feed(after, "b") + ledger.feed(after, "b", 3) == [3, 1, 2, 4, 5, 6]
