"""How gradients in sixteen bits are scaled, in checkpoints."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.ranks.training import PRIVATE_KEY, Training

_CPU = torch.device("cpu")
_HALF = {"accumulate": 1, "clip_norm": None, "amp": "fp16"}
_mse = torch.nn.functional.mse_loss


def _model() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Identity())
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def _batch() -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(5, 3, generator=generator), torch.randn(5, 2, generator=generator)


def _scaled(training: Training) -> tuple[Any, Any]:
    model, optimizer = _model()
    return model, training.prepare_step(model, _half_mse, optimizer, _HALF, _CPU)


def _half_mse(output: Any, target: Any) -> Any:
    return _mse(output.float(), target)


@pytest.mark.parametrize("name", ["ddp", "pipeline"])
def test_a_checkpoint_holds_how_gradients_in_sixteen_bits_are_scaled(
    alone: None, name: str
) -> None:
    """By any strategy for any other; without it a run begins anew to look for a scale."""
    training = Training(RankPlace("g", strategy=name), seed=3)
    model, step = _scaled(training)
    for wrong in (1.0, float("inf"), 1.0):
        x, y = _batch()
        step(x, wrong * y)
    saved = training.plain_state({"model": model}, keep=True)
    state = step.scale_state()
    assert saved[PRIVATE_KEY]["scales"] == [state]
    assert (state["n_finite"], state["scale"] < 2.0**16) == (1, True)
    for other in ("ddp", "pipeline"):
        for comes_first in (True, False):
            later = Training(RankPlace("g", strategy=other), seed=3)
            if comes_first:
                later.restore(dict(saved))
            _, again = _scaled(later)
            if not comes_first:
                later.restore(dict(saved))
            assert again.scale_state() == state
    model, optimizer = _model()
    plain = Training(None, 3).prepare_step(model, _mse, optimizer, {**_HALF, "amp": None}, _CPU)
    plain.restore_scale({"scale": 2.0, "n_finite": 0})
    assert plain.scale_state() is None
