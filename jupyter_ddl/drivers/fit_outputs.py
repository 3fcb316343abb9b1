"""Keeps account of the outputs of prefixes on hosts, and has them removed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from jupyter_ddl.drivers.assigning import RunContext
from jupyter_ddl.drivers.fit_batch import FitBatch
from jupyter_ddl.protocol.fit import DropOutputs
from jupyter_ddl.protocol.fit_results import NodeResult
from jupyter_ddl.ranks.fit.node_store import node_file
from jupyter_ddl.store.host_limits import host_limits
from jupyter_ddl.verbs.fit import Fit

__all__ = ["Outputs"]

_MEMORY_SHARE = 0.25
_DROP_INTERVAL_S = 0.25


class Outputs:
    """Of one run.  Used on the controller's loop only."""

    def __init__(self, run_id: str, verb: Fit, context: RunContext) -> None:
        self._run_id = run_id
        self._context = context
        self._unwanted: list[str] = []
        self._dropped_s = 0.0
        self._dropping: set[asyncio.Task[None]] = set()
        self._bytes: dict[int, int] = {}
        self._has_any = False
        self.spill_dir: Path = context.run_dir / "spill"
        self.bound_bytes = verb.memory_bytes or int(host_limits().memory_bytes * _MEMORY_SHARE)

    @property
    def left_bytes(self) -> int:
        """How much more may be kept in memory."""
        return max(0, self.bound_bytes - sum(self._bytes.values()))

    def settled(self, batch: FitBatch, index: int, result: NodeResult) -> None:
        """A node was computed."""
        self._has_any |= result.where != "nowhere"
        self._bytes[batch.number] = batch.graph.memory_bytes

    def release(self, batch: FitBatch) -> None:
        """Note what nobody needs any more."""
        for node in batch.graph.take_released():
            self._unwanted.append(node_file(self._run_id, batch.number, node.prefix, node.fold))
        self._bytes[batch.number] = batch.graph.memory_bytes

    def drop_soon(self) -> None:
        """Remove what was released, a few times a second."""
        now = time.monotonic()
        if not self._unwanted or now - self._dropped_s < _DROP_INTERVAL_S:
            return
        self._dropped_s = now
        names, self._unwanted = self._unwanted, []
        task = asyncio.create_task(self._drop(tuple(names)))
        self._dropping.add(task)
        task.add_done_callback(self._dropping.discard)

    async def close(self) -> None:
        """Remove all that is left."""
        await asyncio.gather(*self._dropping, return_exceptions=True)
        if self._has_any:
            await self._drop(())

    async def _drop(self, names: tuple[str, ...]) -> None:
        dirs = (*self._context.blob_dirs[:1], str(self.spill_dir))
        message = DropOutputs(self._run_id, names, dirs)
        hosts = {self._context.host_of(a): a for a in self._context.slots.addresses()}
        control = self._context.dispatcher.control
        await asyncio.gather(*(control(address, message) for address in hosts.values()))
