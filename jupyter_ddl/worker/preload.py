"""Dask preload module: ties a worker process to its nanny's life as early as possible.

Use with ``preload=["jupyter_ddl.worker.preload"]``.
"""

from __future__ import annotations

import multiprocessing

from jupyter_ddl.worker.deathsig import bind_to_parent

__all__ = ["bind_to_nanny", "dask_setup"]


def bind_to_nanny() -> None:
    """Have the kernel kill this process when its nanny dies.  May be called again.

    A worker that no nanny has started (a pod's only process, or a thread of a notebook)
    stays as it is: who started it decides about it.
    """
    nanny = multiprocessing.parent_process()
    if nanny is not None and nanny.pid is not None:
        bind_to_parent(nanny.pid)


def dask_setup(worker: object) -> None:  # noqa: ARG001
    """Called by Dask in the worker process before the worker listens."""
    bind_to_nanny()
