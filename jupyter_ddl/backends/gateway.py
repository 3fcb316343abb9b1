"""The backend on Dask Gateway: a service of the site makes scheduler and workers.

Address, proxy and authentication are those of Dask's configuration (``gateway``), as for every user
of Dask Gateway.  The workers' environment is the service's: it must contain this package.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import dask
from dask_gateway import Gateway, GatewayCluster
from dask_gateway.client import GatewayClusterError, GatewayServerError
from distributed import Client

from jupyter_ddl.backends.base import Backend, OnPhase
from jupyter_ddl.backends.reaching import check_versions, close_client, n_connected
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.store.paths import runtime_dir

__all__ = ["GatewayBackend"]

log = logging.getLogger(__name__)

_N_WORKERS = 2
_POLL_S = 0.2
_CALL_S = 5.0
_CLOSE_S = 8.0
_FAULTS = (aiohttp.ClientError, GatewayClusterError, GatewayServerError, OSError, ValueError)


class GatewayBackend(Backend):
    """Made and used on the controller's loop."""

    client: Client

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        self._n_wanted = _N_WORKERS if spec.n_workers is None else spec.n_workers
        self._cluster: Any = None

    @property
    def n_wanted(self) -> int:
        return self._n_wanted

    @property
    def trouble(self) -> str:
        is_lost = self.client.status != "running"
        return "the scheduler is lost: reconnecting; runs wait" if is_lost else ""

    async def start(self, on_phase: OnPhase) -> None:
        address = dask.config.get("gateway.address", None)
        if not address:
            raise ClusterError(
                "no gateway is configured: set gateway.address in Dask's configuration, or "
                "DASK_GATEWAY__ADDRESS, to the URL of your Dask Gateway"
            )
        on_phase(f"asking the gateway {address} for a cluster")
        try:
            async with asyncio.timeout(self._spec.start_timeout_s):
                await self._end_orphan()
                await self._start(on_phase)
        except TimeoutError:
            await self.close()
            raise ClusterError(
                f"the gateway {address} had no {self._n_wanted} workers ready within "
                f"{self._spec.start_timeout_s:.0f} s; its log says why, or ask for fewer with -n"
            ) from None
        except _FAULTS as error:
            await asyncio.shield(self.close())
            raise ClusterError(f"the gateway {address} did not start a cluster: {error}") from None
        except BaseException:
            await asyncio.shield(self.close())
            raise

    async def _start(self, on_phase: OnPhase) -> None:
        # The workers' sizes are options of the service, and named as its operator likes.
        self._cluster = GatewayCluster(asynchronous=True)
        await self._cluster
        self._note.write_text(self._cluster.name)
        on_phase(f"cluster {self._cluster.name} has a scheduler; waiting for its workers")
        self.client = await self._cluster.get_client(set_as_default=False)
        await self._cluster.scale(self._n_wanted)
        # There is nothing to subscribe to before the first worker is there.
        while await n_connected(self.client) < self._n_wanted:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        if self._n_wanted:
            await check_versions(self.client)

    @property
    def _note(self) -> Path:
        """Holds the name that the gateway has given, for the case that we are killed."""
        return runtime_dir() / f"{self._spec.name}.gateway"

    async def _end_orphan(self) -> None:
        """Stop the cluster of a controller of this name that was killed on this host."""
        if not self._note.exists():
            return
        name = self._note.read_text()
        log.warning("stopping cluster %s: its controller is gone", name)
        async with Gateway(asynchronous=True) as gateway:
            with contextlib.suppress(ValueError, GatewayClusterError):  # it is gone, too
                await gateway.stop_cluster(name)
        self._note.unlink()

    async def scale(self, n_workers: int, keep: Sequence[str]) -> None:
        """Ask for ``n_workers``; the gateway itself takes idle workers first."""
        self._n_wanted = n_workers
        try:
            await self._cluster.scale(n_workers)
        except _FAULTS as error:
            raise ClusterError(f"the gateway did not scale the cluster: {error}") from None

    async def repair(self) -> None:
        """Connect again when the scheduler was lost, to another cluster if the gateway has ended
        this one; workers are replaced by the gateway."""
        if self.client.status == "running":
            return
        if await self._is_ended():
            log.warning("the gateway has ended cluster %s; asking for another", self._cluster.name)
            await self._ask_for_another()
        log.warning("the connection to the scheduler is lost; reconnecting")
        async with asyncio.timeout(_CALL_S):
            client = await self._cluster.get_client(set_as_default=False)
        former, self.client = self.client, client
        await close_client(former)
        await self._cluster.scale(self._n_wanted)

    async def _is_ended(self) -> bool:
        """Whether the gateway runs no such cluster any more, whoever has stopped it."""
        async with asyncio.timeout(_CALL_S), Gateway(asynchronous=True) as gateway:
            there = {each.name for each in await gateway.list_clusters()}
        return self._cluster.name not in there

    async def _ask_for_another(self) -> None:
        with contextlib.suppress(*_FAULTS, TimeoutError):
            async with asyncio.timeout(_CALL_S):
                await self._cluster.close(shutdown=True)
        self._cluster = GatewayCluster(asynchronous=True)
        await self._cluster
        self._note.write_text(self._cluster.name)

    async def close(self) -> None:
        client = getattr(self, "client", None)
        if client is not None:
            await close_client(client)
        cluster, self._cluster = self._cluster, None
        if cluster is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_S):
                await cluster.close(shutdown=True)
            self._note.unlink(missing_ok=True)
        except (*_FAULTS, TimeoutError) as error:
            log.error("cluster %s of the gateway is not stopped: %r", cluster.name, error)
