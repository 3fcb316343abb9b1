"""The commands of ``jupyter ddl``: those of the magics, in a terminal's order."""

from __future__ import annotations

import argparse

from jupyter_ddl.cell import values
from jupyter_ddl.client.commands import CONNECT, DOCTOR, ENV, RUN_COMMANDS, START
from jupyter_ddl.client.grammar import Command, Grammar
from jupyter_ddl.client.history import add_stop_options

__all__ = ["GRAMMAR"]

_RUN = "an id, a unique beginning of one, or `last`"


def _add_stop(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help=_RUN)
    parser.add_argument("--cluster", metavar="NAME", help="stop a cluster instead of a run")
    add_stop_options(parser)


def _add_logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help=_RUN)
    parser.add_argument("--cluster", metavar="NAME", help="the log of a cluster's controller")
    parser.add_argument("--trial", type=values.count(0), metavar="N", help="default: all trials")
    parser.add_argument("--rank", type=values.count(0), metavar="R", help="default: all ranks")
    parser.add_argument(
        "--lines", type=values.count(1), default=50, metavar="N", help="newest ones"
    )


_SHARED = {command.name: command for command in RUN_COMMANDS}

GRAMMAR = Grammar(
    "jupyter ddl",
    "Clusters and runs of your notebooks, from a terminal.",
    [
        Command("clusters", "All running clusters of yours on this host."),
        Command("runs", "All runs, newest first."),
        START,
        CONNECT,
        ENV,
        DOCTOR,
        Command("stop", "Stop a run or one trial of it, or a cluster.", _add_stop),
        _SHARED["attach"],
        _SHARED["show"],
        Command("logs", "Everything that a run printed, or a controller's log.", _add_logs),
        _SHARED["compare"],
        _SHARED["export"],
        _SHARED["rm"],
    ],
)
