"""Every strategy keeps under NCCL what it keeps under gloo: ranks on GPUs train as one CPU does.

Where there are fewer GPUs than ranks, ranks share them.
"""

from __future__ import annotations

import pytest

from jupyter_ddl.testing.strategies import StepContract
from tests.contract import test_strategies as contract

pytestmark = pytest.mark.gpu


class _OnGpus:
    @pytest.fixture
    def device(self) -> str:
        return "cuda"


class TestAveragingOnGpus(_OnGpus, StepContract):
    strategy = contract.TestStrategies.strategy
    groups = contract.TestStrategies.groups


class TestStepStrategiesOnGpus(_OnGpus, contract.TestStepStrategies):
    pass


class TestTwoServersOnGpus(_OnGpus, contract.TestTwoServers):
    pass


class TestTunedBucketsOnGpus(_OnGpus, contract.TestTunedBuckets):
    pass
