"""The options of ``%%distribute ddp``: which there are, and what they may say together."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_ddl.cell.common_options import CommonOptions
from jupyter_ddl.errors import OptionError
from jupyter_ddl.grammar import Argument, argument, count, duration_s, one_of
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.plugins import STRATEGIES
from jupyter_ddl.protocol.group import CollectiveBackend

__all__ = ["ADMISSION_TIMEOUT", "BACKENDS", "DDP", "GPUS_PER_RANK", "DdpOptions"]

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


ADMISSION_TIMEOUT = argument(
    "--admission-timeout",
    dest="admission_timeout_s",
    type=duration_s,
    metavar="10m",
    help="give up when ranks have waited so long for slots; default: never while others use "
    "them, 10m for slots that are missing",
)
GPUS_PER_RANK = argument(
    "--gpus-per-rank", type=count(0), metavar="N", help="default: 1 if there are N, else 0"
)

DDP: tuple[Argument, ...] = (
    argument("-n", "--ranks", dest="n_ranks", type=count(1), metavar="N", help="number of ranks"),
    argument("--backend", type=one_of(*BACKENDS), default="auto", help="auto: nccl with GPUs"),
    GPUS_PER_RANK,
    argument("--min-ranks", type=count(1), metavar="M", help="go on with so few; default: N"),
    argument("--max-restarts", type=count(0), default=3, metavar="K", help="default 3"),
    ADMISSION_TIMEOUT,
    argument(
        "--hang-timeout",
        dest="hang_timeout_s",
        type=duration_s,
        metavar="5m",
        help="no step for so long is a hang; default: 60 s or 10 median steps",
    ),
    argument(
        "--strategy",
        default="ddp",
        metavar="NAME",
        help="what prepare() does: ddp, fsdp or others",
        offers=STRATEGIES.names,
    ),
    argument(
        "--no-init",
        dest="initialize",
        action="store_false",
        help="the cell calls init_process_group itself",
    ),
)
"""Beside the common ones."""
