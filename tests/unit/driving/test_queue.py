"""What goes out next: repeated trials first, attempts numbered on, nothing twice."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from jupyter_ddl.driving.machine import Think
from jupyter_ddl.driving.queue import MisplacedTrialError, TrialQueue
from jupyter_ddl.driving.sources import MapSource, NotYet
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    RunStarted,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.studies.study import Proposal
from jupyter_ddl.verbs.base import Verb
from jupyter_ddl.verbs.map import Map
from jupyter_ddl.verbs.search import Search

N_ITEMS = 5


def spec() -> RunSpec:
    verb = Map(over="items", element="item", n_items=N_ITEMS)
    return RunSpec("r1", verb, Program("item", "In [1]"), 3, "test", 0.0)


def queue(source: MapSource | None = None) -> TrialQueue:
    return TrialQueue(spec(), source or MapSource(N_ITEMS), 0)


def sent(batch: tuple[Sequence[object], bool]) -> list[tuple[int, int]]:
    return [(trial.trial, trial.attempt) for trial in batch[0]]  # type: ignore[attr-defined]


def test_new_trials_are_created_once_and_then_nothing_is_left() -> None:
    trials = queue()
    assert [sent(trials.next_batch(2)) for _ in range(6)] == [
        [(0, 1)],
        [(1, 1)],
        [(2, 1)],
        [(3, 1)],
        [(4, 1)],
        [],
    ]
    assert [trial.number for trial in trials.created] == list(range(N_ITEMS))
    assert trials.is_empty


def test_what_was_never_begun_goes_out_first_and_a_retry_alone_in_a_fresh_process() -> None:
    trials = queue()
    first, _ = trials.next_batch(2)
    second, _ = trials.next_batch(2)
    trials.next_batch(2)
    trials.put_back([*first, *second])
    trials.recording(2)
    trials.retry(Proposal(2, {}))
    batch, is_fresh = trials.next_batch(2)
    assert ([(t.trial, t.attempt) for t in batch], is_fresh) == ([(2, 2)], True)
    assert sent(trials.next_batch(2)) == [(0, 2)]
    assert sent(trials.next_batch(2)) == [(1, 2)]
    assert sent(trials.next_batch(2)) == [(3, 1)]


def test_a_trial_is_in_one_place_at_a_time() -> None:
    trials = queue()
    first, _ = trials.next_batch(1)
    with pytest.raises(MisplacedTrialError, match="trial 0 goes from sent to retry"):
        trials.retry(Proposal(0, {}))
    trials.recording(0)
    with pytest.raises(MisplacedTrialError, match="trial 0 goes from recording to again"):
        trials.put_back(first)
    trials.ended(0)
    with pytest.raises(MisplacedTrialError, match="trial 0 is over, and it was None"):
        trials.ended(0)


def test_a_delayed_trial_keeps_the_queue_from_being_over_and_goes_out_when_it_is_due() -> None:
    trials = queue(MapSource(1))
    trials.next_batch(1)
    assert sent(trials.next_batch(1)) == []
    assert trials.is_empty
    trials.recording(0)
    trials.retry(Proposal(0, {}), 7.0)
    assert not trials.is_empty
    assert not trials.may_have_more, "nothing is asked for while it waits"
    assert trials.due_s == 7.0
    trials.release(6.9)
    assert trials.due_s == 7.0, "not yet"
    trials.release(7.0)
    assert sent(trials.next_batch(1)) == [(0, 2)]


def test_short_trials_travel_in_growing_batches_and_two_deep() -> None:
    trials = queue()
    assert trials.depth == 1
    for size in (1, 2):
        trials.observe(size, 0.01)
    assert trials.depth == 2
    assert len(trials.next_batch(1)[0]) == 3  # its slot's share of what is left


@pytest.mark.parametrize(
    ("verb", "isolate", "is_fresh"),
    [
        (Map(over="items", element="item", n_items=N_ITEMS), False, False),
        (Map(over="items", element="item", n_items=N_ITEMS), True, True),
        (Search("score", "max", N_ITEMS, {}), False, True),
    ],
)
def test_long_items_share_a_process_and_long_trials_do_not(
    verb: Verb, isolate: bool, is_fresh: bool
) -> None:
    own = msgspec.structs.replace(spec(), verb=verb, isolate=isolate)
    trials = TrialQueue(own, MapSource(N_ITEMS), 0)
    trials.observe(1, 60.0)
    assert trials.next_batch(1)[1] is is_fresh


def test_seeds_depend_on_the_run_and_the_trial_and_not_on_the_attempt() -> None:
    one, other = queue(), queue()
    first, _ = one.next_batch(1)
    again, _ = other.next_batch(1)
    one.put_back(first)
    repeated, _ = one.next_batch(1)
    following, _ = one.next_batch(1)
    assert first[0].seed == again[0].seed == repeated[0].seed
    assert following[0].seed != first[0].seed


def test_a_resumed_run_takes_up_what_was_unfinished_with_higher_attempts() -> None:
    state = fold_all(
        [
            RunSubmitted(spec(), 0.0),
            RunStarted(0.0, 1, 1, 1, 7),
            *(TrialCreated(number, {}, 0.0) for number in range(3)),
            AttemptStarted(0, 1, 1.0, "w0", 1, "log", 0),
            AttemptFinished(0, 1, "complete", 2.0, 1.0),
            AttemptStarted(1, 1, 1.0, "w0", 1, "log", 0),
            AttemptFinished(1, 1, "evicted", 2.0, 1.0),
            AttemptStarted(1, 2, 3.0, "w0", 1, "log", 0),
            RunStarted(5.0, 2, 1, 1, 8),
        ]
    )
    source = MapSource(N_ITEMS)
    source.replay([None] * 3)  # type: ignore[list-item]
    trials = queue(source)
    trials.adopt(state)
    seen = [pair for _ in range(4) for pair in sent(trials.next_batch(1))]
    assert seen == [(1, 3), (2, 1), (3, 1), (4, 1)]
    assert [trial.number for trial in trials.created] == [3, 4]


class SlowSource(MapSource):
    """Needs some work before every answer."""

    def __init__(self) -> None:
        super().__init__(2)
        self.n_worked = 0

    def ask(self) -> object:  # type: ignore[override]
        if self.n_worked > self._next:
            return super().ask()
        return NotYet(work=Think())


def test_what_a_slow_sampler_needs_is_told_and_then_it_is_asked_again() -> None:
    source = SlowSource()
    trials = queue(source)
    assert sent(trials.next_batch(1)) == []
    assert trials.work == Think()
    assert not trials.waits_for_results
    source.n_worked += 1
    assert sent(trials.next_batch(1)) == [(0, 1)]
