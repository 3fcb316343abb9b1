"""How large clusters are: which sizes are none, and what a local one may use of its container."""

from __future__ import annotations

from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.cluster import MAX_WORKERS, ClusterSpec

__all__ = ["MAX_CPUS", "MIN_WORKER_BYTES", "check_size", "n_local_workers"]

MAX_CPUS = 1024
_MIN_MEMORY_BYTES = 64 * 10**6
_MAX_MEMORY_BYTES = 64 * 10**12
_MAX_LEASE_S = 365 * 86400

MIN_WORKER_BYTES = 900 << 20
"""A worker, its zygote with torch imported and one rank: measured at 0.6-0.8 GB."""


def n_local_workers(cpus: int, memory_bytes: int, cpus_per_worker: int) -> int:
    """Number of workers: one per ``cpus_per_worker``, fewer where memory is short, at least 1."""
    by_cpu = cpus // max(1, cpus_per_worker)
    by_memory = memory_bytes // MIN_WORKER_BYTES
    return int(max(1, min(by_cpu, by_memory)))


def check_size(spec: ClusterSpec) -> None:
    """Refuse sizes that no cluster of any kind has, before a process is started for it.

    Raises
    ------
    ClusterError
        Names the value, what is expected, and the unit that was left out perhaps.
    """
    n_workers, memory_bytes = spec.n_workers, spec.memory_per_worker_bytes
    if n_workers is not None and not 0 <= n_workers <= MAX_WORKERS:
        raise ClusterError(
            f"{n_workers:,} workers were asked for; 0 to {MAX_WORKERS:,} are expected"
        )
    if not 1 <= spec.cpus_per_worker <= MAX_CPUS:
        raise ClusterError(f"--cpus {spec.cpus_per_worker}: 1 to {MAX_CPUS} are expected")
    for option, seconds in (
        ("--idle-timeout", spec.idle_timeout_s),
        ("--max-age", spec.max_age_s),
    ):
        if not 1 <= seconds <= _MAX_LEASE_S:  # nor what is not a number
            raise ClusterError(f"{option} is {seconds:g} s; 1s to 365d are expected")
    if memory_bytes is None or _MIN_MEMORY_BYTES <= memory_bytes <= _MAX_MEMORY_BYTES:
        return
    unit = "GB" if memory_bytes < 1000 else "MB" if memory_bytes < 10**6 else ""
    hint = f" (did you mean {memory_bytes}{unit}?)" if unit else ""
    raise ClusterError(f"--memory is {memory_bytes:,} bytes; 64MB to 64TB are expected{hint}")
