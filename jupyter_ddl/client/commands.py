"""The commands about clusters and runs, as options and as calls."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from jupyter_ddl.backends.registry import backend_names, check_name
from jupyter_ddl.client.clusters import (
    Cluster,
    connect_cluster,
    current_cluster,
    list_clusters,
    start_cluster,
)
from jupyter_ddl.client.history import STOP_OPTIONS
from jupyter_ddl.client.kube_options import KUBE, ON_KUBERNETES, kube_spec
from jupyter_ddl.errors import ClusterError, OptionError
from jupyter_ddl.grammar import (
    Command,
    Grammar,
    Group,
    argument,
    count,
    duration_s,
    one_of,
    size_bytes,
)
from jupyter_ddl.nearest import did_you_mean

__all__ = ["CLUSTER", "RUNS", "chosen_cluster", "connect_from", "start_from"]


_LEASE = (
    argument(
        "--idle-timeout",
        type=duration_s,
        default=1800.0,
        metavar="30m",
        help="it ends when nothing has run for so long",
    ),
    argument("--max-age", type=duration_s, default=86400.0, metavar="24h", help="and by then"),
)
_SIZE = (
    argument("--cpus", type=count(1), default=1, metavar="C", help="CPUs of each worker"),
    argument("--memory", type=size_bytes, metavar="2GB", help="limit of each trial"),
)
_WORKERS = (
    *_SIZE,
    argument("--env", metavar="auto|IMAGE|DIR", help="image of the pods, or what it is built of"),
    ON_KUBERNETES,
)
"""What each worker is to be."""
_LINES = argument("--lines", type=count(1), default=50, metavar="N", help="newest ones")
_RUN = argument(
    "run",
    metavar="RUN",
    help="an id, a unique beginning of one, or `last` (the newest)",
    offers="runs",
)

CLUSTER = Grammar(
    "%cluster",
    "Start, inspect and stop clusters; without a command: the state of the current one.",
    [
        Command("status", "Workers, slots, limits and when it ends by itself."),
        Command(
            "start",
            "Start a cluster and use it from now on.",
            (
                argument(
                    "backend",
                    nargs="?",
                    default="local",
                    metavar="BACKEND",
                    help="local by default",
                    offers=backend_names,
                ),
                argument(
                    "-n",
                    "--workers",
                    type=count(0),
                    metavar="N",
                    help="default: what the host allows",
                ),
                argument("--name", metavar="NAME", help="default: the backend's name"),
                *_LEASE,
                *_WORKERS,
            ),
        ),
        Command(
            "connect",
            "Use a Dask scheduler that runs already.",
            (
                argument(
                    "address",
                    metavar="ADDRESS",
                    help="tls://HOST:PORT, or tcp://HOST:PORT without TLS",
                ),
                argument("--name", metavar="NAME", help="default: dask"),
                *_SIZE,
                *_LEASE,
            ),
        ),
        Command("list", "All running clusters of yours on this host."),
        Command(
            "attach",
            "Use a cluster that was started elsewhere.",
            (argument("name", metavar="NAME", offers="clusters"),),
        ),
        Command(
            "scale", "Ask for N workers.", (argument("n_workers", type=count(0), metavar="N"),)
        ),
        Command(
            "adapt",
            "Let the number of workers follow the work, within bounds.",
            (
                argument("minimum", type=count(0), metavar="MIN"),
                argument("maximum", type=count(0), metavar="MAX"),
            ),
        ),
        Command(
            "stop",
            "End a cluster; unfinished runs stay resumable.",
            (
                argument(
                    "name",
                    nargs="?",
                    metavar="NAME",
                    help="default: the current one",
                    offers="clusters",
                ),
                argument("--all", action="store_true", help="every cluster of yours"),
            ),
        ),
        Command(
            "logs",
            "The newest lines of the controller's log.",
            (
                argument("worker", nargs="?", metavar="WORKER", help="name or address of one"),
                _LINES,
            ),
        ),
        Command(
            "doctor",
            "Check what a cluster on Kubernetes needs.",
            (
                argument("--print-rbac", action="store_true", help="the smallest Role, as YAML"),
                *_WORKERS,
            ),
        ),
        Command(
            "env",
            "The environment of kernel and workers: shown, compared, synced.",
            (
                argument(
                    "action",
                    nargs="?",
                    default="show",
                    type=one_of("show", "check", "sync"),
                    metavar="check|sync",
                    help="compare with the workers, or install on them what they lack; "
                    "default: show it",
                ),
                argument(
                    "packages",
                    nargs="*",
                    metavar="PACKAGE",
                    help="what sync installs; default: what the notebook and its cells use",
                ),
                argument(
                    "--all", action="store_true", help="sync everything that is installed here"
                ),
            ),
        ),
    ],
    bare="status",
)

RUNS = Grammar(
    "%runs",
    "Runs on this host, also of other notebooks; without a command: the list.",
    [
        Command("list", "All runs, newest first."),
        Command(
            "show", "What a run was told, what came of it, and the line to run it again.", (_RUN,)
        ),
        Command("attach", "Watch a run until its end; leaving does not stop it.", (_RUN,)),
        Command(
            "stop", "Stop a run, or one trial of it, at its next report.", (_RUN, *STOP_OPTIONS)
        ),
        Command(
            "logs",
            "Everything that a run printed.",
            (
                _RUN,
                argument("--trial", type=count(0), metavar="N", help="default: all trials"),
                argument("--rank", type=count(0), metavar="R", help="default: all ranks"),
            ),
        ),
        Command(
            "compare",
            "Two runs side by side.",
            (
                argument("first", metavar="A", offers="runs"),
                argument("second", metavar="B", offers="runs"),
            ),
        ),
        Command(
            "export",
            "Write a run as a recording, as a page, or for TensorBoard.",
            (
                _RUN,
                Group(
                    (
                        argument(
                            "file",
                            nargs="?",
                            metavar="FILE",
                            help="a recording (.jsonl, .jsonl.gz), or a page that plays it (.html)",
                        ),
                        argument("--tensorboard", metavar="DIR", help="event files of TensorBoard"),
                    ),
                    exclusive=True,
                    required=True,
                ),
                argument(
                    "--overwrite", action="store_true", help="replace the file if it is there"
                ),
            ),
        ),
        Command(
            "rm",
            "Delete runs: records, logs, checkpoints and values.",
            (
                argument("runs", nargs="+", metavar="RUN", offers="runs"),
                argument("--yes", action="store_true", help="do not ask"),
            ),
        ),
        Command(
            "replay",
            "Play a recording in the live view; no cluster is needed.",
            (
                argument("file", metavar="FILE", help="what `%runs export` wrote"),
                argument(
                    "--speed",
                    type=float,
                    default=4.0,
                    metavar="X",
                    help="times faster than the run (4)",
                ),
            ),
            only_in_notebooks=True,
        ),
    ],
    bare="list",
)


def start_from(
    options: argparse.Namespace, on_phase: Callable[[str], None] = lambda _: None
) -> Cluster:
    """Start the cluster that the options of ``start`` describe.

    Raises
    ------
    OptionError
        An option is given that the backend does not have.
    ClusterError
        It can't be started; one sentence says why.
    """
    if options.backend in ("kubernetes", "k8s"):
        options.backend = KUBE
    check_name(options.backend)  # before options are said to be another's
    kubernetes = kube_spec(options)
    if options.env is not None and options.backend != KUBE:
        raise OptionError("--env is for clusters on Kubernetes; a local one uses this environment")
    return start_cluster(
        options.backend,
        options.workers,
        name=options.name,
        cpus=options.cpus,
        memory_bytes=options.memory,
        idle_timeout_s=options.idle_timeout,
        max_age_s=options.max_age,
        kubernetes=kubernetes,
        on_phase=on_phase,
    )


def connect_from(
    options: argparse.Namespace, on_phase: Callable[[str], None] = lambda _: None
) -> Cluster:
    """Use the scheduler that the options of ``connect`` name.

    Raises
    ------
    OptionError
        The address is not one, or files for TLS are missing.
    ClusterError
        It can't be used; one sentence says why.
    """
    return connect_cluster(
        options.address,
        name=options.name,
        cpus=options.cpus,
        memory_bytes=options.memory,
        idle_timeout_s=options.idle_timeout,
        max_age_s=options.max_age,
        on_phase=on_phase,
    )


def chosen_cluster(name: str | None = None) -> Cluster:
    """The cluster of this name; without one the current one, or the only one that runs.

    Raises
    ------
    ClusterError
        There is none, or there are several.
    """
    running = list_clusters()
    if name is not None:
        names = ", ".join(each.name for each in running) or "none"
        for each in running:
            if each.name == name:
                return each
        hint = did_you_mean(name, [each.name for each in running])
        raise ClusterError(f"no cluster named {name!r} is running; running: {names}{hint}")
    current = current_cluster()
    if current is not None:
        return current
    if len(running) == 1:
        return running[0]
    if not running:
        raise ClusterError("no cluster is running; `%cluster start` starts one")
    names = ", ".join(each.name for each in running)
    raise ClusterError(f"several clusters are running: {names}; `%cluster attach NAME` chooses one")
