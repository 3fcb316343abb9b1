"""Ranks as a grid: layers cut over one axis, parameters over another, copies over a third."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from jupyter_ddl.ranks.strategies.base import Strategy
from jupyter_ddl.ranks.strategies.fsdp.strategy import FullySharded
from jupyter_ddl.testing.strategies import StepContract

pytestmark = pytest.mark.integration

_PLAN = '{"0": "colwise", "2": "rowwise"}'


class TestMeshes(StepContract):
    @pytest.fixture
    def strategy(self) -> type[Strategy]:
        return FullySharded

    @pytest.fixture(
        params=[
            {"mesh": "dp=2,tp=2", "tp_plan": _PLAN},
            {"mesh": "tp=4", "tp_plan": _PLAN},
            {"mesh": "dp_replicate=2,dp_shard=2"},
        ],
        ids=["dp-tp", "tp", "hsdp"],
    )
    def options(self, request: pytest.FixtureRequest) -> Mapping[str, Any]:
        found: Mapping[str, Any] = request.param
        return found

    @pytest.fixture
    def groups(self) -> tuple[int, ...]:
        return (4,)
