"""``%cluster`` and ``jupyter ddl cluster``: start, inspect and stop clusters."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jupyter_ddl.backends.base import FoundCluster, backend_plugin
from jupyter_ddl.binder_mode import binder_sentence
from jupyter_ddl.client.clusters import (
    Cluster,
    attach_cluster,
    chosen_cluster,
    connect_cluster,
    examine_cluster,
    list_clusters,
    start_cluster,
)
from jupyter_ddl.client.elsewhere import (
    begin_joining,
    clusters_elsewhere,
    delete_elsewhere,
    is_joinable,
)
from jupyter_ddl.client.environment import check_environment, compare_with
from jupyter_ddl.client.session import choose_cluster, session
from jupyter_ddl.commands.face import Answer, Face, Printed
from jupyter_ddl.errors import ClusterError, OptionError, PluginError
from jupyter_ddl.formats import format_counted
from jupyter_ddl.grammar import (
    Argument,
    Command,
    Grammar,
    Group,
    HelpRequested,
    argument,
    count,
    duration_s,
    one_of,
    size_bytes,
)
from jupyter_ddl.plugins import BACKENDS
from jupyter_ddl.protocol.view_messages import FormField, FormOfBackend

__all__ = ["CLUSTER", "form_of", "own_options"]


_LAST_COPY_S = 30.0
"""A cluster elsewhere that does not answer by then is ended without a copy of its runs."""


def _status(face: Face, name: str | None) -> Answer:
    from jupyter_ddl.views.tables import cluster_row, render_cluster

    if mode := binder_sentence():
        face.say(mode)
    if name is None and not list_clusters():
        return Answer(
            "No cluster is running; `%cluster start` starts one, and so does `%%distribute`."
        )
    chosen = chosen_cluster(name)
    _refresh_verdict(face, chosen.name)
    return Answer(render_cluster(cluster_row(chosen.status())))


def _refresh_verdict(face: Face, cluster: str) -> None:
    """Compare again with what the notebook uses; a cluster that does not answer knows no better."""
    if face.imports is None:
        return  # the verdict is of a notebook's kernel, and no terminal's
    try:
        check_environment(cluster, face.imports, face.folder)
    except ClusterError:
        return


def _start(
    face: Face,
    backend: str,
    workers: int | None,
    name: str | None,
    cpus: int,
    memory: int | None,
    idle_timeout: float,
    max_age: float,
    **own: Any,
) -> Answer:
    return _begin(
        face,
        lambda on_phase: start_cluster(
            backend,
            workers,
            name=name,
            cpus=cpus,
            memory_bytes=memory,
            idle_timeout_s=idle_timeout,
            max_age_s=max_age,
            on_phase=on_phase,
            **own,
        ),
    )


def _connect(
    face: Face,
    address: str,
    name: str | None,
    cpus: int,
    memory: int | None,
    idle_timeout: float,
    max_age: float,
) -> Answer:
    return _begin(
        face,
        lambda on_phase: connect_cluster(
            address,
            name=name,
            cpus=cpus,
            memory_bytes=memory,
            idle_timeout_s=idle_timeout,
            max_age_s=max_age,
            on_phase=on_phase,
        ),
    )


def _begin(face: Face, start: Callable[[Callable[[str], None]], Cluster]) -> Answer:
    with face.steps() as steps:
        started = start(steps)
        n_workers = len(started.status().workers)
        steps.done(f"cluster {started.name} is ready with {format_counted(n_workers, 'worker')}")
    resumed = session().resumed
    if not resumed:
        return Answer()
    runs = format_counted(len(resumed), "unfinished run")
    return Answer(f"It goes on with {runs}: {', '.join(resumed)}.")


def _list(face: Face) -> Answer:
    from jupyter_ddl.views.tables import cluster_row, render_clusters

    rows = [cluster_row(each.status()) for each in list_clusters()]
    lines = [_told(each) for each in _elsewhere(face)]
    return Answer(render_clusters(rows, current=session().current, width=face.width), *lines)


def _told(found: FoundCluster) -> str:
    what = f"{found.name} in {found.place} ({format_counted(found.n_workers, 'worker')})"
    if is_joinable(found):
        return f"{what}: `%cluster attach {found.name}` uses it."
    return f"{what} was started elsewhere; `%cluster stop {found.name}` ends it."


def _elsewhere(face: Face) -> list[FoundCluster]:
    found: list[FoundCluster] = []
    for each in clusters_elsewhere():
        if isinstance(each, FoundCluster):
            found.append(each)
        else:
            face.say(each.message)
    return found


def _attach(face: Face, name: str, always: bool) -> Answer:
    with face.steps() as steps:
        found = attach_cluster(name, steps)
        steps.done("connected")
    size = format_counted(len(found.status().workers), "worker")
    if always:
        choose_cluster(found.name)
    elif not face.is_notebook:
        return Answer(f"Cluster {found.name} runs, and this host's notebooks can use it ({size}).")
    where = ", and in notebooks that have chosen none" if always else ""
    return Answer(f"Cluster {found.name} is used from now on ({size}){where}.")


def _scale(_: Face, n_workers: int, name: str | None) -> Answer:
    status = chosen_cluster(name).scale(n_workers)
    return Answer(f"Cluster {status.name}: {format_counted(status.n_wanted, 'worker')} wanted.")


def _adapt(_: Face, minimum: int, maximum: int, name: str | None) -> Answer:
    status = chosen_cluster(name).adapt(minimum, maximum)
    return Answer(f"Cluster {status.name}: between {minimum} and {maximum} workers.")


def _stop(face: Face, name: str | None, all: bool) -> Answer:  # noqa: A002
    if all and name:
        raise OptionError(f"%cluster stop: either {name} or --all, not both")
    targets = list_clusters()
    is_here = name is None or name in {each.name for each in targets}
    elsewhere = _elsewhere(face) if all or not is_here else []
    if not all:
        elsewhere = [each for each in elsewhere if each.name == name]
        targets = [] if elsewhere else [chosen_cluster(name)]
    if not targets and not elsewhere:
        return Answer("No cluster is running.")
    for each in targets:
        plugin = backend_plugin(session().info(each.name).backend)
        with face.steps() as steps:
            each.stop(steps)
        face.say(f"Cluster {each.name} {plugin.stopped}.")
    for found in elsewhere:
        _end_elsewhere(face, found)
        face.say(f"Cluster {found.name} in {found.place} is deleted.")
    return Answer()


def _end_elsewhere(face: Face, found: FoundCluster) -> None:
    """End a cluster that no process here stands for; its runs are copied before, if they can be."""
    if is_joinable(found):
        with face.steps() as steps:
            steps(f"copying the runs of cluster {found.name} in {found.place}")
            joining = begin_joining(found)
            trouble = joining.outcome(_LAST_COPY_S)
            if not trouble:
                Cluster(found.name).stop(steps)
                return
        if not joining.is_over:
            raise ClusterError(
                f"cluster {found.name} is not ended: its runs are still being copied here after "
                f"{_LAST_COPY_S:.0f} s; `%cluster stop {found.name}` again copies the rest and "
                f"ends it"
            )
        face.say(f"Its runs are not copied: {trouble}")
    delete_elsewhere(found)


def _logs(_: Face, worker: str | None, lines: int, name: str | None) -> Answer:
    text = chosen_cluster(name).logs(worker, lines)
    return Answer(Printed(text.rstrip()) or "The log has no such lines.")


def _doctor(_: Face, backend: str, cpus: int, memory: int | None, **own: Any) -> Answer:
    report = examine_cluster(backend, cpus=cpus, memory_bytes=memory, **own)
    return Answer(str(report), is_good=not report.is_broken)


def _env(
    face: Face,
    action: str,
    packages: Sequence[str],
    all: bool,  # noqa: A002
    name: str | None,
) -> Answer:
    if action == "show":
        return _show_environment(face)
    chosen = chosen_cluster(name).name
    if action == "check":
        return _check_environment(face, chosen)
    return _sync_environment(face, chosen, packages, all)


def _show_environment(face: Face) -> Answer:
    from jupyter_ddl.environment.binder import has_configuration, read_configuration
    from jupyter_ddl.environment.compare import kernel_environment
    from jupyter_ddl.views.environment import render_environment

    asked = read_configuration(face.folder) if has_configuration(face.folder) else None
    kernel = kernel_environment()
    used = sorted(kernel.scope(face.imports).direct) if face.imports is not None else ()
    return Answer(render_environment(asked, kernel.facts(), used, width=face.width))


def _check_environment(face: Face, cluster: str) -> Answer:
    from jupyter_ddl.views.environment import render_verdict

    if face.imports is None:  # what cells are compared with is not changed by a terminal
        checked = compare_with(cluster, None, face.folder)
    else:  # judged as a cell would be that uses all that the notebook does
        checked = check_environment(cluster, face.imports, face.folder)
    return Answer(
        render_verdict(checked.verdict, checked.notes, width=face.width),
        is_good=checked.verdict.word == "same",
    )


def _sync_environment(
    face: Face, cluster: str, packages: Sequence[str], everything: bool
) -> Answer:
    from jupyter_ddl.client.sync import sync_environment, synced_lines

    if face.imports is None and not packages and not everything:
        raise OptionError(
            "env sync: name packages, or pass --all; only a notebook knows by itself what it uses"
        )
    with face.steps() as steps:
        synced = sync_environment(
            cluster,
            imports=() if packages or face.imports is None else face.imports,
            packages=packages,
            everything=everything,
            on_phase=steps,
        )
        steps.done("done")
    _refresh_verdict(face, cluster)
    return Answer(*synced_lines(synced))


_LEASE = (
    argument(
        "--idle-timeout",
        type=duration_s,
        default=1800.0,
        metavar="30m",
        help="how long it may be idle before it ends",
    ),
    argument(
        "--max-age", type=duration_s, default=86400.0, metavar="24h", help="its longest lifetime"
    ),
)
_SIZE = (
    argument(
        "--cpus", type=count(1), default=1, metavar="C", help="CPUs of each worker; default: 1"
    ),
    argument("--memory", type=size_bytes, metavar="2GB", help="memory limit of each trial"),
)
_BACKEND = argument(
    "backend",
    nargs="?",
    default="local",
    metavar="BACKEND",
    help="local by default; `BACKEND --help` lists its own options",
    offers=BACKENDS.names,
)
_WHICH = argument(
    "--name", metavar="NAME", help="which cluster; default: the one in use", offers="clusters"
)


def _own_arguments(backend: str) -> tuple[Argument | Group, ...]:
    """Options of a start that only this backend has."""
    plugin = backend_plugin(backend)
    if plugin.command != "start":
        raise OptionError(
            f"backend {backend!r} starts nothing; `%cluster {plugin.command}` uses what is already "
            f"running, `%cluster {plugin.command} --help` says how"
        )
    return plugin.arguments


def form_of(backend: str) -> FormOfBackend:
    """What a form for this backend asks for: the options of its start, as Tab and ``--help`` know
    them."""
    try:
        plugin = backend_plugin(backend)
    except PluginError as error:
        return FormOfBackend(backend, "", error.message)
    return FormOfBackend(
        backend,
        plugin.purpose,
        plugin.missing(),
        plugin.command == "start",
        tuple(map(_field, Command("", "", plugin.arguments).each())),
    )


def _field(one: Argument) -> FormField:
    flag = max(one.flags, key=len)
    action = one.settings.get("action", "")
    metavar = str(one.settings.get("metavar") or one.dest.upper()) if one.takes_value else ""
    return FormField(
        flag,
        str(one.settings.get("help", "")).replace("%%", "%"),
        metavar,
        one.values({}),
        action == "append" or one.settings.get("nargs") in ("*", "+"),
    )


def own_options(backend: str, words: Sequence[str]) -> dict[str, Any]:
    """A backend's own options, from words as they would be typed.

    Raises
    ------
    OptionError
        There is no such backend or option, or a value is not one.
    """
    command = Command("start", "", backend_plugin(backend).arguments)
    try:
        return Grammar("%cluster", "", [command]).parse(["start", *words])[1]
    except HelpRequested:
        raise OptionError(f"%cluster start {backend}: --help is no option of a form") from None


def _to_examine(backend: str) -> tuple[Argument | Group, ...]:
    plugin = backend_plugin(backend)
    return (*plugin.doctor_arguments, *plugin.arguments)


def _of_another(command: str, own: Callable[[str], tuple[Argument | Group, ...]], flag: str) -> str:
    """Which backend has an option that this one has not."""
    for name in BACKENDS.names():
        with contextlib.suppress(PluginError, OptionError):
            if flag in Command(name, "", own(name)).options():
                return f"; backend {name} has it: `%cluster {command} {name} {flag} …`"
    return ""


CLUSTER = Grammar(
    "%cluster",
    "Start, inspect and stop clusters; without a command: the state of the current one.",
    [
        Command("status", "Workers, slots, limits and when it ends by itself.", (_WHICH,), _status),
        Command(
            "start",
            "Start a cluster and use it from now on.",
            (
                _BACKEND,
                argument(
                    "-n",
                    "--workers",
                    type=count(0),
                    metavar="N",
                    help="default: what the host allows",
                ),
                argument("--name", metavar="NAME", help="default: the backend's name"),
                *_LEASE,
                *_SIZE,
            ),
            _start,
            more=_own_arguments,
            elsewhere=partial(_of_another, "start", _own_arguments),
        ),
        Command(
            "connect",
            "Use a Dask scheduler that is already running.",
            (
                *backend_plugin("dask").arguments,
                argument("--name", metavar="NAME", help="default: dask"),
                *_SIZE,
                *_LEASE,
            ),
            _connect,
        ),
        Command(
            "list",
            "All running clusters of yours, on this host and where services know them.",
            (),
            _list,
        ),
        Command(
            "attach",
            "Use a cluster that was started elsewhere: in another notebook, or on another host.",
            (
                argument("name", metavar="NAME", offers="clusters"),
                argument(
                    "--always",
                    action="store_true",
                    help="also in notebooks that have chosen none, while it runs",
                ),
            ),
            _attach,
        ),
        Command(
            "scale",
            "Ask for N workers.",
            (argument("n_workers", type=count(0), metavar="N"), _WHICH),
            _scale,
        ),
        Command(
            "adapt",
            "Let the number of workers follow the work, within bounds.",
            (
                argument("minimum", type=count(0), metavar="MIN"),
                argument("maximum", type=count(0), metavar="MAX"),
                _WHICH,
            ),
            _adapt,
        ),
        Command(
            "stop",
            "End a cluster; unfinished runs stay resumable.",
            (
                argument(
                    "name",
                    nargs="?",
                    metavar="NAME",
                    help="default: the one in use",
                    offers="clusters",
                ),
                argument("--all", action="store_true", help="every cluster of yours"),
            ),
            _stop,
        ),
        Command(
            "logs",
            "The newest lines of the controller's log.",
            (
                argument("worker", nargs="?", metavar="WORKER", help="name or address of one"),
                argument(
                    "--lines", type=count(1), default=50, metavar="N", help="how many; default 50"
                ),
                _WHICH,
            ),
            _logs,
        ),
        Command(
            "doctor",
            "Check what a cluster of a backend needs; takes the options of a start.",
            (_BACKEND, *_SIZE),
            _doctor,
            more=_to_examine,
            elsewhere=partial(_of_another, "doctor", _to_examine),
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
                _WHICH,
            ),
            _env,
        ),
    ],
    bare="status",
)
