"""Processes that write event files for TensorBoard beside the runs that asked for it.

Whoever starts them imports nothing of TensorBoard.  What a process has not written when it ends,
that of the next controller, or mirror, does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys

from jupyter_ddl.protocol.run import RunSpec

__all__ = ["EventFileWriters"]

log = logging.getLogger(__name__)

_END_TIMEOUT_S = 5.0


class EventFileWriters:
    """One process per run, which ends by itself after the run.  Used on the controller's loop."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, spec: RunSpec) -> None:
        """Have a run written, if it asked for that and is not written already."""
        if spec.tensorboard and spec.run_id not in self._tasks:
            task = asyncio.create_task(self._write(spec.run_id), name=f"event files {spec.run_id}")
            self._tasks[spec.run_id] = task

    async def close(self) -> None:
        """Let the writers write what there is, and end them."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, run_id: str) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "jupyter_ddl.tracking.tensorboard",
            run_id,
            str(os.getpid()),
            stdin=asyncio.subprocess.DEVNULL,
        )
        try:
            status = await process.wait()
            if status:
                log.warning("event files of run %s: their writer ended with %d", run_id, status)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()
                await _ended(process)
            del self._tasks[run_id]


async def _ended(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(_END_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
