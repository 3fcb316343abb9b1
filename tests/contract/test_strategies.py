"""Every strategy that is built in keeps what is expected of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch.distributed as dist

from jupyter_ddl.plugins import STRATEGIES
from jupyter_ddl.ranks.strategies.averages import ToldBefore
from jupyter_ddl.ranks.strategies.base import StepStrategy, Strategy
from jupyter_ddl.ranks.strategies.ddp.strategy import DataParallel
from jupyter_ddl.ranks.strategies.steps import AveragedStep, StepRequest, TrainingStep
from jupyter_ddl.testing.strategies import StepContract, StrategyContract

_ALIKE: dict[str, dict[str, Any]] = {
    "local-sgd": {"sync_every": 1},
    "diloco": {"sync_every": 1, "outer_lr": 1.0, "outer_momentum": 0.0},
}
"""Options with which a strategy computes what one process does."""
_BY_STEPS = ("local-sgd", "diloco", "ps-sync", "ps-async", "pipeline")
_ALONE = ("dp",)


class TestStrategies(StrategyContract):
    @pytest.fixture(params=[name for name in STRATEGIES.built_in if name not in _BY_STEPS])
    def strategy(self, request: pytest.FixtureRequest) -> type[Strategy]:
        found: type[Strategy] = STRATEGIES.load(request.param)
        return found

    @pytest.fixture
    def groups(self, strategy: type[Strategy]) -> tuple[int, ...]:
        return (1,) if strategy in map(STRATEGIES.load, _ALONE) else (2, 4)


class TestStepStrategies(StepContract):
    @pytest.fixture(params=_BY_STEPS)
    def name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def strategy(self, name: str) -> type[Strategy]:
        found: type[Strategy] = STRATEGIES.load(name)
        return found

    @pytest.fixture
    def options(self, name: str) -> Mapping[str, Any]:
        return _ALIKE.get(name, {})

    @pytest.fixture
    def groups(self, name: str) -> tuple[int, ...]:
        # Of asynchronous workers only one alone computes what one process does.
        return {"ps-sync": (3,), "ps-async": (2,)}.get(name, (2, 4))

    @pytest.fixture
    def settings(self, name: str) -> Mapping[str, Any]:
        # Of those that average parameters, each rank clips its own gradient, not the batch's.
        return {"accumulate": 2, "clip_norm": None if name in _ALIKE else 0.5, "amp": None}


class TestTwoServers(StepContract):
    """Each has a part of the parameters, and gradients are clipped over both."""

    @pytest.fixture
    def strategy(self) -> type[Strategy]:
        found: type[Strategy] = STRATEGIES.load("ps-sync")
        return found

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        return {"servers": 2}

    @pytest.fixture
    def groups(self) -> tuple[int, ...]:
        return (4,)


class SmallBuckets(DataParallel):
    """With buckets that cut even the gradients of the contract's model: 64 bytes."""

    bucket_sizes_mib = (2**-14, 25)


class TestTunedBuckets(StepContract):
    """Ranks that put a model into DDP anew between steps go on in step, and choose alike."""

    @pytest.fixture
    def strategy(self) -> type[Strategy]:
        return SmallBuckets

    @pytest.fixture
    def options(self) -> Mapping[str, Any]:
        return {"tune_buckets": True}

    @pytest.fixture
    def groups(self) -> tuple[int, ...]:
        return (2,)


class Queued(DataParallel):
    """With numbers that are told before the backward pass, as they are on GPUs."""

    def _piggyback(self, request: StepRequest) -> None:
        return None

    def prepare_step(self, request: StepRequest) -> TrainingStep:
        step = super().prepare_step(request)
        assert isinstance(step, AveragedStep)
        step._averages = ToldBefore(self.exchange, dist.get_world_size())
        return step


class TestQueued(StepContract):
    """Shares of unequal size count alike whichever way their sizes are told."""

    @pytest.fixture
    def strategy(self) -> type[Strategy]:
        return Queued

    @pytest.fixture
    def groups(self) -> tuple[int, ...]:
        return (2,)


def test_strategies_that_make_whole_steps_are_tested_as_such() -> None:
    found = {
        name for name in STRATEGIES.built_in if issubclass(STRATEGIES.load(name), StepStrategy)
    }
    assert found == {*_BY_STEPS}
