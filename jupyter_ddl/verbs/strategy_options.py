"""What single strategies take on the line; each option is refused with all others."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Mapping
from typing import Any

from jupyter_ddl.errors import OptionError
from jupyter_ddl.grammar import Argument, argument, count, one_of
from jupyter_ddl.protocol.group import StrategyOption

__all__ = ["ARGUMENTS", "OPTIONS", "check_ranks", "chosen_options"]


def _positive(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (number := float(text)) < math.inf:
            return number
    raise argparse.ArgumentTypeError(f"{text!r}; expected a number above 0")


def _share(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (number := float(text)) < 1:
            return number
    raise argparse.ArgumentTypeError(f"{text!r}; expected a number from 0 to below 1")


_COMPRESS = argument(
    "--compress",
    type=one_of("fp16", "bf16", "powersgd"),
    help="with --strategy ddp: how gradients are sent; default: as they are",
)

_SYNC_EVERY = argument(
    "--sync-every",
    type=count(1),
    metavar="H",
    help="with local-sgd (default: 8) and diloco (50): steps between two meetings of the ranks",
)
_OUTER_LR = argument(
    "--outer-lr",
    type=_positive,
    metavar="X",
    help="with diloco: learning rate from one meeting to the next; default: 0.7",
)
_OUTER_MOMENTUM = argument(
    "--outer-momentum",
    type=_share,
    metavar="X",
    help="with diloco: Nesterov's momentum from one meeting to the next; default: 0.9",
)

OPTIONS: dict[str, tuple[Argument, ...]] = {
    "ddp": (_COMPRESS,),
    "local-sgd": (_SYNC_EVERY,),
    "diloco": (_SYNC_EVERY, _OUTER_LR, _OUTER_MOMENTUM),
}
"""By strategy, and by name to its ``__init__``.  What the line leaves out is in no record."""

_BY_NAME = {each.dest: each for options in OPTIONS.values() for each in options}

ARGUMENTS = tuple(_BY_NAME.values())


def check_ranks(strategy: str, n_ranks: int) -> None:
    """Refuse a number of ranks that a strategy can't have.

    Raises
    ------
    OptionError
        One line that says which it can.
    """
    if strategy == "dp" and n_ranks != 1:
        raise OptionError(
            f"%%distribute ddp: --strategy dp is nn.DataParallel, which is one process, and -n is "
            f"{n_ranks}; use -n 1 (and --gpus-per-rank), or --strategy ddp"
        )


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
