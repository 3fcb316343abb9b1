"""What every line of ``%%distribute`` may say beside what its verb takes."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from jupyter_ddl.grammar import (
    argument,
    count,
    duration_s,
    identifier,
    names,
    one_of,
    patterns,
    size_bytes,
)

__all__ = [
    "ADMISSION",
    "CAPTURE_LIMIT",
    "COMMON",
    "ENV_CHECK",
    "MANY_TRIALS",
    "MAX_PARALLEL",
    "NAME",
    "OUT",
    "SEED",
    "TIMEOUT",
    "CellOptions",
    "EnvCheck",
]

EnvCheck: TypeAlias = Literal["warn", "strict", "off"]


class CellOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a cell is sent and what comes home.  Sizes in bytes, durations in seconds."""

    out: str | None = None
    bring: tuple[str, ...] = ()
    bring_files: tuple[str, ...] = ()
    push: tuple[str, ...] = ()
    name: str = ""
    wait: bool = True
    timeout_s: float | None = None
    dry_run: bool = False
    env_check: EnvCheck | None = None
    """None: what breaks the cell is refused, and other differences are a warning."""
    resume: str | None = None
    isolate: bool = False
    max_failures: int = 3
    capture_limit_bytes: int | None = None
    seed: int | None = None
    tensorboard: bool = False
    callbacks: bool = True
    admission_timeout_s: float | None = None


OUT = argument("-o", "--out", type=identifier, metavar="NAME", help="bind the Run to this name")
NAME = argument("--name", default="", metavar="TEXT", help="what lists show")
TIMEOUT = argument("--timeout", dest="timeout_s", type=duration_s, metavar="2h")
ENV_CHECK = argument(
    "--env-check",
    type=one_of("warn", "strict", "off"),
    help="default: refuse what breaks the cell, warn of other differences of environments",
)
CAPTURE_LIMIT = argument(
    "--capture-limit", dest="capture_limit_bytes", type=size_bytes, metavar="2GB"
)
SEED = argument("--seed", type=count(0, 2**32 - 1), metavar="N", help="default: a fresh one")
ADMISSION = argument(
    "--admission-timeout",
    dest="admission_timeout_s",
    type=duration_s,
    metavar="10m",
    help="give up when ranks have waited so long for slots; default: never while others use "
    "them, 10m for slots that are missing",
)
MAX_PARALLEL = argument(
    "--max-parallel", type=count(1), metavar="N", help="slots that it may use at once"
)
MANY_TRIALS = (
    argument("--isolate", action="store_true", help="a fresh process for every trial"),
    argument("--max-failures", type=count(0), default=3, metavar="N", help="default 3"),
    MAX_PARALLEL,
)
"""Of verbs whose runs have many trials."""
COMMON = (
    OUT,
    argument(
        "--bring",
        type=names,
        default=(),
        metavar="A,B",
        help="names to bring home",
        offers="assigned",
    ),
    argument(
        "--bring-files",
        type=patterns,
        default=(),
        metavar="GLOB",
        help="files that ranks write, to bring home from workers with files of their own",
    ),
    argument(
        "--push",
        type=names,
        default=(),
        metavar="A,B",
        help="more names to capture",
        offers="names",
    ),
    NAME,
    argument("-a", "--no-wait", dest="wait", action="store_false", help="return at once"),
    TIMEOUT,
    argument("--dry-run", action="store_true", help="show what would be sent; start nothing"),
    ENV_CHECK,
    argument(
        "--resume", metavar="RUN", help="go on with a run; finished trials are kept", offers="runs"
    ),
    argument(
        "--tensorboard", action="store_true", help="write event files: %tensorboard shows them"
    ),
    argument(
        "--no-callbacks",
        dest="callbacks",
        action="store_false",
        help="Trainer, Lightning, Keras, xgboost and their like do not report by themselves",
    ),
    CAPTURE_LIMIT,
    SEED,
)
"""Of verbs that send their cell."""
