"""Layers that a plan names; a mesh of one rank cuts nothing, and refuses the same."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from jupyter_ddl.ranks.collective_waits import collective_waits
from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.base import Share
from jupyter_ddl.ranks.strategies.fsdp.strategy import FullySharded

pytestmark = pytest.mark.usefixtures("alone")

_CPU = torch.device("cpu")


def _model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"layers.*": "colwise"}, r"'layers.\*' matches no module of Sequential; .* 0, 1, 2"),
        ({"*": "colwise"}, r"matches '1', a Tanh; expected torch.nn.Linear"),
    ],
)
def test_a_plan_that_names_no_layer_is_refused(plan: dict[str, str], message: str) -> None:
    made = FullySharded(mesh="tp=1", tp_plan=json.dumps(plan))
    with pytest.raises(ReportError, match=message):
        made.wrap(_model(), _CPU)


def test_ranks_that_cut_layers_among_them_are_given_the_same_samples() -> None:
    made = FullySharded(mesh="dp=2,tp=2", tp_plan="{}")
    assert [made.share(rank, 4) for rank in range(4)] == [
        Share(0, 2), Share(0, 2), Share(1, 2), Share(1, 2),
    ]  # fmt: skip
    assert FullySharded().share(3, 4) == Share(3, 4)


class _Viewing(nn.Sequential):  # type: ignore[misc]  # torch is not followed
    def forward(self, x: Any) -> Any:
        return {"logits": super().forward(x).view(-1)}


def test_outputs_of_sharded_models_may_be_changed_in_place() -> None:
    """Torch warns of views, which would lose its hook, and a cell can do nothing about them."""
    model = _Viewing(nn.Linear(3, 4), nn.Linear(4, 2))
    made = FullySharded(mesh="dp_shard=1")
    wrapped = made.wrap(model, _CPU)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        output = wrapped(torch.ones(2, 3))["logits"]
        output += 1
        output.sum().backward()
    assert wrapped[0].weight.grad is not None
    assert "_without_views" not in str(made.unwrap(wrapped)._forward_hooks)


def test_the_exchange_between_cut_layers_counts_as_not_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collective_waits, "misses_some", False)
    FullySharded(mesh="dp=1").wrap(_model(), _CPU)
    assert not collective_waits.misses_some
    FullySharded(mesh="tp=1", tp_plan='{"0": "colwise", "2": "rowwise"}').wrap(_model(), _CPU)
    assert collective_waits.misses_some
