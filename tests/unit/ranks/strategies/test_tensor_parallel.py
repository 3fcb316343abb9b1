"""Layers that a plan names; a mesh of one rank cuts nothing, and refuses the same."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.base import Share
from jupyter_ddl.ranks.strategies.fully_sharded import FullySharded

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
