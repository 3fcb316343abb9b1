"""Names of strategies: how ``prepare`` makes a model data-parallel.  Imports none of them."""

from __future__ import annotations

__all__ = ["DEFAULT", "strategy_names"]

DEFAULT = "ddp"


def strategy_names() -> tuple[str, ...]:
    """The names that ``--strategy`` takes: the built-in ones, then those of installed packages."""
    # Only here: finding installed packages costs 30 ms, which loading the magics can do without.
    from jupyter_ddl.ranks.strategies import registry

    return registry.strategy_names()
