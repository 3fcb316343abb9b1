"""What every strategy keeps, as tests that the author of one runs; they need torch.

::

    class TestMine(StrategyContract):
        @pytest.fixture
        def strategy(self):
            return MyStrategy

One of them starts two processes that form a group on the CPU.
"""

from __future__ import annotations

import copy
import multiprocessing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.ranks.strategies.base import Strategy

__all__ = ["StrategyContract"]

_N_STEPS = 3
_GROUP_S = 120.0


class StrategyContract:
    """Subclass it, and override the fixture ``strategy``."""

    @pytest.fixture
    def strategy(self) -> type[Strategy]:
        """The class under test; it can be imported by its name."""
        raise NotImplementedError("override the fixture `strategy`")

    @pytest.fixture
    def alone(self) -> Iterator[None]:
        """A process group of this process only."""
        dist: Any = pytest.importorskip("torch.distributed")
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            yield
        finally:
            dist.destroy_process_group()

    def test_a_wrapped_model_computes_what_the_model_did(
        self, strategy: type[Strategy], alone: None
    ) -> None:
        torch: Any = pytest.importorskip("torch")
        model, batch = _model(), _batches(1)[0][0]
        expected = model(batch).detach()
        wrapped = strategy().wrap(model, torch.device("cpu"))
        assert torch.allclose(wrapped(batch).detach(), expected)

    def test_what_is_wrapped_is_not_wrapped_again(
        self, strategy: type[Strategy], alone: None
    ) -> None:
        torch: Any = pytest.importorskip("torch")
        made = strategy()
        wrapped = made.wrap(_model(), torch.device("cpu"))
        assert made.wrap(wrapped, torch.device("cpu")) is wrapped

    def test_an_optimizer_that_was_made_before_trains_the_wrapped_model(
        self, strategy: type[Strategy], alone: None
    ) -> None:
        made, model, optimizer = _prepared(strategy)
        _train(model, optimizer, _batches(_N_STEPS))
        assert _differences(_plain(made, model), _trained_plainly()[0].state_dict()) == []

    def test_plain_state_is_that_of_a_process_without_a_strategy(
        self, strategy: type[Strategy], alone: None
    ) -> None:
        made, model, optimizer = _prepared(strategy)
        _train(model, optimizer, _batches(_N_STEPS))
        plain_model, plain_optimizer = _trained_plainly()
        assert list(_plain(made, model)) == list(plain_model.state_dict())
        assert _differences(_plain(made, optimizer), plain_optimizer.state_dict()) == []

    def test_plain_state_is_taken_back(self, strategy: type[Strategy], alone: None) -> None:
        plain_model, plain_optimizer = _trained_plainly()
        made, model, optimizer = _prepared(strategy)
        model.load_state_dict(plain_model.state_dict())
        optimizer.load_state_dict(copy.deepcopy(plain_optimizer.state_dict()))
        _train(model, optimizer, _batches(_N_STEPS))
        _train(plain_model, plain_optimizer, _batches(_N_STEPS))
        assert _differences(_plain(made, model), plain_model.state_dict()) == []

    def test_what_comes_out_is_the_model_itself_with_what_it_has_learned(
        self, strategy: type[Strategy], alone: None
    ) -> None:
        torch: Any = pytest.importorskip("torch")
        made, model, optimizer = _prepared(strategy)
        _train(model, optimizer, _batches(_N_STEPS))
        plain = made.unwrap(model)
        assert type(plain) is torch.nn.Sequential
        assert _differences(plain.state_dict(), _trained_plainly()[0].state_dict()) == []

    def test_two_ranks_learn_from_their_halves_what_one_learns_from_the_whole(
        self, strategy: type[Strategy], tmp_path: Path
    ) -> None:
        pytest.importorskip("torch")
        context = multiprocessing.get_context("spawn")
        answers: Any = context.Queue()
        arguments = (strategy, f"file://{tmp_path / 'group'}", answers)
        ranks = [context.Process(target=_rank, args=(rank, *arguments)) for rank in range(2)]
        try:
            for each in ranks:
                each.start()
            got = dict(answers.get(timeout=_GROUP_S) for _ in ranks)
        finally:
            for each in ranks:
                each.join(10.0)
                each.kill()
                each.join()
        expected = {
            name: _flat(value) for name, value in _trained_plainly()[0].state_dict().items()
        }
        for rank in range(2):
            for name, value in expected.items():
                assert got[rank][name] == pytest.approx(value, rel=1e-4, abs=1e-6), (rank, name)


def _rank(rank: int, strategy: type[Strategy], place: str, answers: Any) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=2)
    made, model, optimizer = _prepared(strategy)
    halves = [(x[rank::2], y[rank::2]) for x, y in _batches(_N_STEPS)]
    _train(model, optimizer, halves)
    plain = made.unwrap(model)
    state = {name: _flat(value) for name, value in plain.state_dict().items()}
    answers.put((rank, state))
    dist.barrier()
    dist.destroy_process_group()


def _flat(value: Any) -> Any:
    return value.detach().flatten().tolist()


def _model() -> Any:
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def _optimizer(model: Any) -> Any:
    import torch

    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def _batches(n: int) -> list[tuple[Any, Any]]:
    import torch

    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(6, 4, generator=generator), torch.randn(6, 2, generator=generator))
        for _ in range(n)
    ]


def _train(model: Any, optimizer: Any, batches: list[tuple[Any, Any]]) -> None:
    import torch

    for x, y in batches:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def _trained_plainly() -> tuple[Any, Any]:
    model = _model()
    optimizer = _optimizer(model)
    _train(model, optimizer, _batches(_N_STEPS))
    return model, optimizer


def _prepared(strategy: type[Strategy]) -> tuple[Strategy, Any, Any]:
    """As ``prepare(model, optimizer)`` does it; the optimizer was made before."""
    import torch

    made, model = strategy(), _model()
    optimizer = _optimizer(model)
    wrapped = made.wrap(model, torch.device("cpu"))
    made.adapt(optimizer)
    made.adapt(optimizer)  # after every further model, too
    return made, wrapped, optimizer


def _plain(strategy: Strategy, stateful: Any) -> dict[str, Any]:
    from jupyter_ddl.ranks.strategies.sharded import gathered

    state: dict[str, Any] = gathered(dict(strategy.state(stateful)), keep=True)
    return state


def _differences(state: Any, expected: Any, at: str = "") -> list[str]:
    """Places at which two states differ."""
    import torch

    if isinstance(expected, torch.Tensor):
        same = isinstance(state, torch.Tensor) and torch.allclose(state, expected, atol=1e-6)
        return [] if same else [at]
    if isinstance(expected, Mapping):
        if not isinstance(state, Mapping) or list(state) != list(expected):
            return [at]
        return [
            place
            for key in expected
            for place in _differences(state[key], expected[key], f"{at}/{key}")
        ]
    if isinstance(expected, list | tuple):
        if len(state) != len(expected):
            return [at]
        pairs = enumerate(zip(state, expected, strict=True))
        return [
            place for n, (one, other) in pairs for place in _differences(one, other, f"{at}/{n}")
        ]
    return [] if state == expected else [at]
