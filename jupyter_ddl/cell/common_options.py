"""The options that the verbs of ``%%distribute`` have in common."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Literal, TypeAlias

from jupyter_ddl.cell import values

__all__ = ["ENV_CHECKS", "CommonOptions", "EnvCheck", "add_common", "add_env_check"]

ENV_CHECKS = ("warn", "strict", "off")

EnvCheck: TypeAlias = Literal["warn", "strict", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """What every verb takes.  Sizes in bytes, durations in seconds."""

    out: str | None = None
    bring: tuple[str, ...] = ()
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
    max_parallel: int | None = None
    seed: int | None = None
    tensorboard: bool = False


def add_env_check(parser: argparse.ArgumentParser) -> None:
    """Add the option of every verb whose cells are compared with the workers before they go."""
    parser.add_argument(
        "--env-check",
        type=values.one_of(*ENV_CHECKS),
        metavar="warn|strict|off",
        help="default: refuse what breaks the cell, warn of other differences of environments",
    )


def add_common(parser: argparse.ArgumentParser, *, with_trials: bool) -> None:
    """Add the options to a parser; ``with_trials``: also those of runs with many trials."""
    add = parser.add_argument
    add("-o", "--out", type=values.identifier, metavar="NAME", help="bind the Run to this name")
    add("--bring", type=values.names, default=(), metavar="A,B", help="names to bring home")
    add("--push", type=values.names, default=(), metavar="A,B", help="more names to capture")
    add("--name", default="", metavar="TEXT", help="what lists show")
    add("-a", "--no-wait", dest="wait", action="store_false", help="return at once")
    add("--timeout", dest="timeout_s", type=values.duration_s, metavar="2h")
    add("--dry-run", action="store_true", help="show what would be sent; start nothing")
    add_env_check(parser)
    add("--resume", metavar="RUN", help="go on with a run; finished trials are kept")
    add("--tensorboard", action="store_true", help="write event files: %%tensorboard shows them")
    add("--capture-limit", dest="capture_limit_bytes", type=values.size_bytes, metavar="2GB")
    if with_trials:
        add("--isolate", action="store_true", help="a fresh process for every trial")
        add("--max-failures", type=values.count(0), default=3, metavar="N", help="default 3")
        add("--max-parallel", type=values.count(1), metavar="N", help="trials in flight at once")
    add("--seed", type=values.count(0, 2**32 - 1), metavar="N", help="default: a fresh one")
    add("-h", "--help", action="store_true", help="show this and run nothing")
