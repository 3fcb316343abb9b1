"""The workers that a scheduler knows, kept current by its own announcements."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any

import msgspec
from distributed import Client

from jupyter_ddl.driving.calls import WorkerLostError, decoded
from jupyter_ddl.protocol.group import SeenGpus
from jupyter_ddl.protocol.reading import msgpack_decoder
from jupyter_ddl.worker.seen_gpus import describe_gpus

__all__ = ["WorkerInfo", "WorkerWatch"]

log = logging.getLogger(__name__)

_SEEN = msgpack_decoder(SeenGpus)

_GPUS_TIMEOUT_S = 40.0
"""Longer than a worker waits for its driver."""


class WorkerInfo(msgspec.Struct, frozen=True):
    """A Dask worker that the scheduler knows."""

    address: str
    name: str
    host: str
    n_slots: int
    gpus: SeenGpus | None = None
    """None: it has not told yet."""


class WorkerWatch:
    """Follows workers coming and going.  Used on the controller's loop only."""

    def __init__(
        self,
        client: Client,
        on_change: Callable[[dict[str, WorkerInfo]], None],
        on_removed: Callable[[str], None],
    ) -> None:
        self._client: Client | None = client
        self._on_change = on_change
        self._on_removed = on_removed
        self.workers: dict[str, WorkerInfo] = {}
        self._n_removed = 0
        self._asking: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Subscribe to the scheduler's announcements, then read the present state."""
        client = self._client
        if client is not None:
            client.subscribe_topic("all", functools.partial(self._on_message, client))
        await self.refresh()

    async def reconnect(self, client: Client) -> None:
        """Follow another scheduler from now on; the workers of the old one are gone."""
        self.lost()
        self._client = client
        await self.start()

    def lost(self) -> None:
        """The scheduler is gone, and with it whatever its workers had to do.

        Its client may connect to the next one by itself: nothing that it says counts any more, or
        work would be sent there that :meth:`reconnect` takes away again.
        """
        self._client = None
        for address in tuple(self.workers):
            self._remove(address)
        self._on_change(self.workers)

    async def refresh(self) -> None:
        """Read the scheduler's list; a worker that is not in it any more is removed."""
        client = self._client
        if client is None:
            return
        scheduler = client.scheduler
        while True:
            n_removed = self._n_removed
            identity = await scheduler.identity(n_workers=-1)
            if self._client is not client:
                return
            if n_removed == self._n_removed:
                break
            # A worker left while the answer was on its way, and may stand in it: ask again, for
            # nobody would announce its end a second time.
        found = {address: _info(address, facts) for address, facts in identity["workers"].items()}
        for address in [known for known in self.workers if known not in found]:
            self._remove(address)
        new = [address for address in found if address not in self.workers]
        self.workers = {address: self.workers.get(address, info) for address, info in found.items()}
        self._on_change(self.workers)
        if new:
            task = asyncio.create_task(self._ask_gpus(client, new), name="ask workers for GPUs")
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)

    async def gpus_known(self) -> None:
        """Wait until every worker has told of its GPUs; no longer than their drivers may take."""
        if self._asking:
            await asyncio.wait(set(self._asking), timeout=_GPUS_TIMEOUT_S)

    async def close(self) -> None:
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _ask_gpus(self, client: Client, addresses: list[str]) -> None:
        try:
            async with asyncio.timeout(_GPUS_TIMEOUT_S):
                answers = await client.run(describe_gpus, workers=addresses, on_error="return")
        except (OSError, TimeoutError, ValueError) as error:
            log.warning("workers %s did not report their GPUs: %r", addresses, error)
            return
        for address, answer in answers.items():
            info = self.workers.get(address)
            if info is None or not isinstance(answer, bytes):
                continue
            try:
                seen = decoded(address, answer, _SEEN)
            except WorkerLostError as error:
                log.warning("the GPUs of a worker are not known: %s", error.message)
                continue
            self.workers[address] = msgspec.structs.replace(info, gpus=seen)
        self._on_change(self.workers)

    async def _on_message(self, client: Client, event: tuple[float, Any]) -> None:
        message = event[1]
        if client is not self._client or not isinstance(message, dict):
            return
        if message.get("action") == "remove-worker":
            self._remove(message["worker"])
            self._on_change(self.workers)
        elif message.get("action") == "add-worker":
            await self.refresh()

    def _remove(self, address: str) -> None:
        self._n_removed += 1
        if self.workers.pop(address, None) is not None:
            log.info("worker %s is gone", address)
            self._on_removed(address)


def _info(address: str, facts: dict[str, Any]) -> WorkerInfo:
    return WorkerInfo(
        address=address,
        name=str(facts.get("name", address)),
        host=str(facts.get("host", "")),
        n_slots=int(facts.get("nthreads", 1)),
    )
