"""Where a model is cut into the stages of a pipeline."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch import nn

from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.pipeline.cutting import (
    balanced,
    balanced_within,
    chained,
    check_cut,
    fitting,
    is_chain,
    kept,
    measured,
    parts_of,
    starts_named,
)


class _Blocks(nn.Module):  # type: ignore[misc]  # torch is not followed
    def __init__(self, *, residual: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 4)
        self.blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(4, 11))
        self._residual = residual

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(x) if self._residual else block(x)
        return self.head(x)


def _worst(costs: list[float], starts: tuple[int, ...]) -> float:
    ends = (*starts[1:], len(costs))
    return max(sum(costs[start:end]) for start, end in zip(starts, ends, strict=True))


def test_no_other_cut_has_a_cheaper_dearest_stage() -> None:
    numbers = random.Random(3)
    for _ in range(40):
        costs = [numbers.random() for _ in range(numbers.randint(1, 7))]
        n_stages = numbers.randint(1, len(costs))
        all_cuts = (
            (0, *inner) for inner in itertools.combinations(range(1, len(costs)), n_stages - 1)
        )
        cut = balanced(costs, n_stages)
        assert len(set(cut)) == n_stages
        assert _worst(costs, cut) == pytest.approx(min(_worst(costs, each) for each in all_cuts))


def test_a_row_of_costs_is_not_cut_into_more_groups_than_it_has() -> None:
    with pytest.raises(ValueError, match="2 costs can't be cut into 3 groups"):
        balanced([1.0, 2.0], 3)


def test_of_the_cuts_that_keep_limits_no_other_one_has_a_cheaper_dearest_stage() -> None:
    numbers = random.Random(4)
    n_none = n_moved = 0
    for _ in range(400):
        n_costs = numbers.randint(1, 7)
        costs = [numbers.random() for _ in range(n_costs)]
        sizes = [numbers.randint(0, 9) for _ in range(n_costs)]
        n_stages = numbers.randint(1, n_costs)
        limits = [float(numbers.randint(5, 25)) for _ in range(n_stages)]
        all_cuts = (
            (0, *inner) for inner in itertools.combinations(range(1, n_costs), n_stages - 1)
        )
        keeping = [cut for cut in all_cuts if _keeps(sizes, cut, limits)]
        found = balanced_within(costs, sizes, limits)
        if not keeping:
            n_none += 1
            assert found is None
            continue
        assert found in keeping
        least = min(_worst(costs, cut) for cut in keeping)
        assert _worst(costs, found) == pytest.approx(least)
        n_moved += found != balanced(costs, n_stages)
    assert min(n_none, n_moved) > 10


def _keeps(sizes: list[int], starts: tuple[int, ...], limits: list[float]) -> bool:
    ends = (*starts[1:], len(sizes))
    held = [sum(sizes[start:end]) for start, end in zip(starts, ends, strict=True)]
    return all(each <= limit for each, limit in zip(held, limits, strict=True))


def test_where_no_cut_keeps_the_limits_one_is_taken_that_goes_little_beyond() -> None:
    costs, sizes = [1.0, 1.0, 4.0, 1.0], [90, 90, 10, 10]
    assert balanced(costs, 2) == (0, 2)
    assert balanced_within(costs, sizes, [50.0, 50.0]) is None
    assert fitting(costs, sizes, [50.0, 50.0]) == (0, 1)
    assert fitting(costs, sizes, [0.0, 0.0]) == (0, 1)
    assert fitting(costs, sizes, [200.0, 200.0]) == (0, 2)


def test_what_only_holds_others_is_replaced_by_what_it_holds() -> None:
    names = [part.name for part in parts_of(_Blocks())]
    assert names == ["embed", "blocks.0", "blocks.1", "blocks.2", "head.0", "head.1"]


def test_a_model_without_children_is_no_chain() -> None:
    with pytest.raises(ReportError, match=r"between its children, and Linear has none"):
        parts_of(nn.Linear(2, 2))


def test_a_forward_that_does_more_than_call_its_children_is_told_from_one_that_does_not() -> None:
    x = torch.tensor([[1, 2, 3]])
    for residual in (False, True):
        model = _Blocks(residual=residual)
        assert is_chain(model, parts_of(model), x) is not residual


def test_each_part_is_timed() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    costs = measured(parts_of(model), torch.ones(2, 4))
    assert len(costs) == 2
    assert all(0 < cost < float("inf") for cost in costs)


def test_what_is_no_tensor_between_parts_is_refused_by_the_part_that_made_it() -> None:
    model = nn.Sequential(nn.LSTM(3, 4), nn.Linear(4, 1))
    with pytest.raises(ReportError, match=r"'0' \(LSTM\) returned a tuple"):
        list(chained(parts_of(model), torch.ones(5, 3)))


def test_stages_start_where_split_says() -> None:
    parts = parts_of(_Blocks())
    assert starts_named(parts, ["blocks.1", "head"], 3) == (0, 2, 4)
    assert starts_named(parts, ["blocks"], 2) == (0, 1)


@pytest.mark.parametrize(
    ("names", "n_stages", "text"),
    [
        (["block.1"], 2, "names 'block.1', which is no part of the model"),
        (["blocks.2", "blocks.1"], 3, "'blocks.1' does not come after"),
        (["embed"], 2, "'embed' does not come after"),
        (["head"], 3, "makes 2 stages; expected 3, which 2 names make"),
    ],
)
def test_a_split_that_can_not_be_is_refused(names: list[str], n_stages: int, text: str) -> None:
    with pytest.raises(ReportError, match=text):
        starts_named(parts_of(_Blocks()), names, n_stages)


def test_tied_weights_are_refused_where_the_cut_parts_them_only() -> None:
    model = nn.Sequential(nn.Embedding(7, 4), nn.Tanh(), nn.Linear(4, 7, bias=False))
    model[2].weight = model[0].weight
    check_cut(parts_of(model), (0,))
    with pytest.raises(ReportError, match=r"'0.weight' and '2.weight', which are one parameter"):
        check_cut(parts_of(model), (0, 1))


def test_what_parts_keep_for_the_backward_pass_is_counted_without_parameters() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    x = torch.ones(5, 3)
    # A linear layer keeps its input, a tanh its output.
    assert kept(parts_of(model), x) == (5 * 3 * 4, 5 * 4 * 4, 5 * 4 * 4)
    assert all(each.grad is None for each in model.parameters())
    assert not x.requires_grad
    assert kept(parts_of(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 2))), x)[1] == 5 * 3 * 4
