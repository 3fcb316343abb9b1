"""A worker that is told to go (SIGTERM, a spot machine's warning): its ranks save, then leave."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Sequence

from distributed import Worker
from distributed.core import Status

from jupyter_ddl.worker.execution import Execution

__all__ = ["Leaving"]

log = logging.getLogger(__name__)

GRACE_S = 20.0
"""How long ranks may take to their next checkpoint.  Kubernetes and the clouds give 30 s."""
_POLL_S = 0.05


class Leaving:
    """Listens to SIGTERM for one worker.  Made and used on the worker's loop only.

    Parameters
    ----------
    executions : callable
        What the worker is executing.
    n_unfetched : callable
        Assignments whose files are still to be fetched from here.
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
        and then wait for the end of that for ever.
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
