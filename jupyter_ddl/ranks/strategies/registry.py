"""Finds a strategy by its name: built in, or offered by an installed package."""

from __future__ import annotations

import difflib
import importlib
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from jupyter_ddl.errors import LaunchError, OptionError
from jupyter_ddl.ranks.strategies.base import Strategy

__all__ = ["ENTRY_POINTS", "check_strategy", "load_strategy", "strategy_names"]

ENTRY_POINTS = "jupyter_ddl.strategies"
"""Group under which installed packages offer more: a name, and a class without parameters."""
_BUILT_IN = {
    "ddp": "jupyter_ddl.ranks.strategies.data_parallel:DataParallel",
    "fsdp": "jupyter_ddl.ranks.strategies.fully_sharded:FullySharded",
}


def strategy_names() -> tuple[str, ...]:
    """Names that ``--strategy`` takes: the built-in ones, then those of installed packages."""
    return tuple(dict.fromkeys((*_BUILT_IN, *sorted(_offered()))))


def check_strategy(name: str) -> None:
    """Refuse an unknown name; imports no strategy, so the kernel needs no torch for it.

    Raises
    ------
    OptionError
        Naming the nearest one and all others.
    """
    names = strategy_names()
    if name in names:
        return
    nearest = difflib.get_close_matches(name, names, n=1)
    guess = f"; did you mean {nearest[0]!r}?" if nearest else ""
    raise OptionError(
        f"--strategy {name} is no strategy{guess} Known are {', '.join(names)}; a package adds one "
        f"by the entry point group {ENTRY_POINTS}"
    )


def load_strategy(name: str) -> Strategy:
    """Import a strategy and make one; called once per attempt, where torch is installed.

    Raises
    ------
    OptionError
        There is none of this name on this host.
    LaunchError
        Its package cannot be imported, or what it offers is no strategy.
    """
    target = _BUILT_IN.get(name)
    if target is None:  # only now: listing what is installed takes a rank 10 ms
        check_strategy(name)
        target = _offered()[name].value
    module, _, attribute = target.partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError, TypeError) as error:
        raise LaunchError(
            f"strategy {name!r} ({target}) can't be loaded on this host: {error}; install the "
            f"same version of its package on every worker"
        ) from error
    missing = [each for each in ("wrap", "adapt", "state", "unwrap") if not hasattr(made, each)]
    if missing:
        raise LaunchError(f"strategy {name!r} ({target}) has no {', '.join(missing)}()")
    return cast(Strategy, made)


def _offered() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}
