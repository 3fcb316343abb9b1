"""Strategies by name: known to the kernel without torch, refused with the nearest name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_ddl.cell import strategies
from jupyter_ddl.errors import LaunchError, OptionError
from jupyter_ddl.ranks.strategies.registry import (
    ENTRY_POINTS,
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
        "import sys; from jupyter_ddl.ranks.strategies.registry import check_strategy; "
        "check_strategy('fsdp'); print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert out.strip() == "False"


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_built_in_strategies_can_be_loaded(name: str) -> None:
    strategy = load_strategy(name)
    assert all(callable(getattr(strategy, each)) for each in ("wrap", "adapt", "state", "unwrap"))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package that offers strategies: one that works, and two that don't."""
    facts = tmp_path / "slow_strategy-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-strategy\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        f"[{ENTRY_POINTS}]\nslow = slow_strategy:Slow\nhalf = slow_strategy:Half\n"
        "gone = slow_strategy_gone:Gone\n"
    )
    (tmp_path / "slow_strategy.py").write_text(
        "from jupyter_ddl.ranks.strategies.data_parallel import DataParallel\n"
        "class Slow(DataParallel):\n    pass\n"
        "class Half:\n    def wrap(self): ...\n    def unwrap(self): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_package_adds_strategies_by_an_entry_point(package: Path) -> None:
    assert strategies.strategy_names() == ("ddp", "fsdp", "gone", "half", "slow")
    assert type(load_strategy("slow")).__name__ == "Slow"
    with pytest.raises(LaunchError, match=r"'half' \(slow_strategy:Half\) has no adapt, state\(\)"):
        load_strategy("half")
    with pytest.raises(LaunchError, match=r"'gone' .* can't be loaded on this host: No module"):
        load_strategy("gone")
