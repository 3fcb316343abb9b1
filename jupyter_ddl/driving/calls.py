"""What is said to one worker, and what is heard of all: by way of the scheduler.

The workers themselves may be unreachable from here (behind a forwarded port).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from distributed import Client, Scheduler, SchedulerPlugin

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.codec import UNREADABLE
from jupyter_ddl.protocol.reading import converted

__all__ = ["WorkerLostError", "call_worker", "decoded", "hear"]

T = TypeVar("T")


class WorkerLostError(LaunchError):
    """The worker of an assignment is gone; what it had not reported is to be repeated."""


async def call_worker(
    client: Client,
    worker: str,
    function: Callable[..., Any],
    *args: Any,
    gives: Any,
    timeout_s: float | None = 60.0,
) -> Any:
    """What ``function(*args, dask_worker=…)`` returns there.

    Parameters
    ----------
    gives : type
        Of the answer; plain numbers, text, bytes and lists, which nobody has to unpickle.

    Raises
    ------
    WorkerLostError
        The worker is gone, did not answer in time, the function raised, or the answer is not what
        was asked for.
    """
    if client.scheduler is None:
        raise WorkerLostError(f"worker {worker} can't be asked: the scheduler is lost")
    try:
        async with asyncio.timeout(timeout_s):
            replies = await client.run(function, *args, workers=[worker], on_error="return")
    except Exception as error:  # Dask's own, or what it makes of a false answer
        raise WorkerLostError(f"worker {worker} did not answer: {error!r}") from error
    answer = replies.get(worker, LookupError(worker))
    if isinstance(answer, BaseException):
        raise WorkerLostError(f"worker {worker} did not answer: {answer!r}") from answer
    try:
        return converted(answer, gives)
    except msgspec.ValidationError as error:
        raise _not_believed(worker, error) from None


def decoded(worker: str, data: bytes | memoryview, decoder: msgspec.msgpack.Decoder[T]) -> T:
    """A message of a worker's.

    Raises
    ------
    WorkerLostError
        It is none, or has what no honest worker would send: it counts as lost.
    """
    try:
        return decoder.decode(data)
    except (*UNREADABLE, TypeError) as error:
        raise _not_believed(worker, error) from None


def _not_believed(worker: str, error: Exception) -> WorkerLostError:
    return WorkerLostError(
        f"worker {worker} sent what this controller does not take: {error}; is it of the same "
        f"version (`%cluster env`)?"
    )


class _Ear(SchedulerPlugin):  # type: ignore[misc]
    def __init__(self, topic: str, on_message: Callable[[bytes], None]) -> None:
        self.name = f"hears {topic}"
        self._topic = topic
        self._on_message = on_message

    def log_event(self, topic: str, msg: Any) -> None:
        if topic == self._topic:
            self._on_message(msg)


def hear(client: Client, topic: str, on_message: Callable[[bytes], None]) -> None:
    """Call ``on_message`` on this loop with every message that workers publish on a Dask topic,
    until the client's scheduler is gone.

    A topic has one hearer; a later one takes its place.  Where the scheduler lives in this process,
    it is asked directly: on the way through its client each message would be encrypted and
    decrypted once more, which costs more than all that is done with it.
    """
    scheduler = getattr(client.cluster, "scheduler", None)
    if isinstance(scheduler, Scheduler):
        scheduler.add_plugin(_Ear(topic, on_message), name=f"hears {topic}", idempotent=False)
    else:
        client.subscribe_topic(topic, lambda event: on_message(event[1]))
