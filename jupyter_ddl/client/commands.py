"""The commands about clusters and runs, as options and as calls."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from jupyter_ddl.cell import values
from jupyter_ddl.client.clusters import (
    Cluster,
    connect_cluster,
    current_cluster,
    list_clusters,
    start_cluster,
)
from jupyter_ddl.client.grammar import Command, Grammar
from jupyter_ddl.client.history import add_stop_options
from jupyter_ddl.client.kube_options import KUBE, add_kube_options, kube_spec
from jupyter_ddl.errors import ClusterError, OptionError
from jupyter_ddl.nearest import did_you_mean

__all__ = [
    "CLUSTER_GRAMMAR",
    "CONNECT",
    "DOCTOR",
    "ENV",
    "RUNS_GRAMMAR",
    "RUN_COMMANDS",
    "START",
    "chosen_cluster",
    "connect_from",
    "start_from",
]


def _add_start(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("backend", nargs="?", default="local", metavar="BACKEND", help="local by default")
    add("-n", "--workers", type=values.count(0), metavar="N", help="default: what the host allows")
    add("--name", metavar="NAME", help="default: the backend's name")
    _add_lease(parser)
    _add_workers(parser)


def _add_workers(parser: argparse.ArgumentParser) -> None:
    """What each worker is to be."""
    add = parser.add_argument
    add("--cpus", type=values.count(1), default=1, metavar="C", help="CPUs of each worker")
    add("--memory", type=values.size_bytes, metavar="2GB", help="limit of each trial")
    add("--env", metavar="auto|IMAGE|DIR", help="image of the pods, or what it is built of")
    add_kube_options(parser)


def _add_connect(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("address", metavar="ADDRESS", help="tls://HOST:PORT, or tcp://HOST:PORT without TLS")
    add("--name", metavar="NAME", help="default: dask")
    add("--cpus", type=values.count(1), default=1, metavar="C", help="CPUs of each slot")
    add("--memory", type=values.size_bytes, metavar="2GB", help="limit of each trial")
    _add_lease(parser)


def _add_lease(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--idle-timeout",
        type=values.duration_s,
        default=1800.0,
        metavar="30m",
        help="it ends when nothing has run for so long",
    )
    add("--max-age", type=values.duration_s, default=86400.0, metavar="24h", help="and by then")


def _add_worker_logs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("worker", nargs="?", metavar="WORKER", help="name or address of one")
    parser.add_argument("--lines", type=values.count(1), default=50, metavar="N")


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--print-rbac", action="store_true", help="the smallest Role, as YAML")
    _add_workers(parser)


def _add_stop_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="default: the current one")
    parser.add_argument("--all", action="store_true", help="every cluster of yours")


def _add_adapt(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("minimum", type=values.count(0), metavar="MIN")
    parser.add_argument("maximum", type=values.count(0), metavar="MAX")


def _add_env(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        default="show",
        type=values.one_of("show", "check", "sync"),
        metavar="check|sync",
        help="compare with the workers, or install on them what they lack; default: show it",
    )
    parser.add_argument(
        "packages",
        nargs="*",
        metavar="PACKAGE",
        help="what sync installs; default: what the notebook and its cells use",
    )
    parser.add_argument("--all", action="store_true", help="sync everything that is installed here")


ENV = Command("env", "The environment of kernel and workers: shown, compared, synced.", _add_env)

START = Command("start", "Start a cluster and use it from now on.", _add_start)

CONNECT = Command("connect", "Use a Dask scheduler that runs already.", _add_connect)

DOCTOR = Command("doctor", "Check what a cluster on Kubernetes needs.", _add_doctor)

CLUSTER_GRAMMAR = Grammar(
    "%cluster",
    "Start, inspect and stop clusters; without a command: the state of the current one.",
    [
        Command("status", "Workers, slots, limits and when it ends by itself."),
        START,
        CONNECT,
        Command("list", "All running clusters of yours on this host."),
        Command(
            "attach",
            "Use a cluster that was started elsewhere.",
            lambda parser: _add_word(parser, "name", "NAME"),
        ),
        Command(
            "scale",
            "Ask for N workers.",
            lambda parser: _add_count(parser, "n_workers", "N"),
        ),
        Command("adapt", "Let the number of workers follow the work, within bounds.", _add_adapt),
        Command("stop", "End a cluster; unfinished runs stay resumable.", _add_stop_cluster),
        Command("logs", "The newest lines of the controller's log.", _add_worker_logs),
        DOCTOR,
        ENV,
    ],
    bare="status",
)


def _add_word(parser: argparse.ArgumentParser, name: str, metavar: str) -> None:
    parser.add_argument(name, metavar=metavar)


def _add_count(parser: argparse.ArgumentParser, name: str, metavar: str) -> None:
    parser.add_argument(name, type=values.count(0), metavar=metavar)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", help="an id, a unique beginning of one, or `last` (the newest)"
    )


def _add_run_logs(parser: argparse.ArgumentParser) -> None:
    _add_run(parser)
    parser.add_argument("--trial", type=values.count(0), metavar="N", help="default: all trials")
    parser.add_argument("--rank", type=values.count(0), metavar="R", help="default: all ranks")


def _add_stop_run(parser: argparse.ArgumentParser) -> None:
    _add_run(parser)
    add_stop_options(parser)


def _add_compare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", metavar="A")
    parser.add_argument("second", metavar="B")


def _add_export(parser: argparse.ArgumentParser) -> None:
    _add_run(parser)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="a recording (.jsonl, .jsonl.gz), or a page that plays it (.html)",
    )
    target.add_argument("--tensorboard", metavar="DIR", help="event files of TensorBoard")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it is there")


def _add_replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="what `%%runs export` wrote")
    parser.add_argument(
        "--speed", type=float, default=4.0, metavar="X", help="times faster than the run (4)"
    )


def _add_remove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--yes", action="store_true", help="do not ask")


RUN_COMMANDS = (
    Command(
        "show", "What a run was told, what came of it, and the line to run it again.", _add_run
    ),
    Command("attach", "Watch a run until its end; leaving does not stop it.", _add_run),
    Command("stop", "Stop a run, or one trial of it, at its next report.", _add_stop_run),
    Command("logs", "Everything that a run printed.", _add_run_logs),
    Command("compare", "Two runs side by side.", _add_compare),
    Command("export", "Write a run as a recording, as a page, or for TensorBoard.", _add_export),
    Command("rm", "Delete runs: records, logs, checkpoints and values.", _add_remove),
)
"""What ``%runs`` and the terminal call by the same words."""

RUNS_GRAMMAR = Grammar(
    "%runs",
    "Runs on this host, also of other notebooks; without a command: the list.",
    [
        Command("list", "All runs, newest first."),
        *RUN_COMMANDS,
        Command("replay", "Play a recording in the live view; no cluster is needed.", _add_replay),
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
    from jupyter_ddl.backends.registry import check_name

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
