"""Calls of functions on one worker, by way of the scheduler: the worker itself may be unreachable
from here (behind a forwarded port)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from distributed import Client

from jupyter_ddl.errors import LaunchError

__all__ = ["WorkerLostError", "call_worker"]


class WorkerLostError(LaunchError):
    """The worker of an assignment is gone; what it had not reported is to be repeated."""


async def call_worker(
    client: Client,
    worker: str,
    function: Callable[..., Any],
    *args: Any,
    timeout_s: float | None = 60.0,
) -> Any:
    """What ``function(*args, dask_worker=…)`` returns there.

    Raises
    ------
    WorkerLostError
        The worker is gone, did not answer in time, or the function raised.
    """
    if client.scheduler is None:
        raise WorkerLostError(f"worker {worker} can't be asked: the scheduler is lost")
    try:
        async with asyncio.timeout(timeout_s):
            replies = await client.run(function, *args, workers=[worker], on_error="return")
    except (OSError, TimeoutError, ValueError) as error:
        raise WorkerLostError(f"worker {worker} did not answer: {error!r}") from error
    answer = replies.get(worker, LookupError(worker))
    if isinstance(answer, BaseException):
        raise WorkerLostError(f"worker {worker} did not answer: {answer!r}") from answer
    return answer
