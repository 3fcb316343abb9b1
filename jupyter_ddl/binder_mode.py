"""Binder mode: clusters that fit into a container of BinderHub, and nothing that needs a secret.

Such a container has about one CPU and 2 GB for everything, and is deleted when its visitor leaves.
It is recognised by the variables that BinderHub sets.  Clusters are local there, as small as the
container, and end soon; whoever runs a BinderHub with a cluster beside it names the backend in
``JUPYTER_DDL_BINDER`` (``gateway``, for one; several separated by commas; ``off`` ends the mode).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

import msgspec

from jupyter_ddl.backends.base import n_local_workers
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.formats import format_bytes, format_counted, format_duration
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.store.host_limits import HostLimits, host_limits

__all__ = ["binder_limits", "binder_sentence", "check_backend", "in_binder", "sized_for_binder"]

CONFIGURED = "JUPYTER_DDL_BINDER"
_VARIABLES = (
    "BINDER_LAUNCH_HOST",
    "BINDER_PERSISTENT_REQUEST",
    "BINDER_REF_URL",
    "BINDER_REPO_URL",
    "BINDER_REQUEST",
    "BINDER_SERVICE_HOST",
)
"""Of BinderHub's spawner, and of the service that it is in its own namespace."""
_IDLE_S = 600.0
"""BinderHub deletes a container that nobody has used for ten minutes."""
_MOST_WORKERS = 2
"""Where a hub sets no limits, all of its node would be ours."""
_NOTEBOOK_BYTES = 700 << 20
"""Jupyter's server, a kernel with torch imported and the controller."""
_WORKER_BYTES = 250 << 20
"""A worker and its zygote with torch imported."""
_RANK_BYTES = 256 << 20
"""The least that is worth being called a share."""


def in_binder(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process runs in a container of BinderHub, and the mode is not switched off."""
    is_off = environ.get(CONFIGURED, "").strip().lower() == "off"
    return not is_off and any(environ.get(name) for name in _VARIABLES)


def binder_limits(environ: Mapping[str, str] = os.environ) -> HostLimits:
    """What the container may use: its cgroup's limits, and those that JupyterHub says it has."""
    limits = host_limits()
    cpus, memory_bytes = limits.cpus, limits.memory_bytes
    with contextlib.suppress(ValueError, OverflowError):
        cpus = min(cpus, max(1, int(float(environ.get("CPU_LIMIT", "inf")))))
    with contextlib.suppress(ValueError, OverflowError):
        memory_bytes = min(memory_bytes, int(float(environ.get("MEM_LIMIT", "inf"))))
    return HostLimits(cpus=cpus, memory_bytes=memory_bytes)


def check_backend(backend: str, environ: Mapping[str, str] = os.environ) -> None:
    """Let only those backends through that work in Binder.

    Raises
    ------
    ClusterError
        It is neither local nor configured.
    """
    configured = {name.strip() for name in environ.get(CONFIGURED, "").split(",")}
    if not in_binder(environ) or backend == "local" or backend in configured:
        return
    raise ClusterError(
        f"a cluster of backend {backend} was asked for in Binder, where clusters are local: "
        f"`%cluster start`; `%env {CONFIGURED}={backend}` if this Binder has one for you"
    )


def sized_for_binder(spec: ClusterSpec, environ: Mapping[str, str] = os.environ) -> ClusterSpec:
    """The cluster that is started in Binder in place of ``spec``; elsewhere it is ``spec`` itself.

    What was chosen stays as it is, but for the idle time, which no container outlives.

    Raises
    ------
    ClusterError
        Its backend does not work in Binder, or so many workers do not fit into the container.
    """
    if not in_binder(environ):
        return spec
    check_backend(spec.backend, environ)
    spec = msgspec.structs.replace(spec, idle_timeout_s=min(spec.idle_timeout_s, _IDLE_S))
    if spec.backend != "local":
        return spec
    limits = binder_limits(environ)
    left_bytes = max(0, limits.memory_bytes - _NOTEBOOK_BYTES)
    n_workers = spec.n_workers
    if n_workers is None:
        fitting = n_local_workers(limits.cpus, left_bytes, spec.cpus_per_worker)
        n_workers = min(_MOST_WORKERS, fitting)
    memory_bytes = spec.memory_per_worker_bytes
    if memory_bytes is None:
        memory_bytes = left_bytes // max(1, n_workers) - _WORKER_BYTES
        if n_workers > 1 and memory_bytes < _RANK_BYTES:
            n_most = max(1, left_bytes // (_WORKER_BYTES + _RANK_BYTES))
            raise ClusterError(
                f"{n_workers} workers were asked for in Binder, and "
                f"{format_bytes(limits.memory_bytes)} hold {n_most}; "
                f"`%cluster start -n {n_most}`, or give --memory for each"
            )
        memory_bytes = max(memory_bytes, _RANK_BYTES)
    return msgspec.structs.replace(spec, n_workers=n_workers, memory_per_worker_bytes=memory_bytes)


def binder_sentence(environ: Mapping[str, str] = os.environ) -> str:
    """What ``%cluster`` says of the mode; empty where it is off."""
    if not in_binder(environ):
        return ""
    limits = binder_limits(environ)
    cpus, memory = format_counted(limits.cpus, "CPU"), format_bytes(limits.memory_bytes)
    return (
        f"Binder mode: {cpus} and {memory} for everything; clusters are local and end after "
        f"{format_duration(_IDLE_S)} without work."
    )
