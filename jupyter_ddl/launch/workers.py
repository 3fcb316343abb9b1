"""The workers that a scheduler knows, kept current by its own announcements."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from distributed import Client

from jupyter_ddl.cluster.base import WorkerInfo

__all__ = ["WorkerWatch"]

log = logging.getLogger(__name__)


class WorkerWatch:
    """Follows workers coming and going.  Used on the controller's loop only."""

    def __init__(
        self,
        client: Client,
        on_change: Callable[[dict[str, WorkerInfo]], None],
        on_removed: Callable[[str], None],
    ) -> None:
        self._client = client
        self._on_change = on_change
        self._on_removed = on_removed
        self.workers: dict[str, WorkerInfo] = {}
        self._n_removed = 0

    async def start(self) -> None:
        """Subscribe to the scheduler's announcements, then read the present state."""
        self._client.subscribe_topic("all", self._on_message)
        await self.refresh()

    async def refresh(self) -> None:
        """Read the scheduler's list; a worker that is not in it any more is removed."""
        while True:
            n_removed = self._n_removed
            identity = await self._client.scheduler.identity(n_workers=-1)
            if n_removed == self._n_removed:
                break
            # A worker left while the answer was on its way, and may stand in it: ask again, for
            # nobody would announce its end a second time.
        found = {address: _info(address, facts) for address, facts in identity["workers"].items()}
        for address in [known for known in self.workers if known not in found]:
            self._remove(address)
        self.workers = found
        self._on_change(self.workers)

    async def _on_message(self, event: tuple[float, Any]) -> None:
        message = event[1]
        if not isinstance(message, dict):
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
        pid=None,
    )
