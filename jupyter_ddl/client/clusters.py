"""Clusters from Python: the twin of every ``%cluster`` command."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from jupyter_ddl.backends.base import Finding, Report, backend_plugin
from jupyter_ddl.binder_mode import check_backend, in_binder
from jupyter_ddl.client.dask_client import forget_client
from jupyter_ddl.client.elsewhere import delete_named, join_named
from jupyter_ddl.client.link import client_loop
from jupyter_ddl.client.session import chosen_name, session
from jupyter_ddl.errors import ClusterError, ControllerError, JupyterDDLError
from jupyter_ddl.grammar import Argument
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.replies import ClusterStatus, LogText, Result, StatusResult
from jupyter_ddl.protocol.requests import Adapt, Body, GetLog, GetStatus, Scale, StopCluster
from jupyter_ddl.store.connection import holds_name, list_connections, read_connection
from jupyter_ddl.store.processes import end_process, is_alive

__all__ = [
    "Cluster",
    "attach_cluster",
    "chosen_cluster",
    "cluster_spec",
    "connect_cluster",
    "current_cluster",
    "examine_cluster",
    "list_clusters",
    "start_cluster",
]


_CONNECTED = "dask"
"""The backend of a scheduler that is already running."""
_CALL_S = 30.0
_STOP_TIMEOUT_S = 20.0
_STOP_ELSEWHERE_S = 60.0
_STOP_ANSWER_S = 5.0
_STOP_LOOK_S = 2.0
_STOP_GRACE_S = 10.0
_POLL_S = 0.05


class Cluster:
    """A running cluster, by name.  Making one starts nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def status(self) -> ClusterStatus:
        """Workers, slots, runs and leases at this moment."""
        return _status(self._ask(GetStatus()))

    def scale(self, n_workers: int) -> ClusterStatus:
        """Ask for ``n_workers``; busy ones go last when shrinking."""
        return _status(self._ask(Scale(n_workers)))

    def adapt(self, minimum: int, maximum: int) -> ClusterStatus:
        """Let the number of workers follow the trials that could run, within bounds."""
        return _status(self._ask(Adapt(minimum, maximum)))

    def logs(self, worker: str | None = None, n_lines: int = 200) -> str:
        """The newest lines of the controller's log, or those that name ``worker``."""
        result = self._ask(GetLog(worker, n_lines))
        return result.text if isinstance(result, LogText) else ""

    def stop(self, on_phase: Callable[[str], None] = lambda _: None) -> None:
        """End the controller and everything below it; unfinished runs stay resumable.

        Parameters
        ----------
        on_phase : callable
            Gets one short sentence now and then, while runs of a cluster elsewhere are copied here.

        Raises
        ------
        ControllerError
            It still runs after 20 s, or elsewhere a minute after the last file came; the message
            gives the pid.
        """
        info = session().info(self.name)
        is_elsewhere = backend_plugin(info.backend).has_controller_host
        forget_client(self.name)
        try:
            session().ask(self.name, StopCluster(), _STOP_ANSWER_S)
        except ControllerError:
            # It hangs, or ended just now.  Nothing outlives a controller that is killed.
            end_process(info.process, _STOP_GRACE_S)
            if is_elsewhere:  # that was not the controller: whoever knows of the cluster ends it
                delete_named(info.backend, self.name)
        timeout_s = _STOP_ELSEWHERE_S if is_elsewhere else _STOP_TIMEOUT_S
        deadline = time.monotonic() + timeout_s
        looked_s, told = time.monotonic(), ""
        while is_alive(info.process) or holds_name(info.process, self.name):
            if time.monotonic() > deadline:
                who = "its mirror here" if is_elsewhere else "its controller"
                raise ControllerError(
                    f"cluster {self.name} did not end within {timeout_s:.0f} s; "
                    f"{who} is pid {info.process.pid}"
                    f"{'' if is_alive(info.process) else ', in another container'}"
                )
            if is_elsewhere and time.monotonic() - looked_s > _STOP_LOOK_S:
                text, looked_s = self._last_copies(), time.monotonic()
                if text not in ("", told):
                    deadline, told = looked_s + timeout_s, text
                    on_phase(f"cluster {self.name}: {text}")
            time.sleep(_POLL_S)
        if session().current == self.name:
            session().current = None

    def _last_copies(self) -> str:
        """What a cluster elsewhere waits for before it ends; empty where nobody answers."""
        try:
            status = _status(session().ask(self.name, GetStatus(), _STOP_ANSWER_S))
        except JupyterDDLError:
            return ""
        return status.trouble if status.state == "stopping" else ""

    def __repr__(self) -> str:
        return f"<Cluster {self.name}{'' if read_connection(self.name) else ' (not running)'}>"

    def _ask(self, body: Body) -> Result:
        return session().ask(self.name, body)


