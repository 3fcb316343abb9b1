"""Stages of a pipeline on the ranks of a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from jupyter_ddl import train
from jupyter_ddl.protocol.events import Notice, PipelineTimed
from jupyter_ddl.ranks.strategies.base import Strategy
from jupyter_ddl.ranks.strategies.pipeline import Pipeline
from jupyter_ddl.testing.strategies import StepContract

pytestmark = pytest.mark.integration

CELL = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
step = prepare_step(model, torch.nn.functional.mse_loss, optimizer)
data = torch.utils.data.TensorDataset(torch.linspace(-1, 1, 63).reshape(21, 3), torch.ones(21, 1))
losses = [step(x, y).item() for _ in range(2)
          for x, y in prepare(torch.utils.data.DataLoader(data, batch_size=8))]
with torch.no_grad():
    seen = model(data.tensors[0]).sum().item()
checkpoint(step=6, model=model, optimizer=optimizer)
losses, seen, len(optimizer.state)
"""


class TestSchedules(StepContract):
    """The default one is in the contract of all strategies."""

    @pytest.fixture
    def strategy(self) -> type[Strategy]:
        return Pipeline

    @pytest.fixture(params=["gpipe", "interleaved", "zerobubble"])
    def options(self, request: pytest.FixtureRequest) -> Mapping[str, Any]:
        return {"schedule": request.param}


def test_a_run_trains_in_stages_and_records_what_it_measured(cluster: object) -> None:
    alone = train(CELL, 1, namespace={}, bring=["model"])
    run = train(CELL, 2, namespace={}, strategy="pipeline", microbatches=4, bring=["model"])
    for losses, seen, n_states in run.values:
        assert losses == pytest.approx(alone.values[0][0], rel=1e-4)
        assert seen == pytest.approx(alone.values[0][1], rel=1e-4)
        assert n_states < 4  # only of this rank's layers
    assert alone.values[0][2] == 4
    brought, plain = run.value("model"), alone.value("model")
    assert [type(part).__name__ for part in brought] == ["Linear", "Tanh", "Linear"]
    assert brought[2].weight.flatten().tolist() == pytest.approx(
        plain[2].weight.flatten().tolist(), rel=1e-4
    )
    events = run.events()
    (cut,) = [each.text for each in events if isinstance(each, Notice) and "stage" in each.text]
    assert cut.startswith("pipeline: 1f1b with 4 micro-batches; stage 0 on rank 0: 0")
    (timed,) = [each.times for each in events if isinstance(each, PipelineTimed)]
    assert len(timed.spans) == len(timed.ideal) == 2 * 2 * 4
    assert timed.ideal_idle_share == pytest.approx(1 / 5)
    # A rank that waits for its turn on a busy host computes, as its clock sees it.
    assert 0 < timed.idle_share < 1
    assert "idle for" in repr(run.plot.pipeline())
