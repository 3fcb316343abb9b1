"""What every line of ``%%distribute`` may say beside what its verb takes."""

from __future__ import annotations

import argparse
import math
import re
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
from jupyter_ddl.protocol.prices import Budget, BudgetUnit

__all__ = [
    "ADMISSION",
    "BRING_FILES",
    "BUDGET",
    "CAPTURE_LIMIT",
    "COMMON",
    "ENV_CHECK",
    "MANY_TRIALS",
    "MAX_PARALLEL",
    "MAX_PROFILED",
    "NAME",
    "OUT",
    "PROFILE",
    "SEED",
    "TIMEOUT",
    "CellOptions",
    "EnvCheck",
    "read_budget",
]

EnvCheck: TypeAlias = Literal["warn", "strict", "off"]


MAX_PROFILED = 100
"""Steps: a trace has some thousand lines for each."""


class CellOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a cell is sent and what comes back.  Sizes in bytes, durations in seconds."""

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
    profile: int | None = None
    budget: Budget | None = None


_BUDGET = re.compile(r"((?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)\s*(cpuh|gpuh)?", re.IGNORECASE)


def read_budget(text: str) -> Budget:
    """A budget from ``20`` (money), ``20cpuh`` or ``2.5gpuh``."""
    match = _BUDGET.fullmatch(text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a budget; expected an amount such as 20, or hours such as 20cpuh or "
            f"2gpuh"
        )
    amount = float(match[1])
    if not 0 < amount < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a budget; it must be above 0")
    return Budget(amount, _UNITS[(match[2] or "").lower()])


_UNITS: dict[str, BudgetUnit] = {"": "money", "cpuh": "cpuh", "gpuh": "gpuh"}
OUT = argument("-o", "--out", type=identifier, metavar="NAME", help="bind the Run to this name")
NAME = argument("--name", default="", metavar="TEXT", help="name of the run in lists")
TIMEOUT = argument(
    "--timeout",
    dest="timeout_s",
    type=duration_s,
    metavar="2h",
    help="stop the run after this time",
)
BUDGET = argument(
    "--budget",
    type=read_budget,
    metavar="20|20cpuh|2gpuh",
    help="end the run after the next reports once it has cost, or held, so much",
)
ENV_CHECK = argument(
    "--env-check",
    type=one_of("warn", "strict", "off"),
    help="when environments differ; default: refuse what breaks the cell, warn of the rest",
)
CAPTURE_LIMIT = argument(
    "--capture-limit",
    dest="capture_limit_bytes",
    type=size_bytes,
    metavar="2GB",
    help="how much data may travel with the cell",
)
SEED = argument(
    "--seed", type=count(0, 2**32 - 1), metavar="N", help="seed of the run; default: a random one"
)
ADMISSION = argument(
    "--admission-timeout",
    dest="admission_timeout_s",
    type=duration_s,
    metavar="10m",
    help="how long ranks may wait for slots; default: no limit while others use them, 10m for "
    "slots that do not exist",
)
MAX_PARALLEL = argument(
    "--max-parallel", type=count(1), metavar="N", help="most slots to use at once"
)
PROFILE = argument(
    "--profile",
    type=count(1, MAX_PROFILED),
    metavar="N",
    help="record N training steps of each rank with torch's profiler (of the first 4 trials)",
)
"""Of verbs whose cells train."""
MANY_TRIALS = (
    argument("--isolate", action="store_true", help="run every trial in a fresh process"),
    argument(
        "--max-failures",
        type=count(0),
        default=3,
        metavar="N",
        help="failures that end a trial; default: 3",
    ),
    MAX_PARALLEL,
)
"""Of verbs whose runs have many trials."""
BRING_FILES = argument(
    "--bring-files",
    type=patterns,
    default=(),
    metavar="GLOB",
    help="files written by ranks to bring back from workers that do not share the notebook's "
    "folder",
)
COMMON = (
    OUT,
    argument(
        "--bring",
        type=names,
        default=(),
        metavar="A,B",
        help="variables to bring back to the notebook",
        offers="assigned",
    ),
    BRING_FILES,
    argument(
        "--push",
        type=names,
        default=(),
        metavar="A,B",
        help="variables to send in addition to those that the cell reads",
        offers="names",
    ),
    NAME,
    argument("-a", "--no-wait", dest="wait", action="store_false", help="do not wait for the run"),
    TIMEOUT,
    BUDGET,
    argument(
        "--dry-run",
        action="store_true",
        help="show what would be sent; start nothing, but the first steps of a ddp cell with "
        "prepare_step, on one rank of the cluster that is there",
    ),
    ENV_CHECK,
    argument(
        "--resume",
        metavar="RUN",
        help="continue a run; finished trials are kept, failed ones have their tries again",
        offers="runs",
    ),
    argument("--tensorboard", action="store_true", help="write event files for %tensorboard"),
    argument(
        "--no-callbacks",
        dest="callbacks",
        action="store_false",
        help="do not let Trainer, Lightning, Keras, xgboost and the like report by themselves",
    ),
    CAPTURE_LIMIT,
    SEED,
)
"""Of verbs that send their cell."""
