"""What single strategies take on the line; each option is refused with all others."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from jupyter_ddl.errors import OptionError
from jupyter_ddl.grammar import Argument, argument, one_of
from jupyter_ddl.protocol.group import StrategyOption

__all__ = ["ARGUMENTS", "OPTIONS", "chosen_options"]

_COMPRESS = argument(
    "--compress",
    type=one_of("fp16", "bf16", "powersgd"),
    help="with --strategy ddp: how gradients are sent; default: as they are",
)

OPTIONS: dict[str, tuple[Argument, ...]] = {"ddp": (_COMPRESS,)}
"""By strategy, and by name to its ``__init__``.  What the line leaves out is in no record."""

_BY_NAME = {each.dest: each for options in OPTIONS.values() for each in options}

ARGUMENTS = tuple(_BY_NAME.values())


def chosen_options(strategy: str, values: Mapping[str, Any]) -> dict[str, StrategyOption]:
    """The options of a strategy that are set among values by name.

    Raises
    ------
    OptionError
        One is set that belongs to another strategy, or has a wrong value (from Python).
    """
    found: dict[str, StrategyOption] = {}
    own = {each.dest for each in OPTIONS.get(strategy, ())}
    for name, option in _BY_NAME.items():
        value = values.get(name)
        if value is None:
            continue
        flag = option.flags[-1]
        if name not in own:
            owners = " or ".join(
                f"--strategy {each}" for each, options in OPTIONS.items() if option in options
            )
            raise OptionError(
                f"%%distribute ddp: {flag} belongs to {owners}, and --strategy is {strategy}; "
                f"leave it out, or choose that strategy"
            )
        try:
            found[name] = option.settings["type"](str(value))
        except argparse.ArgumentTypeError as error:
            raise OptionError(f"%%distribute ddp: {flag}: {error}") from None
    return found
