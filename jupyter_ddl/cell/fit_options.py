"""The options of ``%%distribute fit``: the cell runs in the notebook, its fits on the cluster."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from jupyter_ddl.cell import values
from jupyter_ddl.cell.common_options import EnvCheck, add_env_check

__all__ = ["FitOptions", "add_fit"]


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


def add_fit(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    add = parser.add_argument
    add("-o", "--out", type=values.identifier, metavar="NAME", help="bind the Run to this name")
    add("--name", default="", metavar="TEXT", help="what lists show")
    add("--timeout", dest="timeout_s", type=values.duration_s, metavar="2h")
    add("--resume", metavar="RUN", help="take from a run what it has; compute the rest")
    add("--max-parallel", type=values.count(1), metavar="N", help="slots that it may use")
    add(
        "--memory",
        dest="memory_bytes",
        type=values.size_bytes,
        metavar="2GB",
        help="for shared transformed data, per host; default: a quarter of the host's",
    )
    add("--capture-limit", dest="capture_limit_bytes", type=values.size_bytes, metavar="2GB")
    add("--seed", type=values.count(0, 2**32 - 1), metavar="N", help="default: a fresh one")
    add_env_check(parser)
    add("-h", "--help", action="store_true", help="show this and run nothing")
