"""A copy of the controller from which Dask forks the workers of this host.

A worker that begins as a new Python imports for a second of CPU what the controller imports as
well.  So the server of :mod:`multiprocessing` that forks processes is not started as a new Python
either, but forked itself, while the controller has one thread and has opened nothing.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from itertools import pairwise
from multiprocessing import forkserver, process, resource_tracker, util
from pathlib import Path
from unittest.mock import patch

import dask
import distributed.utils

import jupyter_ddl.worker.plugin
import jupyter_ddl.worker.preemption  # noqa: F401  # both are what workers need
from jupyter_ddl.store.death_signal import bind_to_parent
from jupyter_ddl.worker.zygote_source import requests_fd

__all__ = ["start_fork_server"]


def start_fork_server(scratch: Path | None = None) -> None:
    """Have nannies of this process fork their workers.  Call it from the main thread, first.

    Parameters
    ----------
    scratch : Path, optional
        A directory for the sockets of :mod:`multiprocessing`, here and in all processes below;
        one that it makes itself stays in the system's when this process is killed.
    """
    if scratch is not None:
        process.current_process()._config["tempdir"] = str(scratch)  # type: ignore[attr-defined]
    resource_tracker.ensure_running()
    with patch.object(util, "spawnv_passfds", _fork):
        forkserver.ensure_running()
    # Dask would import here what the server is to import.
    distributed.utils._forkserver_preload_set = True
    dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})


def _fork(_: object, command: Sequence[str], fds: Sequence[int]) -> int:
    """As ``util.spawnv_passfds``, of which the last argument is the program to run."""
    parent_pid = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        bind_to_parent(parent_pid)
        for before, after in pairwise(
            [*sorted({0, 1, 2, *fds, *requests_fd()}), os.sysconf("SC_OPEN_MAX")]
        ):
            os.closerange(before + 1, after)
        gc.freeze()  # a collection in a worker would copy every page of what is shared
        exec(command[-1], {})
    finally:
        os._exit(1)
