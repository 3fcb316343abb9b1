"""How Dask is set up below a controller: in its own process, and in containers elsewhere."""

from __future__ import annotations

from typing import Any

__all__ = ["DASK_CONFIG"]

DASK_CONFIG: dict[str, Any] = {
    # A trial's fate is decided by its own budgets, never by Dask's counter (measured: 23 of 24
    # trials lost with the default of 3 under frequent worker kills).
    "distributed.scheduler.allowed-failures": 1_000_000,
    # The ledger holds history; Dask need not.
    "distributed.admin.log-length": 0,
    "distributed.admin.low-level-log-length": 0,
    # Dask closes a worker's nanny for good when the worker is not back by then, even if it is just
    # starting: the backend takes its place.
    "distributed.deploy.lost-worker-timeout": "365 days",
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.comm.require-encryption": True,
    "distributed.worker.profile.enabled": False,
    "distributed.diagnostics.nvml": False,
    # Dask looks at its own loops 50 times a second in the scheduler, each nanny and each worker,
    # and at the host twice a second: half of what an idle cluster costs.  A training whose ranks
    # fill the cores pays for each of these looks.
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "2s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.system-monitor.log-length": 300,
    "distributed.worker.memory.monitor-interval": "250ms",
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.diagnostics.computations.max-history": 1,
}
