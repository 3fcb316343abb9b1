"""Names of strategies: how ``prepare`` makes a model data-parallel.  Imports none of them."""

from __future__ import annotations

__all__ = ["BUILT_IN", "ENTRY_POINTS", "strategy_names"]

BUILT_IN = ("ddp", "fsdp")
ENTRY_POINTS = "jupyter_ddl.strategies"
"""Group under which installed packages offer more."""


def strategy_names() -> tuple[str, ...]:
    """The names that ``--strategy`` takes: the built-in ones, then those of installed packages."""
    from importlib.metadata import entry_points  # 20 ms that loading the magics can do without

    offered = sorted({point.name for point in entry_points(group=ENTRY_POINTS)})
    return tuple(dict.fromkeys((*BUILT_IN, *offered)))
