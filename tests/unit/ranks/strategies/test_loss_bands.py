"""Trainings that are another one than that of one process come to the same loss, over ten seeds."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from jupyter_ddl.ranks.strategies.local_sgd.strategy import DiLoCo
from jupyter_ddl.ranks.strategies.parameter_server.rounds import WheneverTheyLike
from jupyter_ddl.ranks.strategies.parameter_server.strategy import AsynchronousServers, WorkerStep
from jupyter_ddl.ranks.strategies.steps import StepRequest, StepSettings
from tests.unit.ranks.strategies.wires import Server

pytestmark = pytest.mark.usefixtures("alone")

_CPU = torch.device("cpu")
_BAND = 0.05
"""How far the loss may be from that of one process; docs/how-to/ddp.md states it."""
_N_RANKS, _N_STEPS, _BATCH = 3, 80, 24
_mse = torch.nn.functional.mse_loss


class _Task:
    """A noisy line; its loss can't fall below the noise."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(_N_STEPS * _BATCH, 4, generator=generator)
        noise = torch.randn(len(self.x), 1, generator=generator)
        self.y = self.x.sum(dim=1, keepdim=True) + noise

    def part(self, step: int, rank: int) -> tuple[Any, Any]:
        own = slice(step * _BATCH + rank, (step + 1) * _BATCH, _N_RANKS)
        return self.x[own], self.y[own]

    def loss(self, model: Any) -> float:
        with torch.no_grad():
            return float(_mse(model(self.x), self.y))

    def trained_alone(self) -> float:
        model, optimizer = _made()
        for step in range(_N_STEPS):
            batch = slice(step * _BATCH, (step + 1) * _BATCH)
            optimizer.zero_grad()
            _mse(model(self.x[batch]), self.y[batch]).backward()
            optimizer.step()
        return self.loss(model)


def _made() -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.05)


def _request(model: Any, optimizer: Any, loss_fn: Any = _mse) -> StepRequest:
    return StepRequest(model, loss_fn, optimizer, StepSettings(), _CPU)


def _by_diloco(task: _Task) -> float:
    """All ranks in turn; after each eight steps they meet."""
    models, steps = [], []
    strategies = [DiLoCo(sync_every=10**6) for _ in range(_N_RANKS)]
    for strategy in strategies:
        model, optimizer = _made()
        models.append(model)
        steps.append(strategy.make_step(_request(model, optimizer)))
    for number in range(_N_STEPS):
        for rank, step in enumerate(steps):
            step(*task.part(number, rank))
        if number % 8 == 7:
            of_ranks = [list(model.parameters()) for model in models]
            means = [sum(each) / _N_RANKS for each in zip(*of_ranks, strict=True)]
            for strategy, step in zip(strategies, steps, strict=True):
                strategy.exchange.means = lambda _, means=means: means  # type: ignore[method-assign]
                step.meet()
    return task.loss(models[0])


def _by_asynchronous_servers(task: _Task, seed: int) -> float:
    """Workers take steps while others are in the middle of one, whose gradients then come late."""
    chance = random.Random(seed)
    rounds = WheneverTheyLike(_N_RANKS, None)
    kept, optimizer = _made()
    server = Server(optimizer, rounds, _N_RANKS)
    left = [_N_STEPS] * _N_RANKS
    busy: set[int] = set()

    def one_step(rank: int) -> None:
        left[rank] -= 1
        busy.add(rank)
        steps[rank](*task.part(left[rank], rank))
        busy.discard(rank)

    def loss_fn(output: Any, target: Any) -> Any:
        loss = _mse(output, target)
        free = [rank for rank in range(_N_RANKS) if left[rank] and rank not in busy]
        if free and rounds.version and chance.random() < 0.7:
            one_step(chance.choice(free))
        return loss

    steps: list[Any] = []
    for rank in range(_N_RANKS):
        request = _request(*_made(), loss_fn)
        posts = {_N_RANKS: server.post_of(rank)}
        steps.append(WorkerStep(request, posts, [0, 0], rank, AsynchronousServers()))
    while free := [rank for rank in range(_N_RANKS) if left[rank]]:
        one_step(0 if not rounds.version else chance.choice(free))
    assert max(rounds.staleness) >= 2
    return task.loss(kept)


@pytest.mark.parametrize("seed", range(10))
def test_losses_are_within_the_band_that_the_how_to_states(seed: int) -> None:
    task = _Task(seed)
    alone = task.trained_alone()
    assert alone < 1.2
    found = {"diloco": _by_diloco(task), "ps-async": _by_asynchronous_servers(task, seed)}
    assert found == pytest.approx(dict.fromkeys(found, alone), rel=_BAND)
