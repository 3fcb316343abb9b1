"""Which samples ranks see, also when their number changes in the middle of an epoch."""

from __future__ import annotations

from collections import Counter

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.ranks.loader import consumed_after, n_samples_of_rank, order, samples_of_rank


def _batches(n: int, consumed: int, world: int, batch: int, *, drop_last: bool) -> list[list[int]]:
    """What all ranks together are given, one list per step; every rank has equally many steps."""
    indices = order(n, 7, 3, shuffle=True)
    count = n_samples_of_rank(n, consumed, world, batch, drop_last=drop_last)
    of_ranks = [
        samples_of_rank(indices, consumed, rank, world, count).tolist() for rank in range(world)
    ]
    assert {len(each) for each in of_ranks} == {count}
    return [
        [sample for mine in of_ranks for sample in mine[at : at + batch]]
        for at in range(0, count, batch)
    ]


@given(
    n=st.integers(0, 120),
    batch=st.integers(1, 7),
    rounds=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6)), max_size=6),
    last_world=st.integers(1, 5),
)
def test_every_sample_is_seen_once_however_the_world_size_changes(
    n: int, batch: int, rounds: list[tuple[int, int]], last_world: int
) -> None:
    seen: Counter[int] = Counter()
    consumed = 0
    for world, n_steps in rounds:
        steps = _batches(n, consumed, world, batch, drop_last=False)[:n_steps]
        seen.update(sample for step in steps for sample in step)
        consumed = consumed_after(n, consumed, len(steps), world, batch)
    for step in _batches(n, consumed, last_world, batch, drop_last=False):
        seen.update(step)
    assert set(seen) == set(range(n))
    # Only the last step of an epoch is filled up, and with fewer samples than there are ranks.
    largest = max([last_world, *(world for world, _ in rounds)])
    assert sum(seen.values()) - n < largest


@given(n=st.integers(0, 120), batch=st.integers(1, 7), world=st.integers(1, 5))
def test_dropping_the_last_batch_loses_less_than_one_batch_of_all_ranks(
    n: int, batch: int, world: int
) -> None:
    steps = _batches(n, 0, world, batch, drop_last=True)
    seen = [sample for step in steps for sample in step]
    assert len(set(seen)) == len(seen)
    assert all(len(step) == world * batch for step in steps)
    assert n - len(seen) < world * batch


@given(n=st.integers(1, 60), batch=st.integers(1, 5), stop=st.integers(0, 9))
def test_one_rank_goes_on_with_the_order_that_three_ranks_began(
    n: int, batch: int, stop: int
) -> None:
    begun = _batches(n, 0, 3, batch, drop_last=False)[:stop]
    consumed = consumed_after(n, 0, len(begun), 3, batch)
    rest = [sample for step in _batches(n, consumed, 1, batch, drop_last=False) for sample in step]
    assert rest == order(n, 7, 3, shuffle=True)[consumed:].tolist()


def test_the_order_follows_from_seed_and_epoch_alone() -> None:
    first = order(50, 7, 3, shuffle=True)
    assert sorted(first.tolist()) == list(range(50))
    numpy.random.seed(1)
    assert first.tolist() == order(50, 7, 3, shuffle=True).tolist()
    for seed, epoch in ((8, 3), (7, 4)):
        assert first.tolist() != order(50, seed, epoch, shuffle=True).tolist()
    assert order(5, 7, 3, shuffle=False).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", [0, 2**32 - 1, 2**64 - 1, 2**70])
def test_any_seed_makes_an_order(seed: int) -> None:
    assert sorted(order(9, seed, 2**40, shuffle=True).tolist()) == list(range(9))
