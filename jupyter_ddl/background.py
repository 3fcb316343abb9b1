"""Coroutines that go on beside the loop's other work: held until they end, their errors told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ParamSpec, TypeVar

__all__ = ["BackgroundTasks", "in_thread"]

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """As ``asyncio.to_thread``, and who is cancelled goes when the thread is done.

    What it works on, descriptors above all, is not closed under its hands.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({work})
        raise


class BackgroundTasks:
    """Tasks of one owner, who need not wait for them.

    Parameters
    ----------
    log : logging.Logger
        Gets the error of a task that failed.
    owner : str
        Who has begun them, for that message.
    on_error : callable, optional
        Gets such an error as well.
    """

    def __init__(
        self,
        log: logging.Logger,
        owner: str,
        on_error: Callable[[BaseException], object] = lambda _: None,
    ) -> None:
        self._log = log
        self._owner = owner
        self._on_error = on_error
        self._tasks: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(tuple(self._tasks))

    def start(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        """Begin a task; a loop alone would not keep it."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def close(self) -> None:
        """Cancel what has not ended, and wait for it."""
        tasks = tuple(self)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("%s: %s failed", self._owner, task, exc_info=error)
            self._on_error(error)