def start_cluster(
    backend: str = "local",
    n_workers: int | None = None,
    *,
    name: str | None = None,
    cpus: int = 1,
    memory_bytes: int | None = None,
    idle_timeout_s: float = 1800.0,
    max_age_s: float = 86400.0,
    on_phase: Callable[[str], None] = lambda _: None,
    **options: Any,
) -> Cluster:
    """Start a cluster and make it the one that this process uses.

    Parameters
    ----------
    backend : str
        ``local``, or another one that is built in or that a package provides.
    n_workers : int, optional
        By default as many as the container's CPUs and memory allow.
    name : str, optional
        By default the backend's name.
    cpus : int
        CPUs of a worker: threads of numerical libraries in a rank.
    memory_bytes : int, optional
        A rank whose process tree uses more is ended, and its trial fails for memory.
    idle_timeout_s, max_age_s : float
        After how many seconds the cluster ends by itself: without runs and requests, and in all.
    on_phase : callable
        Gets one short sentence per step.
    **options
        The backend's own, as ``%cluster start BACKEND --help`` lists them.

    Raises
    ------
    OptionError
        There is no such backend, or it has no such option.
    ClusterError
        It can't be started; one sentence says why, and nothing is left running.
    """
    spec = cluster_spec(
        backend,
        n_workers,
        name=name,
        cpus=cpus,
        memory_bytes=memory_bytes,
        idle_timeout_s=idle_timeout_s,
        max_age_s=max_age_s,
        **options,
    )
    return Cluster(session().start(spec, on_phase))


def cluster_spec(
    backend: str,
    n_workers: int | None = None,
    *,
    name: str | None = None,
    cpus: int = 1,
    memory_bytes: int | None = None,
    idle_timeout_s: float = 1800.0,
    max_age_s: float = 86400.0,
    **options: Any,
) -> ClusterSpec:
    """What :func:`start_cluster` is to start.

    Raises
    ------
    OptionError
        There is no such backend, or it has no such option.
    ClusterError
        A file that an option names can't be read, or there are no such clusters in Binder.
    """
    if in_binder():
        check_backend(backend)
    plugin = backend_plugin(backend)
    return ClusterSpec(
        name=name or backend,
        backend=backend,
        n_workers=n_workers,
        cpus_per_worker=cpus,
        memory_per_worker_bytes=memory_bytes,
        idle_timeout_s=idle_timeout_s,
        max_age_s=max_age_s,
        start_timeout_s=plugin.start_timeout_s,
        settings=msgspec.to_builtins(plugin.settings(**options)),
    )


def connect_cluster(
    address: str,
    *,
    name: str | None = None,
    cpus: int = 1,
    memory_bytes: int | None = None,
    idle_timeout_s: float = 1800.0,
    max_age_s: float = 86400.0,
    on_phase: Callable[[str], None] = lambda _: None,
) -> Cluster:
    """Use a Dask scheduler that is already running.

    Its workers are never scaled or stopped, and left as they were found.  The files for TLS are
    those of Dask's configuration (``distributed.comm.tls``).

    Parameters
    ----------
    address : str
        ``tls://HOST:PORT``, or ``tcp://HOST:PORT`` for one without TLS.
    name : str, optional
        By default ``dask``.
    cpus, memory_bytes, idle_timeout_s, max_age_s, on_phase
        As for :func:`start_cluster`; at the end of the lease the controller disconnects.

    Raises
    ------
    OptionError
        The address is invalid, or files for TLS are missing.
    ClusterError
        It can't be used; one sentence says why.
    """
    spec = cluster_spec(
        _CONNECTED,
        name=name,
        cpus=cpus,
        memory_bytes=memory_bytes,
        idle_timeout_s=idle_timeout_s,
        max_age_s=max_age_s,
        address=address,
    )
    return Cluster(session().start(spec, on_phase))


def attach_cluster(name: str, on_phase: Callable[[str], None] = lambda _: None) -> Cluster:
    """Use a running cluster that was started elsewhere: another kernel, terminal or host.

    Parameters
    ----------
    on_phase : callable
        Gets one short sentence per step, where the cluster is on another host.

    Raises
    ------
    ClusterError
        None of this name runs, or it can't be used from here.
    """
    troubles = [] if read_connection(name) is not None else join_named(name, on_phase)
    try:
        found = chosen_cluster(name)
    except ClusterError as error:
        raise ClusterError("; ".join((error.message, *troubles))) from None
    session().attach(found.name)
    return found


def current_cluster() -> Cluster | None:
    """The cluster that this process uses, if it is running."""
    name = session().current
    return None if name is None or read_connection(name) is None else Cluster(name)


def list_clusters() -> list[Cluster]:
    """All running clusters of this user on this host, by name."""
    return [Cluster(info.name) for info in list_connections()]


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
    for each in running:
        if each.name == chosen_name():
            return each
    names = ", ".join(each.name for each in running)
    raise ClusterError(f"several clusters are running: {names}; `%cluster attach NAME` chooses one")


def examine_cluster(
    backend: str, *, cpus: int = 1, memory_bytes: int | None = None, **options: Any
) -> Report:
    """What a start of this backend, with these options, would lack; nothing is created.

    Raises
    ------
    OptionError
        There is no such backend, or it has no such option.
    """
    plugin = backend_plugin(backend)
    mine = [each.dest for each in plugin.doctor_arguments if isinstance(each, Argument)]
    asked = {name: options.pop(name) for name in mine if name in options}
    try:
        spec = cluster_spec(backend, cpus=cpus, memory_bytes=memory_bytes, **options)
    except ClusterError as error:
        return Report((Finding("options", "broken", error.message),))
    return client_loop().call(plugin.examine(spec, **asked), _CALL_S)


def _status(result: Result) -> ClusterStatus:
    if isinstance(result, StatusResult):
        return result.status
    raise ClusterError(f"the controller answered {type(result).__name__} instead of its status")
