"""Plain Dask work of a cell: one row of its run, with the scheduler's own counts.

Dask executes it in its workers, not in ranks of ours.  What is known of it is what a plugin of the
scheduler counts: how many tasks the notebook has submitted, and how many of them have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import sys
import threading
import time
from concurrent import futures
from typing import Any

import psutil

from jupyter_ddl.client.dask_client import connected_client
from jupyter_ddl.errors import FitError, FitStoppedError
from jupyter_ddl.formats import format_bytes
from jupyter_ddl.sklearn_fit.exchange import DaskProgress, FitRun

__all__ = ["DaskWork", "computed", "dask_waits"]

log = logging.getLogger(__name__)

_LOOK_S = 0.25
_ANSWER_S = 5.0
_NAME = "tasks"


def dask_waits() -> Any:
    """The class by whose ``sync`` all of Dask waits; None where the notebook has no Dask."""
    utils = sys.modules.get("distributed.utils")
    return None if utils is None else utils.SyncMethodMixin


def computed(*values: Any) -> tuple[Any, ...]:
    """The values, with Dask's collections among them computed: scikit-learn takes none.

    Raises
    ------
    FitError
        There is not enough memory for an array.
    """
    base = sys.modules.get("dask.base")
    lazy = [value for value in values if base is not None and base.is_dask_collection(value)]
    if base is None or not lazy:
        return values
    free = psutil.virtual_memory().available
    array = sys.modules.get("dask.array")
    # Of a data frame or Delayed nobody knows the size, and of some arrays: that is not a number.
    sizes = [value.nbytes for value in lazy if array is not None and isinstance(value, array.Array)]
    for size in sizes:
        if size > free:
            raise FitError(
                f"a Dask array of {format_bytes(size)} was to be fitted, and the notebook's host "
                f"has {format_bytes(free)} of memory left; scikit-learn's fits need their data "
                f"in memory; fit a sample of it"
            )
    found = dict(zip(map(id, lazy), base.compute(*lazy), strict=True))
    return tuple(found.get(id(value), value) for value in values)


class DaskWork:
    """Follows what the notebook's client computes, whenever the thread of the cell waits for it."""

    def __init__(self, run: FitRun) -> None:
        self._run = run
        self._thread = threading.get_ident()
        self._client: Any = None
        """The client that is followed; None: there is none, or its scheduler can't count."""
        self._sync: Any = None
        """Dask's own: a look must not be looked at."""
        self._place: int | None = None
        self._looked_s = 0.0
        self._counts: dict[str, float] = {}
        self._is_silent = False
        self._known: frozenset[Any] = frozenset()
        """Keys of the futures that there were before the cell."""

    def begin(self) -> None:
        """Have what the connected client submits counted from now on."""
        client = connected_client()
        if client is None:
            return
        from jupyter_ddl.sklearn_fit.task_counts import TaskCounts

        try:
            client.register_plugin(TaskCounts(client.id))
        except Exception as error:  # noqa: BLE001 - what hinders a scheduler of others to load it
            log.info("plain Dask work is not followed: %s", error)
            return
        self._client, self._known = client, frozenset(client.futures)

    def leave(self) -> None:
        """Nobody asks for counts any more."""
        client, self._client = self._client, None
        if client is None or client.status != "running":
            return
        from jupyter_ddl.sklearn_fit.task_counts import name_of

        with contextlib.suppress(Exception):  # the scheduler may be gone, with all it counted
            client.unregister_scheduler_plugin(name_of(client.id))

    def sync(self, original: Any) -> Any:
        """What takes the place of ``sync``: the same, but it looks on while it waits."""
        self._sync = original

        @functools.wraps(original)
        def sync(
            client: Any,
            func: Any,
            *args: Any,
            asynchronous: bool | None = None,
            callback_timeout: Any = None,
            **kwargs: Any,
        ) -> Any:
            is_ours = client is self._client and threading.get_ident() == self._thread
            if is_ours and not asynchronous and callback_timeout is None:
                return self._wait(client, _awaited(func, args, kwargs))
            options = {"asynchronous": asynchronous, "callback_timeout": callback_timeout}
            return original(client, func, *args, **options, **kwargs)

        return sync

    def close(self) -> None:
        """The cell is over; what it has not waited for goes on."""
        if self._client is not None:
            self._poll(self._client, is_over=True)

    def _wait(self, client: Any, work: Any) -> Any:
        """Wait as Dask does; an interrupt of the kernel ends it as it always does."""
        waiting = asyncio.run_coroutine_threadsafe(work, client.loop.asyncio_loop)
        try:
            while not waiting.done():
                futures.wait([waiting], _LOOK_S)
                if time.monotonic() - self._looked_s > _LOOK_S:
                    self._poll(client)
            return waiting.result()
        except FitStoppedError:
            self._cancel(client)
            raise
        finally:
            waiting.cancel()  # does nothing to what is done

    def _cancel(self, client: Any) -> None:
        """End what the cell has submitted: it is not waited for, and may be held by a variable."""
        from distributed import Future

        self.leave()
        client.cancel([Future(key, client) for key in client.futures if key not in self._known])

    def _poll(self, client: Any, *, is_over: bool = False) -> None:
        self._count(client)
        self._looked_s = time.monotonic()
        if not self._counts.get("tasks"):
            return
        if self._place is None:
            self._place = self._run.add_candidate()
        done = int(self._counts["done"])
        self._run.tell(self._place, DaskProgress(_NAME, done, self._counts, is_over=is_over))

    def _count(self, client: Any) -> None:
        from jupyter_ddl.sklearn_fit.task_counts import COUNT_TASKS

        if client.status != "running" or self._is_silent:
            return
        ask = getattr(client.scheduler, COUNT_TASKS)
        try:
            counts = self._sync(client, ask, client=client.id, callback_timeout=_ANSWER_S)
        except Exception:  # noqa: BLE001 - a scheduler in the place of a lost one can't count
            self._is_silent = True
        else:
            self._counts = {name: float(count) for name, count in counts.items()}


async def _awaited(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return await func(*args, **kwargs)
