"""Dask preload module for workers and for nannies.

``preload`` ties a worker process to its nanny's life as early as possible.  ``preload_nanny`` lets
the ranks save before a nanny that is told to go ends its worker: SIGTERM reaches the first process
of a container, which is ``dask worker`` with the nanny in it.

Use with ``--preload jupyter_ddl.worker.preemption --preload-nanny jupyter_ddl.worker.preemption``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence

from distributed import Nanny, Worker
from distributed.core import Status

from jupyter_ddl.store.death_signal import bind_to_parent
from jupyter_ddl.worker.execution import Execution

__all__ = ["Leaving", "bind_to_nanny", "dask_setup", "dask_teardown"]


# A worker that is told to go (SIGTERM, a spot machine's warning): its ranks save, then leave.

log = logging.getLogger(__name__)

GRACE_S = 20.0
"""How long ranks may take to their next checkpoint.  Clouds give 30 s."""
_POLL_S = 0.05


class Leaving:
    """Listens to SIGTERM for one worker.  Made and used on the worker's loop only.

    Parameters
    ----------
    executions : callable
        What the worker is executing.
    n_unfetched : callable
        Assignments of which something is still to be fetched from here.
    """

    def __init__(
        self,
        worker: Worker,
        executions: Callable[[], Sequence[Execution]],
        n_unfetched: Callable[[], int] = lambda: 0,
    ) -> None:
        self._worker = worker
        self._n_unfetched = n_unfetched
        self._executions = executions
        self._task: asyncio.Task[None] | None = None
        self._listens = threading.current_thread() is threading.main_thread()
        self._former = signal.getsignal(signal.SIGTERM)
        if self._listens:
            # Elsewhere (a worker inside a notebook) the signal is not ours to handle.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._begin)

    @property
    def begun(self) -> bool:
        return self._task is not None

    def close(self) -> None:
        """Listen no more, should the worker go on without us: SIGTERM does what it always did.

        Where it closes, Dask must not hear of a SIGTERM: it would break off what is being closed,
        and then wait for the end of that forever.
        """
        if self._listens and not self._worker_ends:
            self._stop_listening()
            signal.signal(signal.SIGTERM, self._former)

    def _stop_listening(self) -> None:
        """From here on SIGTERM ends the process at once."""
        self._listens = False
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)

    @property
    def _worker_ends(self) -> bool:
        return self._worker.status in (Status.closing, Status.closed)

    def _begin(self) -> None:
        self._stop_listening()
        if not self._worker_ends:
            self._task = asyncio.create_task(self._leave(), name="ddl-leave")

    async def _leave(self) -> None:
        running = self._executions()
        log.warning("worker %s: SIGTERM, %d executions", self._worker.address, len(running))
        for execution in running:
            execution.worker_leaves(GRACE_S)
        deadline = asyncio.get_running_loop().time() + GRACE_S
        # Not the executions' own events: others may begin while these end.
        while self._is_needed() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        await self._worker.close(nanny=False, reason="SIGTERM")

    def _is_needed(self) -> bool:
        return bool(self._executions() or self._n_unfetched())


_MARGIN_S = 4.0
"""For what a worker does after its ranks are gone.  With the grace of the ranks it is less than the
30 s that the clouds leave a container."""


def bind_to_nanny() -> None:
    """Have the kernel kill this process when its nanny dies.  May be called again.

    A worker that no nanny has started (a container's only process, or a thread of a notebook)
    stays as it is: who started it decides about it.
    """
    if multiprocessing.parent_process() is not None:
        # The nanny, or the process that has forked this one for it and ends with the nanny.
        bind_to_parent(os.getppid())


def dask_setup(server: Worker | Nanny) -> None:
    """Called by Dask in the process of the worker, or of the nanny, before it listens."""
    if isinstance(server, Worker):
        bind_to_nanny()


async def dask_teardown(server: Worker | Nanny) -> None:
    """Called by Dask when the server closes; a nanny's worker still runs then.

    The worker acts on SIGTERM as :class:`~jupyter_ddl.worker.preemption.Leaving` does.  Left to
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
