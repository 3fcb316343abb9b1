"""Into how many micro-batches a batch is cut: what was asked for, or what was measured as best."""

from __future__ import annotations

import pytest

from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.pipeline.microbatches import (
    Look,
    batch_s,
    choice_text,
    chosen,
    cut_text,
    held_bytes,
    possible,
    stage_limits,
)


def _look(n: int, *, begin_s: float, sample_s: float, kept: int = 100) -> Look:
    """Of two equal parts, for a batch of 64."""
    cost = begin_s + sample_s * 64 / n
    return Look(n, (0, 1), (cost, cost), (kept * 64 // n, kept * 64 // n))


def test_it_is_chosen_among_one_to_eight_for_each_rank() -> None:
    assert possible(None, "1f1b", 4, 64) == (4, 8, 16, 32)
    assert possible(None, "interleaved", 4, 11) == (4, 8)
    assert possible(5, "1f1b", 4, 64) == (5,)
    assert possible(1, "gpipe", 4, 64) == (1,)


def test_samples_for_the_statistics_of_a_norm_are_left_where_they_can_be() -> None:
    assert possible(None, "1f1b", 2, 64, 8) == (2, 4, 8)
    assert possible(None, "1f1b", 2, 12, 8) == (2,)


@pytest.mark.parametrize(
    ("n_asked", "schedule", "n_samples", "text"),
    [
        (None, "1f1b", 3, "the batch has 3 samples for 4 ranks"),
        (8, "1f1b", 7, "--microbatches 8 can't be made of a batch of 7 samples"),
        (3, "1f1b", 64, "needs a micro-batch for each rank, and --microbatches is 3 for 4 ranks"),
        (1, "zerobubble", 64, "expected at least 4, or --schedule gpipe"),
        (9, "interleaved", 64, "in 2 equal rounds, and --microbatches is 9; expected 8 or 12"),
    ],
)
def test_micro_batches_that_can_not_be_are_refused(
    n_asked: int | None, schedule: str, n_samples: int, text: str
) -> None:
    with pytest.raises(ReportError, match=text):
        possible(n_asked, schedule, 4, n_samples)


def test_a_batch_takes_what_the_slowest_rank_does_and_the_bubble() -> None:
    assert batch_s(Look(4, (0, 1), (1.0, 2.0), (0, 0)), 2) == 3 * 2.0 * (4 + 1)
    # Two stages on each rank: half of the bubble.
    assert batch_s(Look(4, (0, 1, 2, 3), (1.0,) * 4, (0,) * 4), 2) == 3 * 2.0 * (4 + 0.5)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_stages_within_their_limits_fit_into_the_memory(schedule: str) -> None:
    """A stage in front has more micro-batches on their way under 1f1b."""
    n_stages = 8 if schedule == "interleaved" else 4
    limits = stage_limits(schedule, 4, n_stages, 8, 1000.0)
    full = tuple(int(each) for each in limits)
    look = Look(8, tuple(range(n_stages)), (1.0,) * n_stages, full)
    assert 0.75 * 1000 < held_bytes(look, schedule, 4) <= 0.8 * 1000
    assert len(set(limits)) == (4 if schedule == "1f1b" else 1)


def test_a_cut_that_is_not_the_fastest_is_told_with_what_both_would_keep() -> None:
    fastest = Look(2, (0, 2), (1.0,) * 4, (9216, 9216, 0, 0))
    look = fastest._replace(starts=(0, 1))
    assert cut_text(fastest, fastest, "gpipe", 2, 3e4) == ""
    text = cut_text(look, fastest, "gpipe", 2, 3e4)
    assert "would keep up to 36 KiB for backward passes, with this one 18 KiB, of 29.3 KiB" in text


def test_many_small_ones_are_chosen_where_each_sample_costs() -> None:
    looks = [_look(n, begin_s=0.0, sample_s=0.01) for n in (2, 4, 8, 16)]
    assert chosen(looks, "1f1b", 2, 1e9).n_microbatches == 16
    looks = [_look(n, begin_s=0.02, sample_s=0.01) for n in (2, 4, 8, 16)]
    assert chosen(looks, "1f1b", 2, 1e9).n_microbatches == 4


def test_few_large_ones_are_chosen_where_each_begin_costs() -> None:
    looks = [_look(n, begin_s=0.01, sample_s=0.0) for n in (2, 4, 8, 16)]
    assert chosen(looks, "1f1b", 2, 1e9).n_microbatches == 2


def test_what_does_not_fit_into_the_memory_is_not_chosen() -> None:
    looks = [_look(n, begin_s=0.01, sample_s=0.0) for n in (2, 4, 8, 16)]
    assert held_bytes(looks[0], "1f1b", 2) == 2 * 3200
    assert held_bytes(looks[0], "gpipe", 2) == 2 * 3200
    assert held_bytes(looks[3], "1f1b", 2) == 2 * 400
    assert chosen(looks, "1f1b", 2, 4001).n_microbatches == 4
    assert chosen(looks, "1f1b", 2, 10).n_microbatches == 16  # what needs least


def test_the_choice_is_told_with_what_was_measured() -> None:
    looks = [_look(n, begin_s=0.01, sample_s=0.0) for n in (2, 4)]
    text = choice_text(looks, looks[0], "1f1b", 2, 2**30)
    assert text.startswith("--microbatches 2 is chosen: by forward passes that were timed, a batch")
    assert "with 2, " in text
    assert "with 4, without what ranks wait" in text
