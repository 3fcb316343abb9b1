"""What clients know of the default backend: workers on this host, sized by its limits."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from jupyter_ddl.backends.base import Backend, BackendPlugin, Finding, Report, n_local_workers
from jupyter_ddl.formats import format_bytes, format_counted
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.store.advisories import outdated
from jupyter_ddl.store.connection import scratch_path
from jupyter_ddl.store.host_limits import host_limits
from jupyter_ddl.store.mounts import file_system_of
from jupyter_ddl.store.paths import blob_dirs, home_dir, private_dir, runtime_dir

__all__ = ["LocalPlugin"]

_LITTLE_BYTES = 1_000_000_000


class LocalPlugin(BackendPlugin):
    """``%cluster start``."""

    purpose = "Starts worker processes on this host, as many as its CPUs and memory allow."

    def enter_controller(self, spec: ClusterSpec) -> None:
        """Have workers be forked, where that is safe; elsewhere they begin as new Pythons.

        It is not on other systems than Linux, where a fork of what has loaded libraries may break;
        nor in Python 3.11.0, whose server for it every user of the host can use.
        """
        if not sys.platform.startswith("linux") or sys.version_info < (3, 11, 1):
            return
        from jupyter_ddl.backends.zygote_source import offered_source

        with offered_source(spec):  # it imports, while this process imports Dask
            from jupyter_ddl.backends.fork_server import start_fork_server

            scratch = scratch_path(spec.name)
            start_fork_server(None if scratch is None else private_dir(scratch))

    def make(self, spec: ClusterSpec) -> Backend:
        from jupyter_ddl.backends.local import LocalBackend

        return LocalBackend(spec)

    async def examine(self, spec: ClusterSpec, **values: Any) -> Report:
        limits = host_limits()
        fitting = n_local_workers(limits.cpus, limits.memory_bytes, spec.cpus_per_worker)
        n_workers = fitting if spec.n_workers is None else spec.n_workers
        size = f"{format_counted(limits.cpus, 'CPU')}, {format_bytes(limits.memory_bytes)}"
        host = f"{size}: {format_counted(fitting, 'worker fits', 'workers fit')}"
        findings = [
            Finding("host", "ok" if n_workers <= fitting else "unknown", host),
            *map(_room, (runtime_dir(), *blob_dirs())),
            *map(_locks, (runtime_dir(), home_dir())),
            *(Finding("versions", "unknown", text) for text in outdated()),
        ]
        return Report(tuple(findings))


def _locks(directory: Path) -> Finding:
    place = file_system_of(directory)
    what = f"locks in {directory}"
    if place.locks_reach_all:
        return Finding(what, "ok", f"of {place}")
    text = f"on {place} no host sees another one's: use it from one host at a time"
    return Finding(what, "unknown", text)


def _room(directory: Path) -> Finding:
    what = f"files in {directory}"
    try:
        free_bytes = shutil.disk_usage(directory).free
    except OSError as error:
        return Finding(what, "broken", error.strerror or repr(error))
    if not os.access(directory, os.W_OK):
        return Finding(what, "broken", "it is not writable")
    text = f"{format_bytes(free_bytes)} are free"
    return Finding(what, "ok" if free_bytes > _LITTLE_BYTES else "unknown", text)
