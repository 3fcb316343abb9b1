"""Strategies by name: known to the kernel without torch, refused with the nearest name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jupyter_ddl.cell import strategies
from jupyter_ddl.errors import OptionError
from jupyter_ddl.worker.strategies.registry import (
    check_strategy,
    load_strategy,
    strategy_names,
)


def test_a_wrong_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(OptionError, match=r"--strategy fspd is no strategy; did you mean 'fsdp'\?"):
        check_strategy("fspd")
    with pytest.raises(OptionError, match=r"Known are ddp, fsdp.*jupyter_ddl\.strategies"):
        load_strategy("zzz")


def test_the_kernel_offers_what_the_ranks_know() -> None:
    assert strategies.strategy_names() == strategy_names()
    assert strategies.DEFAULT in strategy_names()


def test_listing_names_imports_no_torch() -> None:
    code = (
        "import sys; from jupyter_ddl.worker.strategies.registry import check_strategy; "
        "check_strategy('fsdp'); print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert out.strip() == "False"


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_built_in_strategies_can_be_loaded(name: str) -> None:
    strategy = load_strategy(name)
    assert all(callable(getattr(strategy, each)) for each in ("wrap", "adapt", "state", "unwrap"))
