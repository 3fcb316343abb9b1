"""The outer steps of DiLoCo are those of torch's SGD with Nesterov's momentum."""

from __future__ import annotations

from typing import Any

import torch

from jupyter_ddl.ranks.strategies.local_sgd.strategy import DiLoCo


def _met(strategy: DiLoCo, own: list[Any], means: list[Any]) -> None:
    """A round: all begin with what ``own`` has, and come to these means."""
    strategy.begin(own)
    strategy.means = lambda _: means  # type: ignore[method-assign]
    strategy.meet(own)


def test_meetings_make_the_steps_of_the_paper_and_go_on_from_a_checkpoint() -> None:
    """https://arxiv.org/abs/2311.08105, algorithm 1: the gradient is old minus mean."""
    generator = torch.Generator().manual_seed(0)
    own = [torch.randn(3, generator=generator, dtype=torch.float64)]
    expected = own[0].clone().requires_grad_()
    optimizer = torch.optim.SGD([expected], lr=0.6, momentum=0.8, nesterov=True)
    strategy = DiLoCo(outer_lr=0.6, outer_momentum=0.8)
    for number in range(6):
        trained = expected.detach() + torch.randn(3, generator=generator, dtype=torch.float64)
        expected.grad = expected.detach() - trained
        optimizer.step()
        _met(strategy, own, [trained])
        assert torch.allclose(own[0], expected.detach(), rtol=0.0, atol=1e-12), number
        if number == 2:
            saved = strategy.extra_state()
            strategy = DiLoCo(outer_lr=0.6, outer_momentum=0.8)
            strategy.restore_extra(saved)
