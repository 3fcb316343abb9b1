"""An optimizer's state goes where its parameters have gone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_ddl.ranks.strategies import placing
from jupyter_ddl.ranks.training import Training

torch: Any = pytest.importorskip("torch")


def test_state_follows_parameters_and_counters_stay() -> None:
    moved = torch.nn.Parameter(torch.ones(2, device="meta"))
    stayed = torch.nn.Parameter(torch.ones(2))
    optimizer = SimpleNamespace(
        state={
            each: {"exp_avg": torch.ones(2), "step": torch.tensor(3.0), "betas": (0.9, 0.99)}
            for each in (moved, stayed)
        }
    )
    placing.follow_parameters(optimizer)
    assert optimizer.state[moved]["exp_avg"].device.type == "meta"
    assert optimizer.state[moved]["step"].device.type == "cpu"
    assert optimizer.state[stayed]["exp_avg"].device.type == "cpu"


class Moving(torch.nn.Linear):  # type: ignore[misc]  # torch is not followed
    """Says when it was moved."""

    is_moved = False

    def to(self, *args: Any, **options: Any) -> Any:
        self.is_moved = True
        return self


@pytest.mark.parametrize("by", ["prepare", "prepare_step"])
def test_a_checkpoint_may_be_loaded_before_the_model_is_moved(
    by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Moving(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    followed: list[tuple[Any, bool]] = []
    monkeypatch.setattr(
        placing, "follow_parameters", lambda each: followed.append((each, model.is_moved))
    )
    training, device = Training(None, 0), torch.device("cpu")
    if by == "prepare":
        training.prepare((model, optimizer), device)
    else:
        settings = {"accumulate": 1, "clip_norm": None, "amp": None}
        training.prepare_step(model, torch.nn.functional.mse_loss, optimizer, settings, device)
    assert followed == [(optimizer, True)]
