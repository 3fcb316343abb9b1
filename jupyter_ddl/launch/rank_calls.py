"""Calls to the ranks of persistent groups: straight to their workers, past the scheduler."""

from __future__ import annotations

import asyncio

import msgspec
from distributed import Client

from jupyter_ddl.events.cell_results import RankAnswer
from jupyter_ddl.launch.dispatcher import WorkerLostError
from jupyter_ddl.spec.cells import RankCall
from jupyter_ddl.worker.plugin import CALL_RANK

__all__ = ["RankCalls"]


class RankCalls:
    """Used on the controller's loop only.  Connections are kept and used again."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._decoder: msgspec.msgpack.Decoder[RankAnswer] = msgspec.msgpack.Decoder(RankAnswer)

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
        handler = getattr(self._client.rpc(worker), CALL_RANK)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await handler(payload=msgspec.msgpack.encode(call))
        except (OSError, TimeoutError, RuntimeError) as error:
            raise WorkerLostError(
                f"worker {worker} did not answer {type(call).__name__}: {error!r}"
            ) from error
        return self._decoder.decode(answer)
