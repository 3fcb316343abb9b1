"""Every strategy that is built in keeps what is expected of one."""

from __future__ import annotations

import pytest

from jupyter_ddl.plugins import STRATEGIES
from jupyter_ddl.ranks.strategies.base import Strategy
from jupyter_ddl.testing.strategies import StrategyContract


class TestStrategies(StrategyContract):
    @pytest.fixture(params=STRATEGIES.built_in)
    def strategy(self, request: pytest.FixtureRequest) -> type[Strategy]:
        found: type[Strategy] = STRATEGIES.load(request.param)
        return found
