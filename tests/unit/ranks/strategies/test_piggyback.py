"""Numbers that travel with gradients: whose model has them, and what is left of them there."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
import torch

from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.ranks.strategies.piggyback import Piggyback
from jupyter_ddl.ranks.training import Training

_CPU = torch.device("cpu")
_SETTINGS = {"accumulate": 2, "clip_norm": 1.0, "amp": None}


def _mixed() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2).double())


class _Scripted(torch.nn.Linear):  # type: ignore[misc]  # torch is not followed
    """Its parameters can't be added to, as those of a scripted module."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.__dict__["_parameters"] = MappingProxyType(self._parameters)


def _frozen() -> Any:
    return torch.nn.Linear(2, 2).requires_grad_(False)


@pytest.mark.parametrize(
    ("model", "is_there"),
    [
        (torch.nn.Linear(2, 2), True),
        (torch.nn.Linear(2, 2).double(), True),
        (torch.compile(torch.nn.Linear(2, 2), backend="eager"), True),
        (torch.nn.Linear(2, 2).bfloat16(), False),
        (_mixed(), False),
        (_frozen(), False),
        (_Scripted(2, 2), False),
    ],
    ids=["32 bits", "64 bits", "compiled", "16 bits", "mixed", "frozen", "scripted"],
)
def test_it_shares_a_bucket_of_exact_gradients_or_is_not_there(model: Any, is_there: bool) -> None:
    assert (Piggyback.of(model, _CPU) is not None) is is_there
    assert Piggyback.of(model, torch.device("meta")) is None


def test_nothing_of_it_is_in_the_model_or_what_is_saved(alone: None) -> None:
    model = torch.nn.Linear(3, 2)
    names = [name for name, _ in model.named_parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = Training(RankPlace("piggyback"), 0)
    step = training.prepare_step(model, torch.nn.functional.mse_loss, optimizer, _SETTINGS, _CPU)
    x, y = torch.ones(5, 3), torch.zeros(5, 2)
    expected = torch.nn.functional.mse_loss(model(x), y).item()
    assert step(x, y).item() == pytest.approx(expected)
    assert step(x[:2], y[:2]).item() < expected  # another number of samples
    assert [name for name, _ in model.named_parameters()] == names
    assert list(training.plain_state({"model": model}, keep=True)["model"]) == names


def test_a_model_that_ddp_refuses_is_left_as_it_was() -> None:
    model = torch.nn.Linear(3, 2)
    piggyback = Piggyback.of(model, _CPU)
    assert piggyback is not None

    def refuse() -> None:
        assert len(list(model.parameters())) == 3
        raise RuntimeError("no group")

    with pytest.raises(RuntimeError, match="no group"):
        piggyback.wrapped(model, refuse)
    assert len(list(model.parameters())) == 2


@pytest.mark.parametrize("loss", [float("inf"), float("nan")])
def test_a_loss_that_is_no_number_is_told_as_it_is(alone: None, loss: float) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    training = Training(RankPlace("piggyback"), 0)

    def loss_fn(output: Any, _: Any) -> Any:
        return output.mean() + loss

    step = training.prepare_step(model, loss_fn, optimizer, {**_SETTINGS, "clip_norm": None}, _CPU)
    assert str(step(torch.ones(4, 3), torch.ones(4, 2)).item()) == str(loss)
