"""The commands of ``jupyter ddl``: those of the magics, in a terminal's order."""

from __future__ import annotations

from jupyter_ddl.client.commands import CLUSTER, RUNS
from jupyter_ddl.client.history import STOP_OPTIONS
from jupyter_ddl.grammar import Command, Grammar, argument, count

__all__ = ["GRAMMAR"]

_RUN = argument(
    "run",
    nargs="?",
    metavar="RUN",
    help="an id, a unique beginning of one, or `last`",
    offers="runs",
)

GRAMMAR = Grammar(
    "jupyter ddl",
    "Clusters and runs of your notebooks, from a terminal.",
    [
        Command("clusters", "All running clusters of yours on this host."),
        Command("runs", "All runs, newest first."),
        *(CLUSTER.commands[name] for name in ("start", "connect", "env", "doctor")),
        Command(
            "stop",
            "Stop a run or one trial of it, or a cluster.",
            (
                _RUN,
                argument("--cluster", metavar="NAME", help="stop a cluster instead of a run"),
                *STOP_OPTIONS,
            ),
        ),
        *(RUNS.commands[name] for name in ("attach", "show")),
        Command(
            "logs",
            "Everything that a run printed, or a controller's log.",
            (
                _RUN,
                argument("--cluster", metavar="NAME", help="the log of a cluster's controller"),
                argument("--trial", type=count(0), metavar="N", help="default: all trials"),
                argument("--rank", type=count(0), metavar="R", help="default: all ranks"),
                argument("--lines", type=count(1), default=50, metavar="N", help="newest ones"),
            ),
        ),
        *(RUNS.commands[name] for name in ("compare", "export", "rm")),
    ],
)
