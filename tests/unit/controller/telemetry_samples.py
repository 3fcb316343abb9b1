"""Samples of workers as plain values."""

from __future__ import annotations

from typing import Any

from jupyter_ddl.protocol.telemetry import GpuProcess, GpuSample, RankSample, WorkerSample

__all__ = ["GIB", "gpu", "rank", "sample"]

GIB = 1 << 30


def gpu(index: int = 0, utilization: float | None = 0.9, **fields: Any) -> GpuSample:
    values = {
        "memory_used_bytes": 8 * GIB,
        "memory_total_bytes": 80 * GIB,
        "power_w": 312.5,
        "temperature_c": 61.0,
        "sm_clock_mhz": 1410.0,
        "processes": (GpuProcess(4711, 8 * GIB),),
    }
    uuid = f"GPU-{index:08d}-0000-0000-0000-000000000000"
    return GpuSample(uuid, index, "Fake 80", utilization=utilization, **(values | fields))


def rank(number: int = 0, run_id: str = "run-1", **fields: Any) -> RankSample:
    return RankSample(run_id, 0, number, 1000 + number, **({"cpu": 0.93} | fields))


def sample(worker: str, at_s: float, **fields: Any) -> WorkerSample:
    values = {
        "cpu": 1.53,
        "n_cpus": 2.0,
        "memory_bytes": 4 * GIB,
        "memory_limit_bytes": 16 * GIB,
        "read_bytes_s": 1e6,
        "write_bytes_s": 2e6,
        "received_bytes_s": 3e6,
        "sent_bytes_s": 4e6,
    }
    return WorkerSample(worker, "host-1", at_s, **(values | fields))
