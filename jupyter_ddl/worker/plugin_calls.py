"""What the controller has a Dask worker do, by functions that Dask carries there by name.

``execute_assignment`` is the Dask task; the others are called with ``Client.run``.
"""

from __future__ import annotations

from typing import Any

import msgspec
from distributed import Worker, get_worker

from jupyter_ddl.spec.assignment import Assignment, Control
from jupyter_ddl.spec.sampling import SamplerCall
from jupyter_ddl.worker.plugin import plugin_of

__all__ = [
    "ask_sampler",
    "call_rank",
    "control",
    "describe",
    "execute_assignment",
    "replay",
]


async def execute_assignment(encoded: bytes) -> bytes:
    """Execute an encoded ``Assignment``: the Dask task function.

    Returns
    -------
    bytes
        An encoded ``AssignmentResult``, sent after all chunks of events.  Nothing that user code
        does makes this raise.
    """
    assignment = msgspec.msgpack.decode(encoded, type=Assignment)
    result = await plugin_of(get_worker()).execute(assignment)
    return msgspec.msgpack.encode(result)


async def call_rank(encoded: bytes, dask_worker: Worker) -> bytes:
    """The same as the worker's handler ``CALL_RANK``, for callers that can't reach the worker."""
    return await plugin_of(dask_worker).call_rank(encoded)


async def control(encoded: bytes, dask_worker: Worker) -> None:
    """Deliver an encoded ``Control``; its effect shows in the events."""
    message = msgspec.msgpack.decode(encoded, type=Control)
    await plugin_of(dask_worker).control(message)


async def ask_sampler(encoded: bytes, dask_worker: Worker) -> bytes:
    """Pass an encoded ``SamplerCall`` to the run's sampler; returns encoded ``SamplerAnswers``."""
    call = msgspec.msgpack.decode(encoded, type=SamplerCall)
    return msgspec.msgpack.encode(await plugin_of(dask_worker).ask_sampler(call))


def replay(assignment_id: str, from_chunk: int, dask_worker: Worker) -> list[bytes]:
    """Encoded chunks of an assignment, from a number on, if it ended less than 30 s ago."""
    return plugin_of(dask_worker).replay(assignment_id, from_chunk)


def describe(dask_worker: Worker) -> dict[str, Any]:
    """Pids below a worker: ``zygote_pid`` and, for each of ``ranks``, ``pid`` and state."""
    return plugin_of(dask_worker).describe()
