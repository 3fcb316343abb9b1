"""``%cluster``: start, inspect and stop clusters."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any

from IPython.display import display

from jupyter_ddl.errors import ClusterError, OptionError
from jupyter_ddl.magics.cell_output import Phases, say
from jupyter_ddl.magics.environment import environment, refresh_verdict
from jupyter_ddl.magics.expansion import expand_line
from jupyter_ddl.magics.failures import shown

__all__ = ["cluster"]


def cluster(shell: Any, line: str) -> None:
    """Carry out one ``%cluster`` line."""
    from jupyter_ddl.client.commands import CLUSTER

    with shown():
        command, values = CLUSTER.parse_line(expand_line(line, shell.user_ns))
        _ACTIONS[command.name](Namespace(**values))


def _status(_: Namespace) -> None:
    from jupyter_ddl.binder_mode import binder_sentence
    from jupyter_ddl.client.clusters import current_cluster, list_clusters
    from jupyter_ddl.client.commands import chosen_cluster
    from jupyter_ddl.views.tables import cluster_row, render_cluster

    if mode := binder_sentence():
        say(mode)
    if current_cluster() is None and not list_clusters():
        say("No cluster is running; `%cluster start` starts one, and so does `%%distribute`.")
        return
    chosen = chosen_cluster()
    refresh_verdict(chosen.name)
    display(render_cluster(cluster_row(chosen.status())))


def _start(options: Namespace) -> None:
    from jupyter_ddl.client.commands import start_from

    _begin(lambda phases: start_from(options, phases))


def _connect(options: Namespace) -> None:
    from jupyter_ddl.client.commands import connect_from

    _begin(lambda phases: connect_from(options, phases))


def _begin(start: Callable[[Phases], Any]) -> None:
    from jupyter_ddl.client.session import session

    with Phases() as phases:
        started = start(phases)
        n_workers = len(started.status().workers)
        phases.done(f"cluster {started.name} is ready with {_counted(n_workers, 'worker')}")
    resumed = session().resumed
    if resumed:
        say(f"It goes on with {_counted(len(resumed), 'unfinished run')}: {', '.join(resumed)}.")


def _list(_: Namespace) -> None:
    from jupyter_ddl.client.clusters import list_clusters
    from jupyter_ddl.client.session import session
    from jupyter_ddl.views.lists import render_clusters
    from jupyter_ddl.views.tables import cluster_row

    rows = [cluster_row(each.status()) for each in list_clusters()]
    display(render_clusters(rows, current=session().current))
    for each in _elsewhere():
        say(
            f"{each.name} in namespace {each.namespace} ({_counted(each.n_workers, 'worker')}) was "
            f"started elsewhere; `%cluster stop {each.name}` ends it."
        )


def _elsewhere() -> list[Any]:
    from jupyter_ddl.client.kube_clusters import clusters_elsewhere

    try:
        return list(clusters_elsewhere())
    except ClusterError as error:
        say(f"Clusters on Kubernetes are not listed: {error.message}")
        return []


def _attach(options: Namespace) -> None:
    from jupyter_ddl.client.clusters import attach_cluster
    from jupyter_ddl.client.commands import chosen_cluster

    found = attach_cluster(chosen_cluster(options.name).name)
    say(f"Cluster {found.name} is used from now on ({_size(found)}).")


def _scale(options: Namespace) -> None:
    from jupyter_ddl.client.commands import chosen_cluster

    status = chosen_cluster().scale(options.n_workers)
    say(f"Cluster {status.name}: {_counted(status.n_wanted, 'worker')} wanted.")


def _adapt(options: Namespace) -> None:
    from jupyter_ddl.client.commands import chosen_cluster

    status = chosen_cluster().adapt(options.minimum, options.maximum)
    say(f"Cluster {status.name}: between {options.minimum} and {options.maximum} workers.")


def _stop(options: Namespace) -> None:
    from jupyter_ddl.client.clusters import DASK, list_clusters
    from jupyter_ddl.client.commands import chosen_cluster
    from jupyter_ddl.client.kube_clusters import delete_elsewhere
    from jupyter_ddl.client.session import session

    if options.all and options.name:
        raise OptionError(f"%cluster stop: either {options.name} or --all, not both")
    running = list_clusters()
    elsewhere = _elsewhere() if options.all or options.name else []
    if not options.all:
        elsewhere = [each for each in elsewhere if each.name == options.name]
    if options.all:
        targets = running
    elif elsewhere and options.name not in {each.name for each in running}:
        targets = []
    else:
        targets, elsewhere = [chosen_cluster(options.name)], []
    if not targets and not elsewhere:
        say("No cluster is running.")
    for each in targets:
        backend = session().info(each.name).backend
        each.stop()
        goes_on = "is left, and goes on where it was started"
        say(f"Cluster {each.name} {goes_on if backend == DASK else 'has ended'}.")
    for found in elsewhere:
        delete_elsewhere(found)
        say(f"Cluster {found.name} in namespace {found.namespace} is deleted.")


def _doctor(options: Namespace) -> None:
    from jupyter_ddl.client.kube_clusters import examine_from, print_rbac

    if options.print_rbac:
        say(print_rbac(options.namespace).rstrip())
        return
    say("\n".join(f"{f.verdict:<8}{f.what}: {f.text}" for f in examine_from(options)))


def _logs(options: Namespace) -> None:
    from jupyter_ddl.client.commands import chosen_cluster

    text = chosen_cluster().logs(options.worker, options.lines)
    say(text.rstrip() or "The log has no such lines.")


def _size(found: Any) -> str:
    return _counted(len(found.status().workers), "worker")


def _counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


_ACTIONS: dict[str, Callable[[Namespace], None]] = {
    "status": _status,
    "start": _start,
    "connect": _connect,
    "list": _list,
    "attach": _attach,
    "scale": _scale,
    "adapt": _adapt,
    "stop": _stop,
    "logs": _logs,
    "doctor": _doctor,
    "env": environment,
}
