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
from dask_gateway import Gateway
from dask_gateway.client import ClusterStatus, GatewayClusterError, GatewayServerError
from distributed import Client

from jupyter_ddl.backends.base import Backend, OnPhase
from jupyter_ddl.backends.reaching import check_versions, close_client, n_connected
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.store.awake import awake_s
from jupyter_ddl.store.paths import runtime_dir

__all__ = ["GatewayBackend"]

log = logging.getLogger(__name__)

_N_WORKERS = 2
_POLL_S = 0.2
_CALL_S = 5.0
_CONNECT_S = 15.0
_SUBMIT_S = 30.0
_CLOSE_S = 8.0
_LONGEST_PAUSE_S = 60.0
_FAULTS = (aiohttp.ClientError, GatewayClusterError, GatewayServerError, OSError, ValueError)


class GatewayBackend(Backend):
    """Made and used on the controller's loop."""

    client: Client

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        self._n_wanted = _N_WORKERS if spec.n_workers is None else spec.n_workers
        self._gateway: Any = None
        self._name = ""
        """That the gateway has given to the cluster which it was asked for last."""
        self._cluster: Any = None
        """Our end of it, once it has a scheduler."""
        self._trouble = ""
        self._pause_s = 1.0
        self._next_ask_s = 0.0

    @property
    def n_wanted(self) -> int:
        return self._n_wanted

    @property
    def trouble(self) -> str:
        if self.client.status == "running":
            return ""
        return self._trouble or "the scheduler is lost: reconnecting; runs wait"

    async def start(self, on_phase: OnPhase) -> None:
        address = dask.config.get("gateway.address", None)
        if not address:
            raise ClusterError(
                "no gateway is configured: set gateway.address in Dask's configuration, or "
                "DASK_GATEWAY__ADDRESS, to the URL of your Dask Gateway"
            )
        on_phase(f"asking the gateway {address} for a cluster")
        self._gateway = Gateway(asynchronous=True)
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
        await self._submit()
        on_phase(f"the gateway starts cluster {self._name}; waiting for its scheduler")
        await self._connect()
        on_phase(f"cluster {self._name} has a scheduler; waiting for its workers")
        # There is nothing to subscribe to before the first worker is there.
        while await n_connected(self.client) < self._n_wanted:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        if self._n_wanted:
            await check_versions(self.client)

    async def _submit(self) -> None:
        # The workers' sizes are options of the service, and named as its operator likes.
        self._name = await self._gateway.submit()
        self._note.write_text(self._name)  # before it is up: we may be killed meanwhile

    async def _connect(self) -> None:
        """Wait for the scheduler of the cluster, and connect to it."""
        cluster = self._gateway.connect(self._name)
        await cluster
        former, self._cluster = self._cluster, cluster
        if former is not None:
            await _let_go(former)
        await cluster.scale(self._n_wanted)
        self.client = await cluster.get_client(set_as_default=False)

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
        with contextlib.suppress(ValueError, GatewayClusterError):  # it is gone, too
            await self._gateway.stop_cluster(name)
        self._note.unlink()

    async def scale(self, n_workers: int, keep: Sequence[str]) -> None:
        """Ask for ``n_workers``; the gateway itself takes idle workers first."""
        self._n_wanted = n_workers
        if self.client.status != "running":
            return  # asked for when there is a scheduler again
        try:
            await self._cluster.scale(n_workers)
        except _FAULTS as error:
            raise ClusterError(f"the gateway did not scale the cluster: {error}") from None

    async def repair(self) -> None:
        """Connect again when the scheduler was lost, to another cluster if the gateway has ended
        this one; workers are replaced by the gateway."""
        if self.client.status == "running":
            return
        former = self.client
        try:
            await self._find_scheduler()
        except (*_FAULTS, TimeoutError) as error:
            why = str(error) or "it does not answer"
            self._tell(f"the gateway {self._gateway.address} can't help: {why}; runs wait")
        if self.client is not former:
            self._trouble, self._pause_s = "", 1.0
            await close_client(former)

    async def _find_scheduler(self) -> None:
        """One step towards it; each ends soon, and the next comes a second later."""
        async with asyncio.timeout(_CALL_S):
            there = {each.name: each.status for each in await self._gateway.list_clusters()}
        status = there.get(self._name)
        if status is ClusterStatus.RUNNING:
            self._tell("the connection to the scheduler is lost: reconnecting; runs wait")
            async with asyncio.timeout(_CONNECT_S):
                await self._connect()
        elif status is ClusterStatus.PENDING:
            self._tell(f"the gateway is starting another cluster, {self._name}; runs wait")
        elif awake_s() >= self._next_ask_s:
            # A gateway that ends each of them at once is not asked without a pause.
            self._next_ask_s = awake_s() + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            log.warning("the gateway has ended cluster %s; asking for another", self._name)
            async with asyncio.timeout(_SUBMIT_S):
                await self._submit()

    def _tell(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.warning("%s", trouble)
        self._trouble = trouble

    async def close(self) -> None:
        name, self._name = self._name, ""
        gateway, self._gateway = self._gateway, None
        cluster, self._cluster = self._cluster, None
        if gateway is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_S):  # first: our own ends may hang, and cost nobody
                if name:
                    await gateway.stop_cluster(name)
                    self._note.unlink(missing_ok=True)
        except (*_FAULTS, TimeoutError) as error:
            log.error("cluster %s of the gateway is not stopped: %r", name, error)
        ends = [gateway.close()]
        if cluster is not None:
            ends.append(_let_go(cluster))
        if hasattr(self, "client"):
            ends.append(close_client(self.client))
        await asyncio.gather(*ends)


async def _let_go(cluster: Any) -> None:
    """Close our end of a cluster of the gateway."""
    with contextlib.suppress(*_FAULTS, TimeoutError):
        async with asyncio.timeout(_CALL_S):
            await cluster.close(shutdown=False)
