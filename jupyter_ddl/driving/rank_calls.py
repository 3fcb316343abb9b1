"""Calls to the ranks of persistent groups: straight to their workers, past the scheduler.

Where workers have a file system of their own, they may be out of reach as well: then calls go by
way of the scheduler, and files are carried.
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
from distributed import Client

from jupyter_ddl.driving.calls import WorkerLostError, call_worker, decoded
from jupyter_ddl.driving.file_sync import FileTransfer
from jupyter_ddl.protocol.cells import CellDone, RankAnswer, RankCall, RunCell
from jupyter_ddl.protocol.program import blobs_of
from jupyter_ddl.protocol.reading import msgpack_decoder
from jupyter_ddl.store.paths import blob_dirs, run_dir
from jupyter_ddl.worker import plugin
from jupyter_ddl.worker import plugin as plugin_calls

__all__ = ["RankCalls"]

_LOG_INTERVAL_S = 0.3


class RankCalls:
    """Used on the controller's loop only.  Connections are kept and used again."""

    def __init__(self, client: Client, transfer: FileTransfer | None = None) -> None:
        self._client = client
        self._transfer = transfer
        self._decoder: msgspec.msgpack.Decoder[RankAnswer] = msgpack_decoder(RankAnswer)

    def reconnect(self, client: Client) -> None:
        """Use another scheduler from now on."""
        self._client = client

    async def call(self, worker: str, call: RankCall, timeout_s: float | None) -> RankAnswer:
        """Ask one rank.

        Parameters
        ----------
        timeout_s : float or None
            None for what ends with a cell or a process; the connection's end ends it as well.

        Raises
        ------
        WorkerLostError
            The worker is gone, or did not answer in time.
        """
        if self._transfer is None:
            return await self._call_directly(worker, call, timeout_s)
        if isinstance(call, RunCell):
            return await self._run_cell(self._transfer, worker, call)
        return await self._call_through(worker, call, timeout_s)

    async def _call_directly(
        self, worker: str, call: RankCall, timeout_s: float | None
    ) -> RankAnswer:
        handler = getattr(self._client.rpc(worker), plugin.CALL_RANK)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await handler(payload=msgspec.msgpack.encode(call))
        except (OSError, TimeoutError, RuntimeError) as error:
            raise WorkerLostError(
                f"worker {worker} did not answer {type(call).__name__}: {error!r}"
            ) from error
        return decoded(worker, answer, self._decoder)

    async def _call_through(
        self, worker: str, call: RankCall, timeout_s: float | None
    ) -> RankAnswer:
        payload = msgspec.msgpack.encode(call)
        answer = await call_worker(
            self._client, worker, plugin_calls.call_rank, payload, gives=bytes, timeout_s=timeout_s
        )
        return decoded(worker, answer, self._decoder)

    async def _run_cell(self, transfer: FileTransfer, worker: str, call: RunCell) -> RankAnswer:
        group_id = call.group_id
        if blobs := blobs_of(call.cell):
            name = f"{group_id}-{call.number}"
            await transfer.send_blobs(worker, group_id, name, blobs, blob_dirs())
        directory, logs = run_dir(group_id), {f"rank-{call.rank}.log"}
        answering = asyncio.create_task(self._call_through(worker, call, None))
        try:
            while not answering.done():
                await asyncio.wait({answering}, timeout=_LOG_INTERVAL_S)
                with contextlib.suppress(WorkerLostError):
                    await transfer.fetch_logs(worker, group_id, directory, logs)
            answer = answering.result()
        finally:
            answering.cancel()
        if isinstance(answer, CellDone) and answer.values_file is not None:
            await transfer.fetch(worker, group_id, directory, f"values/{answer.values_file}")
        for file in answer.outputs if isinstance(answer, CellDone) else ():
            await transfer.fetch(worker, group_id, directory, f"outputs/{file}")
        return answer
