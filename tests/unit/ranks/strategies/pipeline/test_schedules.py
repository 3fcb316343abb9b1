"""How stages of a pipeline take turns, and how long they are idle at best."""

from __future__ import annotations

import pytest

from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.pipeline.schedules import (
    Action,
    Span,
    check_microbatches,
    ideal_spans,
    idle_share,
    order_of_single,
    stages_per_rank,
)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("n_ranks", "n_microbatches"), [(1, 4), (2, 8), (4, 4), (4, 8), (4, 32)])
def test_single_stages_are_idle_for_what_the_formula_says(
    schedule: str, n_ranks: int, n_microbatches: int
) -> None:
    spans = ideal_spans(order_of_single(schedule, n_ranks, n_microbatches), n_ranks)
    assert len({span.action for span in spans}) == 2 * n_ranks * n_microbatches
    expected = (n_ranks - 1) / (n_microbatches + n_ranks - 1)
    assert idle_share(spans, n_ranks) == pytest.approx(expected)


def test_one_forward_one_backward_holds_fewer_micro_batches_than_gpipe() -> None:
    first = order_of_single("1f1b", 2, 4)[0]
    assert [f"{each.kind[0]}{each.microbatch}" for each in first] == [
        "f0", "f1", "b0", "f2", "b1", "f3", "b2", "b3",
    ]  # fmt: skip


def test_the_weight_half_of_a_backward_pass_fills_what_waits() -> None:
    def order(*, halved: bool) -> dict[int, list[Action]]:
        last = [Action(1, "forward", 0), Action(1, "backward", 0)]
        if halved:
            last = [Action(1, "forward", 0), Action(1, "input", 0), Action(1, "weight", 0)]
        return {0: [Action(0, "forward", 0), Action(0, "backward", 0)], 1: last}

    # The first stage goes on when the second one has the gradient of its input.
    assert max(span.end for span in ideal_spans(order(halved=False), 2)) == 6.0
    assert max(span.end for span in ideal_spans(order(halved=True), 2)) == 5.0


def test_an_order_that_waits_for_itself_is_found() -> None:
    order = {0: [Action(0, "backward", 0), Action(0, "forward", 0)]}
    with pytest.raises(ValueError, match="waits for itself"):
        ideal_spans(order, 1)


def test_ranks_that_computed_nothing_were_idle() -> None:
    spans = [Span(0, Action(0, "forward", 0), 2.0, 4.0)]
    assert idle_share(spans, 2) == pytest.approx(0.5)
    assert idle_share([], 2) == 0.0


def test_two_stages_are_on_a_rank_where_the_schedule_has_use_for_them() -> None:
    assert stages_per_rank("1f1b", 8, 4) == 1
    assert stages_per_rank("interleaved", 8, 4) == 2
    assert stages_per_rank("zerobubble", 8, 4) == 2
    assert stages_per_rank("zerobubble", 7, 4) == 1


def test_fewer_parts_than_stages_are_refused() -> None:
    with pytest.raises(ReportError, match=r"has 4 ranks; expected at most -n 3"):
        stages_per_rank("gpipe", 3, 4)
    with pytest.raises(ReportError, match="needs 8 parts on 4 ranks, and the model has 7"):
        stages_per_rank("interleaved", 7, 4)


def test_rounds_that_are_equal_are_accepted() -> None:
    for n_asked in (4, 5, 6, 7, 8, 10, 12):
        check_microbatches(n_asked, "interleaved", 4)
