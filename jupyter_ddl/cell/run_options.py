"""The options of ``%%distribute run``: which ranks, which variables, and what a new group is."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass

from jupyter_ddl.cell.common_options import ENV_CHECK, EnvCheck
from jupyter_ddl.cell.ddp_options import BACKENDS
from jupyter_ddl.grammar import Argument, argument, count, identifier, names, one_of
from jupyter_ddl.protocol.group import CollectiveBackend

__all__ = ["DEFAULT_GROUP", "RUN", "RunOptions", "ranks"]

DEFAULT_GROUP = "default"
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of ``%%distribute run``.

    Attributes
    ----------
    n_ranks : int or None
        Size of the group; None: of the open one, or one rank per free slot.
    targets : tuple of int or None
        Ranks that execute the cell; None: all.
    """

    n_ranks: int | None = None
    targets: tuple[int, ...] | None = None
    push: tuple[str, ...] = ()
    bring: tuple[str, ...] = ()
    out: str | None = None
    name: str = DEFAULT_GROUP
    backend: CollectiveBackend = "auto"
    gpus_per_rank: int | None = None
    initialize: bool = True
    reset: bool = False
    env_check: EnvCheck | None = None


def ranks(text: str) -> tuple[int, ...] | None:
    """Ranks in ``1``, ``0,2`` or ``0-3,6``; None for ``all``."""
    if text.strip() == "all":
        return None
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        low, high = (match[1], match[2] or match[1]) if match else ("", "")
        if match is None or int(low) > int(high) or int(high) >= 100_000:
            raise argparse.ArgumentTypeError(f"{text!r}; expected ranks, e.g. 1, 0,2 or 0-3")
        found.update(range(int(low), int(high) + 1))
    return tuple(sorted(found))


RUN: tuple[Argument, ...] = (
    argument("-n", "--ranks", dest="n_ranks", type=count(1), metavar="N", help="of a new group"),
    argument("-t", "--targets", type=ranks, metavar="RANKS", help="that execute it, e.g. 0,2"),
    argument(
        "--push",
        type=names,
        default=(),
        metavar="A,B",
        help="variables to send first",
        offers="names",
    ),
    argument(
        "--bring",
        type=names,
        default=(),
        metavar="A,B",
        help="the first rank's, back",
        offers="assigned",
    ),
    argument("-o", "--out", type=identifier, metavar="NAME", help="bind all ranks' results"),
    argument(
        "--name", default=DEFAULT_GROUP, metavar="TEXT", help="another group than the default one"
    ),
    argument("--backend", type=one_of(*BACKENDS), default="auto"),
    argument(
        "--gpus-per-rank",
        type=count(0),
        metavar="N",
        help="of a new group; default: 1 if there are as many, else 0",
    ),
    argument(
        "--no-init",
        dest="initialize",
        action="store_false",
        help="a new group does not initialise torch.distributed",
    ),
    argument("--reset", action="store_true", help="replace the group; its variables are lost"),
    ENV_CHECK,
)
