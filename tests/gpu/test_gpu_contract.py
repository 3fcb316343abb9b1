"""Every strategy keeps under NCCL what it keeps under gloo: ranks on GPUs train as one CPU does.

Where there are fewer GPUs than ranks, ranks share them.
"""

from __future__ import annotations

import pytest

from jupyter_ddl.testing.strategies import StepContract
from tests.contract import test_strategies as contract
from tests.integration.ddp.test_meshes import TestMeshes
from tests.integration.ddp.test_pipeline_runs import TestCopies, TestSchedules

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


class TestMeshesOnGpus(_OnGpus, TestMeshes):
    pass


class TestSchedulesOnGpus(_OnGpus, TestSchedules):
    pass


class TestCopiesOnGpus(_OnGpus, TestCopies):
    pass


class TestTunedBucketsOnGpus(_OnGpus, contract.TestTunedBuckets):
    pass
