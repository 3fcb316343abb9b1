"""How large a local cluster is: what the container may use, not what the host has."""

from __future__ import annotations

__all__ = ["MIN_WORKER_BYTES", "n_local_workers"]

MIN_WORKER_BYTES = 900 << 20
"""A worker, its zygote with torch imported and one rank: measured at 0.6-0.8 GB."""


def n_local_workers(cpus: int, memory_bytes: int, cpus_per_worker: int) -> int:
    """Number of workers: one per ``cpus_per_worker``, fewer where memory is short, at least 1."""
    by_cpu = cpus // max(1, cpus_per_worker)
    by_memory = memory_bytes // MIN_WORKER_BYTES
    return int(max(1, min(by_cpu, by_memory)))
