"""Dask preload module for workers and for nannies.

``preload`` ties a worker process to its nanny's life as early as possible.  ``preload_nanny`` lets
the ranks save before a nanny that is told to go ends its worker: a pod's SIGTERM reaches the first
process of the container, which is ``dask worker`` with the nanny in it.

Use with ``--preload jupyter_ddl.worker.preload --preload-nanny jupyter_ddl.worker.preload``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal

from distributed import Nanny, Worker

from jupyter_ddl.worker.deathsig import bind_to_parent
from jupyter_ddl.worker.leaving import GRACE_S

__all__ = ["bind_to_nanny", "dask_setup", "dask_teardown"]

log = logging.getLogger(__name__)

_MARGIN_S = 4.0
"""For what a worker does after its ranks are gone.  With the grace of the ranks it is less than the
30 s that Kubernetes and the clouds leave a container."""
_POLL_S = 0.05


def bind_to_nanny() -> None:
    """Have the kernel kill this process when its nanny dies.  May be called again.

    A worker that no nanny has started (a pod's only process, or a thread of a notebook)
    stays as it is: who started it decides about it.
    """
    nanny = multiprocessing.parent_process()
    if nanny is not None and nanny.pid is not None:
        bind_to_parent(nanny.pid)


def dask_setup(server: Worker | Nanny) -> None:
    """Called by Dask in the process of the worker, or of the nanny, before it listens."""
    if isinstance(server, Worker):
        bind_to_nanny()


async def dask_teardown(server: Worker | Nanny) -> None:
    """Called by Dask when the server closes; a nanny's worker still runs then.

    The worker acts on SIGTERM as :class:`~jupyter_ddl.worker.leaving.Leaving` does.  Left to
    itself, Dask would cancel what runs, and the ranks would be killed.
    """
    if isinstance(server, Worker) or not server.is_alive() or server.pid is None:
        return
    log.info("nanny: worker %s is told to go", server.pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(server.pid, signal.SIGTERM)
    deadline = asyncio.get_running_loop().time() + GRACE_S + _MARGIN_S
    while server.is_alive() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)
