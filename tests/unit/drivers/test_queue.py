"""What goes out next: repeated trials first, attempts numbered on, nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from jupyter_ddl.drivers.queue import TrialQueue
from jupyter_ddl.drivers.source import MapSource, NotYet
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
from jupyter_ddl.search.study import Proposal
from jupyter_ddl.verbs.map import Map

N_ITEMS = 5


def spec() -> RunSpec:
    verb = Map(over="items", element="item", n_items=N_ITEMS)
    return RunSpec("r1", verb, Program("item", "In [1]"), 3, "test", 0.0)


def queue(created: list[int], source: MapSource | None = None) -> TrialQueue:
    return TrialQueue(
        spec(), source or MapSource(N_ITEMS), 0, lambda p: created.append(p.number), lambda: None
    )


def sent(batch: tuple[Sequence[object], bool]) -> list[tuple[int, int]]:
    return [(trial.trial, trial.attempt) for trial in batch[0]]  # type: ignore[attr-defined]


def test_new_trials_are_created_once_and_then_nothing_is_left() -> None:
    created: list[int] = []
    trials = queue(created)
    assert [sent(trials.next_batch(2)) for _ in range(6)] == [
        [(0, 1)],
        [(1, 1)],
        [(2, 1)],
        [(3, 1)],
        [(4, 1)],
        [],
    ]
    assert created == list(range(N_ITEMS))
    assert trials.is_empty


def test_what_was_never_begun_goes_out_first_and_a_retry_alone_in_a_fresh_process() -> None:
    trials = queue([])
    first, _ = trials.next_batch(2)
    second, _ = trials.next_batch(2)
    trials.put_back([*first, *second])
    trials.retry(Proposal(9, {}))
    batch, is_fresh = trials.next_batch(2)
    assert ([(t.trial, t.attempt) for t in batch], is_fresh) == ([(9, 1)], True)
    assert sent(trials.next_batch(2)) == [(0, 2)]
    assert sent(trials.next_batch(2)) == [(1, 2)]
    assert sent(trials.next_batch(2)) == [(2, 1)]


def test_short_trials_travel_in_growing_batches_and_two_deep() -> None:
    trials = queue([])
    assert trials.depth == 1
    for size in (1, 2):
        trials.observe(size, 0.01)
    assert trials.depth == 2
    assert len(trials.next_batch(1)[0]) == 3  # its slot's share of what is left


def test_seeds_depend_on_the_run_and_the_trial_and_not_on_the_attempt() -> None:
    one, other = queue([]), queue([])
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
    created: list[int] = []
    source = MapSource(N_ITEMS)
    asyncio.run(source.replay([None] * 3))  # type: ignore[list-item]
    trials = queue(created, source)
    trials.adopt(state)
    seen = [pair for _ in range(4) for pair in sent(trials.next_batch(1))]
    assert seen == [(1, 3), (2, 1), (3, 1), (4, 1)]
    assert created == [3, 4]


class SlowSource(MapSource):
    """Needs some work before every answer."""

    def __init__(self) -> None:
        super().__init__(2)
        self.n_worked = 0

    def ask(self) -> object:  # type: ignore[override]
        if self.n_worked > self._next:
            return super().ask()
        return NotYet(work=self.work)

    async def work(self) -> None:
        await asyncio.sleep(0)
        self.n_worked += 1


def test_a_slow_sampler_is_awaited_once_and_wakes_the_driver() -> None:
    async def work() -> list[tuple[int, int]]:
        woken = asyncio.Event()
        source = SlowSource()
        trials = TrialQueue(spec(), source, 0, lambda _: None, woken.set)  # type: ignore[arg-type]
        assert sent(trials.next_batch(1)) == []
        assert sent(trials.next_batch(1)) == []
        await asyncio.wait_for(woken.wait(), 5)
        assert source.n_worked == 1
        return sent(trials.next_batch(1))

    assert asyncio.run(work()) == [(0, 1)]
