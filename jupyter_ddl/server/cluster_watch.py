"""Looks every two seconds which clusters run and how they are."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec

from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.protocol.replies import ClusterStatus, StatusResult
from jupyter_ddl.protocol.requests import GetStatus
from jupyter_ddl.protocol.view_messages import ClusterList
from jupyter_ddl.server.links import Links
from jupyter_ddl.store.connection import ConnectionInfo

__all__ = ["ClusterWatch"]

log = logging.getLogger(__name__)

_LOOK_INTERVAL_S = 2.0
_STATUS_TIMEOUT_S = 3.0
_LEASE_GRAIN_S = 10.0
"""A browser counts leases down itself, so only larger jumps are news."""

OnClusters = Callable[[ClusterList], None]


class ClusterWatch:
    """Runs on the server's loop while a browser is connected."""

    def __init__(self, links: Links, on_change: OnClusters) -> None:
        self._links = links
        self._on_change = on_change
        self._look_now = asyncio.Event()
        self._seen: object = None
        self.newest: ClusterList | None = None

    @property
    def live_runs(self) -> frozenset[str]:
        """Runs that some controller drives now."""
        clusters = () if self.newest is None else self.newest.clusters
        return frozenset(run_id for each in clusters for run_id in each.active_runs)

    def look_soon(self) -> None:
        """Something has just been changed: do not wait for the next round."""
        self._look_now.set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._look_now.clear()
            try:
                self._take(await self._poll())
            except JupyterDDLError as error:
                log.warning("clusters can't be listed: %s", error)
            try:
                async with asyncio.timeout(_LOOK_INTERVAL_S):
                    await self._look_now.wait()
            except TimeoutError:
                continue

    async def _poll(self) -> ClusterList:
        infos = await self._links.running()
        found = await asyncio.gather(*(self._status(info) for info in infos))
        return ClusterList(
            seq=0,
            at_s=time.time(),
            clusters=tuple(status for status in found if status is not None),
            unreachable=tuple(
                info.name for info, status in zip(infos, found, strict=True) if status is None
            ),
        )

    async def _status(self, info: ConnectionInfo) -> ClusterStatus | None:
        try:
            result = await self._links.ask(info.name, GetStatus(), _STATUS_TIMEOUT_S)
        except JupyterDDLError:
            return None  # listed as unreachable, or gone at the next look
        return result.status if isinstance(result, StatusResult) else None

    def _take(self, found: ClusterList) -> None:
        self.newest = found
        key = (tuple(_without_time(each, found.at_s) for each in found.clusters), found.unreachable)
        if key != self._seen:
            self._seen = key
            self._on_change(found)


def _without_time(status: ClusterStatus, at_s: float) -> tuple[ClusterStatus, int]:
    """The same without what changes by itself every second, and when the idle lease ends."""
    idle_left_s = status.idle_left_s
    ends = 0 if idle_left_s is None else round((at_s + idle_left_s) / _LEASE_GRAIN_S) + 1
    plain = msgspec.structs.replace(status, idle_left_s=None, age_left_s=0.0)
    return plain, ends
