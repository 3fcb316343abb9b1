"""Ranks that are lost while the others go on, and come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl import train
from jupyter_ddl.protocol.events import AttemptStarted, Notice, RankEnded, RankStarted, Reported

pytestmark = pytest.mark.integration

SERVED = """
import os, pathlib, signal, torch
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
was_lost, is_back = pathlib.Path(folder, "lost"), pathlib.Path(folder, "back")
comes_back = was_lost.exists()
step = prepare_step(model, torch.nn.functional.mse_loss, optimizer)
x, y = torch.ones(4, 3), torch.ones(4, 1)
n_steps = 0
while n_steps < 5 or not is_back.exists():
    step(x, y)
    n_steps += 1
    if n_steps == 5:
        report(0, reduce="sum", n_ranks=1.0)
        if rank() == 1 and not comes_back:
            was_lost.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    if comes_back and not step._strategy.passes:
        is_back.touch()
loss = step(x, y)
if not comes_back:
    report(1, reduce="sum", n_ranks=1.0)
n_steps, loss.item()
"""
"""The first worker goes on until the second one, which is killed, is back and has made a step."""


@pytest.fixture
def three(cluster: object) -> object:
    """A cluster with room for two workers and a server."""
    cluster.scale(3)  # type: ignore[attr-defined]
    return cluster


@pytest.mark.parametrize("strategy", ["ps-async", "ps-sync"])
def test_a_worker_that_is_killed_costs_no_restart_and_comes_back(
    strategy: str, three: object, tmp_path: Path
) -> None:
    run = train(SERVED, 3, namespace={"folder": str(tmp_path)}, strategy=strategy, max_restarts=0)
    assert run.state == "complete"
    events = run.events()
    assert len([event for event in events if isinstance(event, AttemptStarted)]) == 1
    (lost,) = (e for e in events if isinstance(e, RankEnded) and e.others_go_on)
    (back,) = (e for e in events if isinstance(e, RankStarted) and e.life > 1)
    assert (lost.rank, lost.failure and lost.failure.type_name, back.rank) == (1, "SIGKILL", 1)
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert "rank 1 died by SIGKILL; the others go on without it" in notices
    reports = [(e.step, e.metrics["n_ranks"]) for e in events if isinstance(e, Reported)]
    assert sorted(reports) == [(0, 2.0), (0, 2.0), (1, 1.0)]
    first, second, _ = run.values
    # What comes back passes over what the first worker had done by then.
    assert first[0] > 5
    assert first[1] < 1.0
    assert second is None or second[0] > 5
