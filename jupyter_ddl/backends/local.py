"""The default backend: scheduler in the controller, workers as its child processes.

Every Dask comm is TLS with temporary certificates that exist only in memory, bound to the loopback
interface on free ports; there is no dashboard.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import dask
from distributed import Client, LocalCluster, Status

from jupyter_ddl.backends.base import Backend, OnPhase, n_local_workers
from jupyter_ddl.backends.certificates import temporary_security
from jupyter_ddl.backends.dask_config import DASK_CONFIG
from jupyter_ddl.backends.patience import PatientScheduler
from jupyter_ddl.backends.zygote_source import keep_source
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.formats import format_counted
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.store.awake import awake_s
from jupyter_ddl.store.host_limits import host_limits

__all__ = ["LocalBackend"]

log = logging.getLogger(__name__)

_LOST = frozenset({Status.closed, Status.failed})
_COMES_BACK_S = 20.0
"""By then a nanny has started its worker again, also on a host that is busy."""
_CLOSE_NANNY_S = 5.0


class LocalBackend(Backend):
    """``distributed.LocalCluster`` inside the controller."""

    client: Client

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        self._cluster: Any = None
        self._absent_since_s: dict[Any, float] = {}
        limits = host_limits()
        fitting = n_local_workers(limits.cpus, limits.memory_bytes, spec.cpus_per_worker)
        self._n_wanted = fitting if spec.n_workers is None else spec.n_workers

    @property
    def n_wanted(self) -> int:
        return self._n_wanted

    @property
    def shared_filesystem(self) -> bool:
        return True

    async def start(self, on_phase: OnPhase) -> None:
        dask.config.set(DASK_CONFIG)
        dask.config.set({"distributed.scheduler.worker-ttl": self._spec.worker_timeout_s})
        on_phase(f"starting {format_counted(self._n_wanted, 'worker')}")
        try:
            async with asyncio.timeout(self._spec.start_timeout_s):
                await self._start()
        except TimeoutError:
            await self.close()
            raise ClusterError(
                f"starting {self._n_wanted} local workers took longer than "
                f"{self._spec.start_timeout_s:.0f} s; see `%cluster logs`, "
                f"or ask for fewer with -n"
            ) from None

    async def _start(self) -> None:
        security = temporary_security()
        self._cluster = LocalCluster(
            n_workers=self._n_wanted,
            threads_per_worker=1,
            processes=True,
            asynchronous=True,
            security=security,
            host="127.0.0.1",
            scheduler_port=0,
            dashboard_address="127.0.0.1:0",  # None would mean port 8787
            # Of plain Dask code; ranks are processes of their own, bounded one by one.
            memory_limit=self._spec.memory_per_worker_bytes or "auto",
            # What a scheduler in this process is told of its cluster never changes.
            scheduler_sync_interval=300,
            preload=["jupyter_ddl.worker.preemption"],
            silence_logs=False,
        )
        await self._cluster
        PatientScheduler(self._cluster.scheduler, awake_s)
        # Dask's HTTP server knows neither users nor TLS; workers close theirs with the plugin.
        self._cluster.scheduler.http_server.stop()
        self.client = await Client(self._cluster, asynchronous=True, set_as_default=False)

    async def scale(self, n_workers: int, keep: Sequence[str]) -> None:
        self._n_wanted = n_workers
        surplus = len(self._cluster.worker_spec) - n_workers
        if surplus <= 0:
            self._cluster.scale(n_workers)
            return
        by_address = {nanny.worker_address: name for name, nanny in self._cluster.workers.items()}
        kept = {by_address[address] for address in keep if address in by_address}
        names = sorted(self._cluster.worker_spec, key=lambda name: name in kept)
        await self._cluster.scale_down(names[:surplus])

    async def repair(self) -> None:
        keep_source()
        cluster = self._cluster
        connected = {state.name for state in cluster.scheduler.workers.values()}
        now_s = awake_s()
        for name, nanny in tuple(cluster.workers.items()):
            if name in connected:
                self._absent_since_s.pop(name, None)
                continue
            absent_s = now_s - self._absent_since_s.setdefault(name, now_s)
            if nanny.status not in _LOST and absent_s < _COMES_BACK_S:
                continue
            log.warning("worker %s is %s and not coming back; replacing it", name, nanny.status)
            del self._absent_since_s[name], cluster.workers[name]
            await nanny.close(timeout=_CLOSE_NANNY_S)
        if cluster.worker_spec.keys() != cluster.workers.keys():
            cluster.scale(len(cluster.worker_spec))  # opens what is missing

    async def close(self) -> None:
        client, cluster = getattr(self, "client", None), self._cluster
        if client is not None:
            await client.close()
        if cluster is None:
            return
        await cluster.close()
        scheduler = getattr(cluster, "scheduler", None)
        if scheduler is not None and scheduler.status != Status.closed:
            # It listened already when the start was given up: Dask does not know of it yet.
            scheduler.http_server.stop()
            await scheduler.close()
