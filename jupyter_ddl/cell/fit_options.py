"""The options of ``%%distribute fit``: the cell runs in the notebook, its fits on the cluster."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_ddl.cell.common_options import (
    CAPTURE_LIMIT,
    ENV_CHECK,
    MAX_PARALLEL,
    NAME,
    OUT,
    SEED,
    TIMEOUT,
    EnvCheck,
)
from jupyter_ddl.grammar import Argument, argument, size_bytes

__all__ = ["FIT", "FitOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """Options of ``%%distribute fit``.  Sizes in bytes, durations in seconds.

    Attributes
    ----------
    memory_bytes : int or None
        Outputs of shared prefixes that a host keeps in memory; None: a quarter of its memory.
    """

    out: str | None = None
    name: str = ""
    timeout_s: float | None = None
    resume: str | None = None
    max_parallel: int | None = None
    memory_bytes: int | None = None
    capture_limit_bytes: int | None = None
    seed: int | None = None
    env_check: EnvCheck | None = None


FIT: tuple[Argument, ...] = (
    OUT,
    NAME,
    TIMEOUT,
    argument(
        "--resume",
        metavar="RUN",
        help="take from a run what it has; compute the rest",
        offers="runs",
    ),
    MAX_PARALLEL,
    argument(
        "--memory",
        dest="memory_bytes",
        type=size_bytes,
        metavar="2GB",
        help="for shared transformed data, per host; default: a quarter of the host's",
    ),
    CAPTURE_LIMIT,
    SEED,
    ENV_CHECK,
)
