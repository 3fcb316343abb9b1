"""How many trials travel together."""

from __future__ import annotations

import pytest

from jupyter_ddl.studies import BatchSizer, reuse_process


def settled(trial_s: float, overhead_s: float = 0.0) -> BatchSizer:
    sizer = BatchSizer()
    for _ in range(40):
        size = sizer.next_size()
        sizer.observe(size, overhead_s + size * trial_s)
    return sizer


@pytest.mark.parametrize("trial_s", [0.001, 0.003, 0.02, 0.09, 0.15, 0.3, 0.9])
def test_batches_settle_between_a_fifth_of_a_second_and_one_second(trial_s: float) -> None:
    size = settled(trial_s).next_size()

    assert size == 1 or 0.2 <= size * trial_s <= 1.0


def test_empty_trials_travel_256_at_a_time_and_long_ones_alone() -> None:
    assert settled(1e-5).next_size() == 256
    assert settled(0.0).next_size() == 256
    assert settled(1.5).next_size() == 1


def test_one_long_trial_ends_batching_at_once() -> None:
    sizer = settled(0.001)
    sizer.observe(1, 1.2)

    assert sizer.next_size() == 1


def test_slower_batches_shrink() -> None:
    sizer = settled(0.005)
    assert sizer.next_size() == 64

    sizer.observe(64, 2.5)
    assert sizer.next_size() == 32
    sizer.observe(64, 2.5)  # was under way already
    assert sizer.next_size() == 32


def test_batches_sent_before_the_last_step_up_do_not_count_again() -> None:
    sizer = BatchSizer()
    for _ in range(8):  # eight slots return their first single trial
        sizer.observe(1, 0.001)

    assert sizer.next_size() == 2


def test_last_trials_are_shared_among_the_slots() -> None:
    sizer = settled(0.001)

    assert sizer.next_size(n_waiting=10, n_slots=4) == 3
    assert sizer.next_size(n_waiting=1, n_slots=4) == 1
    assert sizer.next_size(n_waiting=0, n_slots=4) == 1
    assert sizer.next_size(n_waiting=10_000, n_slots=4) == 256


def test_short_trials_reuse_their_process() -> None:
    assert BatchSizer().median_trial_s is None
    assert reuse_process(None)
    assert reuse_process(settled(0.01).median_trial_s)
    assert not reuse_process(settled(1.5).median_trial_s)
