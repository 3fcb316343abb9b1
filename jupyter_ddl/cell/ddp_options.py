"""The options of ``%%distribute ddp``: which there are, and what they may say together."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from jupyter_ddl.cell import values
from jupyter_ddl.cell.common_options import CommonOptions
from jupyter_ddl.errors import OptionError
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.plugins import STRATEGIES
from jupyter_ddl.protocol.group import CollectiveBackend

__all__ = ["BACKENDS", "DdpOptions", "add_admission", "add_ddp"]

BACKENDS = ("auto", "gloo", "nccl")


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpOptions(CommonOptions):
    """Options of ``%%distribute ddp``: the cell once on each of ``n_ranks`` ranks.

    ``gpus_per_rank`` None: one where the workers have as many, else none.
    """

    n_ranks: int
    backend: CollectiveBackend = "auto"
    gpus_per_rank: int | None = None
    min_ranks: int | None = None
    max_restarts: int = 3
    admission_timeout_s: float | None = None
    hang_timeout_s: float | None = None
    strategy: str = "ddp"
    initialize: bool = True

    def __post_init__(self) -> None:
        """Refuse what contradicts itself, also from Python callers.

        Raises
        ------
        OptionError
            One line, with the nearest name.
        """
        self._check_counts()
        _check_choice("--backend", self.backend, BACKENDS)
        STRATEGIES.check(self.strategy)

    def _check_counts(self) -> None:
        for flag, number, low in (
            ("-n", self.n_ranks, 1),
            ("--min-ranks", self.min_ranks, 1),
            ("--gpus-per-rank", self.gpus_per_rank, 0),
            ("--max-restarts", self.max_restarts, 0),
        ):
            is_whole = isinstance(number, int) and not isinstance(number, bool)
            if number is not None and (not is_whole or number < low):
                raise OptionError(
                    f"%%distribute ddp: {flag}: {number!r}; expected a whole number of at least "
                    f"{low}"
                )
        if self.min_ranks is not None and self.min_ranks > self.n_ranks:
            raise OptionError(
                f"%%distribute ddp: --min-ranks {self.min_ranks} is more than -n {self.n_ranks}; "
                f"expected at most {self.n_ranks}"
            )


def _check_choice(flag: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise OptionError(
            f"%%distribute ddp: {flag}: {value!r} is not a choice; expected {', '.join(allowed)}"
            f"{did_you_mean(value, allowed)}"
        )


def add_admission(parser: argparse.ArgumentParser) -> None:
    """Add the deadline of a rank group's start."""
    parser.add_argument(
        "--admission-timeout",
        dest="admission_timeout_s",
        type=values.duration_s,
        metavar="10m",
        help="give up when ranks have waited so long for slots; default: never while others use "
        "them, 10m for slots that are missing",
    )


def add_ddp(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    add = parser.add_argument
    add("-n", "--ranks", dest="n_ranks", type=values.count(1), metavar="N", help="number of ranks")
    add("--backend", default="auto", metavar="|".join(BACKENDS), help="auto: nccl with GPUs")
    add(
        "--gpus-per-rank",
        type=values.count(0),
        metavar="N",
        help="default: 1 if there are N, else 0",
    )
    add("--min-ranks", type=values.count(1), metavar="M", help="go on with so few; default: N")
    add("--max-restarts", type=values.count(0), default=3, metavar="K", help="default 3")
    add_admission(parser)
    add(
        "--hang-timeout",
        dest="hang_timeout_s",
        type=values.duration_s,
        metavar="5m",
        help="no step for so long is a hang; default: 60 s or 10 median steps",
    )
    add(
        "--strategy", default="ddp", metavar="NAME", help="what prepare() does: ddp, fsdp or others"
    )
    add(
        "--no-init",
        dest="initialize",
        action="store_false",
        help="the cell calls init_process_group itself",
    )
