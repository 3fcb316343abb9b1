"""Plain Dask computations of a cell: one row of its run, with the scheduler's own counts.

Dask executes them in its workers, not in ranks of ours.  What is known of them is what the
scheduler tells: how many tasks are done, are processed now, and keep their result in memory.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from typing import Any

from jupyter_ddl.client.dask_client import is_ours
from jupyter_ddl.estimators.exchange import DaskProgress, FitRun

__all__ = ["DaskWork", "dask_client_class"]

_LOOK_S = 0.25
_ANSWER_S = 5.0
_NAME = "computations of the cell"
_OURS = "ddl"
"""Keys of our own assignments begin so."""


def dask_client_class() -> Any:
    """``distributed.Client`` if the notebook has imported it; cells without Dask need not."""
    distributed = sys.modules.get("distributed")
    return None if distributed is None else distributed.Client


class DaskWork:
    """Follows what ``compute()`` waits for, on the thread that runs the cell."""

    def __init__(self, run: FitRun) -> None:
        self._run = run
        self._thread = threading.get_ident()
        self._client: Any = None
        """The last one that a computation was waited for with."""
        self._place = 0
        self._n_computations = 0
        self._told_s = 0.0
        self._counts: dict[str, float] = {}
        self._n_done_before: int | None = None
        self._is_silent = False

    def get(self, original: Any) -> Any:
        """What takes the place of ``Client.get``: the same, but it looks on while it waits."""

        @functools.wraps(original)
        def get(client: Any, dsk: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
            waits = kwargs.get("sync", True) and not kwargs.get("asynchronous") and not args
            if not waits or threading.get_ident() != self._thread or not is_ours(client):
                return original(client, dsk, keys, *args, **kwargs)
            from distributed.client import futures_of

            if self._client is None:
                self._place = self._run.add_candidate()
                self._count(client)
            self._client = client
            packed = original(client, dsk, keys, **{**kwargs, "sync": False})
            futures = futures_of(packed)
            try:
                self._follow(client, futures)
                return client.gather(packed, direct=kwargs.get("direct"))
            finally:
                for future in futures:
                    future.release()

        return get

    def close(self) -> None:
        """The cell is over, and with it its Dask work."""
        if self._client is not None:
            self._look(self._client, is_over=True)

    def _follow(self, client: Any, futures: list[Any]) -> None:
        """Wait for a computation; an interrupt of the kernel ends it as it always does."""
        from distributed import wait

        self._n_computations += 1
        while True:
            try:
                wait(futures, timeout=_LOOK_S)
            except TimeoutError:
                self._look(client)
                continue
            if time.monotonic() - self._told_s > _LOOK_S:
                self._look(client)
            return

    def _look(self, client: Any, *, is_over: bool = False) -> None:
        self._count(client)
        self._told_s = time.monotonic()
        metrics = {"computations": float(self._n_computations), **self._counts}
        self._run.tell(
            self._place, DaskProgress(_NAME, self._n_computations, metrics, is_over=is_over)
        )

    def _count(self, client: Any) -> None:
        if client.status != "running" or self._is_silent:
            return
        try:
            self._counts = self._counted(client)
        except (TimeoutError, OSError):
            # An older scheduler does not answer what it does not know.  The row does without.
            self._is_silent = True

    def _counted(self, client: Any) -> dict[str, float]:
        n_done = self._n_done(client)
        prefixes = client.sync(client.scheduler.get_task_prefix_states, callback_timeout=_ANSWER_S)
        plain = [states for name, states in prefixes.items() if not name.startswith(_OURS)]
        return {
            "done": float(n_done),
            "processing": float(sum(states["processing"] for states in plain)),
            "in_memory": float(sum(states["memory"] for states in plain)),
        }

    def _n_done(self, client: Any) -> int:
        """Tasks that have ended since the first computation of the cell."""
        index: int = client.sync(client.scheduler.get_task_stream_index, callback_timeout=_ANSWER_S)
        if self._n_done_before is None:
            self._n_done_before = index
        return index - self._n_done_before
