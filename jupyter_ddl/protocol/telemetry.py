"""What workers measure once a second: CPUs, memory, disk, network, GPUs, and the same per rank.

Telemetry is not an event of a run: it is kept in the controller's memory, bounded, and never in a
ledger.  Shares are 0 to 1; rates are bytes per second since the sample before; sizes are bytes.
What could not be measured is None.
"""

from __future__ import annotations

import sys
from typing import Annotated

import msgspec

__all__ = [
    "ClusterTelemetry",
    "EncodedTelemetry",
    "Finite",
    "GpuProcess",
    "GpuSample",
    "RankSample",
    "Usage",
    "WorkerHistory",
    "WorkerSample",
]


Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
"""A time or an amount: neither NaN nor infinite, whoever says so, since browsers are told null for
these."""


class GpuProcess(msgspec.Struct, frozen=True):
    """A process that has memory on a GPU."""

    pid: int
    memory_bytes: int | None = None


class GpuSample(msgspec.Struct, frozen=True):
    """One GPU, or one MIG instance of it."""

    uuid: str
    index: int
    name: str
    utilization: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    processes: tuple[GpuProcess, ...] = ()
    parent_uuid: str = ""
    """Of a MIG instance: the GPU that it is a part of."""
    state: str = ""
    """Empty when all is well; else why values are missing: ``lost``, ``no permission`` …"""


class RankSample(msgspec.Struct, frozen=True):
    """One rank process."""

    run_id: str
    trial: int
    rank: int
    pid: int
    cpu: float | None = None
    """CPUs in use: 2.0 is two cores fully busy."""
    memory_bytes: int | None = None
    read_bytes_s: float | None = None
    write_bytes_s: float | None = None
    loader_share: float | None = None
    """Share of the time that went into waiting for the DataLoader."""
    gpus: tuple[str, ...] = ()
    """UUIDs of its GPUs."""
    is_busy: bool = True
    """Whether it executes a trial, or serves a persistent group; else it waits for the next one."""


class WorkerSample(msgspec.Struct, frozen=True):
    """One worker at one moment: itself, all below it, and its host's GPUs that are its own."""

    worker: str
    host: str
    at_s: Finite
    cpu: float | None = None
    """CPUs in use by the worker and all processes below it."""
    n_cpus: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    read_bytes_s: float | None = None
    write_bytes_s: float | None = None
    received_bytes_s: float | None = None
    """Of the host's network interfaces, loopback left out."""
    sent_bytes_s: float | None = None
    gpu_state: str = ""
    """Empty when the GPUs could be read, else why not: ``n/a: driver not loaded``."""
    gpus: tuple[GpuSample, ...] = ()
    ranks: tuple[RankSample, ...] = ()


class WorkerHistory(msgspec.Struct, frozen=True):
    """The last minutes of one worker, oldest first, at most 60 points; all lists equally long."""

    worker: str
    at_s: tuple[float, ...] = ()
    cpu: tuple[float | None, ...] = ()
    memory_bytes: tuple[int | None, ...] = ()
    gpu: dict[str, tuple[float | None, ...]] = {}
    """GPU's UUID → utilization."""
    gpu_memory: dict[str, tuple[float | None, ...]] = {}
    """GPU's UUID → share of its memory."""


class ClusterTelemetry(msgspec.Struct, frozen=True):
    """All workers of a cluster, or those of one run, as views show them (≤ 128 kB as JSON)."""

    seq: int
    at_s: float
    workers: tuple[WorkerSample, ...] = ()
    histories: tuple[WorkerHistory, ...] = ()
    """Of at most 32 workers."""
    verdicts: tuple[str, ...] = ()
    """``GPU 1 of w0 idle for 40 s``, ``input-bound: GPU 12 %, loader 95 %``."""
    n_workers: int = 0
    """All there are; fewer may be listed."""
    gpu_hours: float | None = None
    """Held by the run so far, or by all runs of the cluster."""
    cpu_hours: float | None = None
    others: dict[str, tuple[float | None, ...]] = {}
    """In few words, workers that ``workers`` has no room for: share of CPUs in use, share of
    memory, then the utilization of each GPU."""


class EncodedTelemetry(msgspec.Struct, frozen=True):
    """A :class:`ClusterTelemetry` as JSON: encoded by the controller, and passed on as it is."""

    cluster: str
    run_id: str
    """Empty: of the whole cluster."""
    json: bytes


class Usage(msgspec.Struct, frozen=True):
    """What a run has held, recorded with its end; of its last session."""

    cpu_hours: Finite
    """Hours of its slots, times the CPUs of a slot."""
    gpu_hours: Finite
    peak_memory_bytes: tuple[int | None, ...] = ()
    """By rank, of the first 64 ranks: the most that a process tree was seen to hold."""
