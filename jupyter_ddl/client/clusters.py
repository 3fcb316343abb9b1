"""Clusters from Python: the twin of every ``%cluster`` command."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from jupyter_ddl.binder_mode import check_backend
from jupyter_ddl.client.dask_client import forget_client
from jupyter_ddl.client.kube_options import KUBE, START_TIMEOUT_S, with_image
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import ClusterError, ControllerError, OptionError
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.protocol.cluster import ClusterSpec, KubeSpec, SchedulerSpec
from jupyter_ddl.protocol.replies import ClusterStatus, LogText, Result, StatusResult
from jupyter_ddl.protocol.requests import Adapt, Body, GetLog, GetStatus, Scale, StopCluster
from jupyter_ddl.store.connection import list_connections, read_connection
from jupyter_ddl.store.processes import end_process, is_alive

__all__ = [
    "CONNECT_TIMEOUT_S",
    "DASK",
    "Cluster",
    "attach_cluster",
    "chosen_cluster",
    "connect_cluster",
    "current_cluster",
    "list_clusters",
    "scheduler_spec",
    "start_cluster",
]


# What ``%cluster connect ADDRESS`` makes of the address and of Dask's configuration.

DASK = "dask"
"""Name of the backend, and of its cluster by default."""
CONNECT_TIMEOUT_S = 8.0
_ADDRESS = re.compile(r"(?:(tls|tcp)://)?((?:\[[0-9a-fA-F:.]+\]|[\w.-]+):(\d{1,5}))/?")
_FILES = {
    "ca_file": "distributed.comm.tls.ca-file",
    "cert_file": "distributed.comm.tls.client.cert",
    "key_file": "distributed.comm.tls.client.key",
}


def scheduler_spec(address: str) -> SchedulerSpec:
    """Address and files, checked here: the controller does not know this process's settings.

    Without ``tls://`` or ``tcp://`` before it, TLS is meant.

    Raises
    ------
    OptionError
        The address is not one, Dask's configuration names no files for TLS or such that are not
        there, or forbids plain TCP.
    """
    import dask.config

    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found[3]) < 65536:
        raise OptionError(
            f"{address!r} is not the address of a scheduler; tls://HOST:PORT is expected, or "
            f"tcp://HOST:PORT for one without TLS"
        )
    if found[1] == "tcp":
        if dask.config.get("distributed.comm.require-encryption", None):
            raise OptionError(
                f"{address} is not encrypted, and Dask's configuration asks for it "
                f"(distributed.comm.require-encryption); connect to tls://{found[2]}"
            )
        return SchedulerSpec(f"tcp://{found[2]}")
    files = {field: _existing(field, dask.config.get(key, None)) for field, key in _FILES.items()}
    return SchedulerSpec(
        f"tls://{found[2]}", files["ca_file"], files["cert_file"], files["key_file"]
    )


def _existing(field: str, value: object) -> str:
    if not value:
        raise OptionError(
            f"TLS takes the scheduler's CA and a certificate of ours, and Dask's configuration has "
            f"no {_FILES[field]}; set {', '.join(_FILES.values())}, or connect to tcp://HOST:PORT "
            f"if there is no TLS"
        )
    text = str(value)
    if "\n" in text:  # the certificate itself, as Security.temporary() has it
        raise OptionError(f"{_FILES[field]} in Dask's configuration holds no path of a file")
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise OptionError(f"{_FILES[field]} in Dask's configuration is {text!r}: no such file")
    return str(path)


_STOP_TIMEOUT_S = 20.0
_STOP_ANSWER_S = 5.0
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

    def stop(self) -> None:
        """End the controller and everything below it; unfinished runs stay resumable.

        Raises
        ------
        ControllerError
            It still runs after 20 s; the message gives the pid.
        """
        info = session().info(self.name)
        forget_client(self.name)
        try:
            session().ask(self.name, StopCluster(), _STOP_ANSWER_S)
        except ControllerError:
            # It hangs, or ended just now.  Nothing outlives a controller that is killed.
            end_process(info.process, _STOP_GRACE_S)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while is_alive(info.process):
            if time.monotonic() > deadline:
                raise ControllerError(
                    f"cluster {self.name} did not end within {_STOP_TIMEOUT_S:.0f} s; "
                    f"its controller is pid {info.process.pid}"
                )
            time.sleep(_POLL_S)
        if session().current == self.name:
            session().current = None

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
    kubernetes: KubeSpec | None = None,
    on_phase: Callable[[str], None] = lambda _: None,
) -> Cluster:
    """Start a cluster and make it the one that this process uses.

    Parameters
    ----------
    backend : str
        ``local``, or a backend that another package provides.
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
    kubernetes : KubeSpec, optional
        For ``kube``: image, namespace and what else only pods have.
    on_phase : callable
        Gets one short sentence per step.

    Raises
    ------
    ClusterError
        It can't be started; one sentence says why, and nothing is left running.
    """
    check_backend(backend)  # before an image is looked for, or built
    pods = kubernetes or KubeSpec()
    spec = ClusterSpec(
        name=name or backend,
        backend=backend,
        n_workers=n_workers,
        cpus_per_worker=cpus,
        memory_per_worker_bytes=memory_bytes,
        idle_timeout_s=idle_timeout_s,
        max_age_s=max_age_s,
        kubernetes=with_image(pods, on_phase) if backend == KUBE else pods,
    )
    if backend == KUBE:
        spec = msgspec.structs.replace(spec, start_timeout_s=START_TIMEOUT_S)
    return Cluster(session().start(spec, on_phase))


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
    """Use a Dask scheduler that runs already.

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
        The address is not one, or files for TLS are missing.
    ClusterError
        It can't be used; one sentence says why.
    """
    check_backend(DASK)
    spec = ClusterSpec(
        name=name or DASK,
        backend=DASK,
        cpus_per_worker=cpus,
        memory_per_worker_bytes=memory_bytes,
        idle_timeout_s=idle_timeout_s,
        max_age_s=max_age_s,
        start_timeout_s=CONNECT_TIMEOUT_S,
        scheduler=scheduler_spec(address),
    )
    return Cluster(session().start(spec, on_phase))


def attach_cluster(name: str) -> Cluster:
    """Use a running cluster that was started elsewhere (another kernel, a terminal)."""
    session().attach(name)
    return Cluster(name)


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
    names = ", ".join(each.name for each in running)
    raise ClusterError(f"several clusters are running: {names}; `%cluster attach NAME` chooses one")


def _status(result: Result) -> ClusterStatus:
    if isinstance(result, StatusResult):
        return result.status
    raise ClusterError(f"the controller answered {type(result).__name__} instead of its status")
