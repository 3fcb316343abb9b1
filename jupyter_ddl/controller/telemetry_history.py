"""The last minute of one worker in little memory: 60 points in rings of plain numbers.  Pure."""

from __future__ import annotations

import math
from array import array

from jupyter_ddl.events.telemetry import GpuSample, WorkerHistory, WorkerSample

__all__ = ["N_POINTS", "History"]

N_POINTS = 60

_Ring = array  # of doubles; NaN: not measured


class History:
    """Points of one worker, one per sample; a GPU that is not seen any more is forgotten."""

    def __init__(self) -> None:
        self._n = 0
        self._at_s = _ring()
        self._cpu = _ring()
        self._memory = _ring()
        self._gpus: dict[str, tuple[_Ring[float], _Ring[float]]] = {}

    def add(self, sample: WorkerSample) -> None:
        """Take a sample; the oldest one beyond 60 goes."""
        place = self._n % N_POINTS
        self._n += 1
        self._at_s[place] = sample.at_s
        self._cpu[place] = _number(sample.cpu)
        self._memory[place] = _number(sample.memory_bytes)
        old, self._gpus = self._gpus, {}
        for gpu in sample.gpus:
            rings = old.get(gpu.uuid) or (_ring(), _ring())
            rings[0][place] = _number(gpu.utilization)
            rings[1][place] = _number(_memory_share(gpu))
            self._gpus[gpu.uuid] = rings

    def points(self, worker: str) -> WorkerHistory:
        """As views draw it, oldest first, rounded to what can be seen."""
        order = self._order()
        return WorkerHistory(
            worker,
            at_s=tuple(round(self._at_s[place], 1) for place in order),
            cpu=_values(self._cpu, order),
            memory_bytes=tuple(
                None if math.isnan(value := self._memory[place]) else int(value) for place in order
            ),
            gpu={uuid: _values(rings[0], order) for uuid, rings in self._gpus.items()},
            gpu_memory={uuid: _values(rings[1], order) for uuid, rings in self._gpus.items()},
        )

    def _order(self) -> list[int]:
        first = max(0, self._n - N_POINTS)
        return [number % N_POINTS for number in range(first, self._n)]


def _memory_share(gpu: GpuSample) -> float | None:
    if gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
        return None
    return gpu.memory_used_bytes / gpu.memory_total_bytes


def _ring() -> _Ring[float]:
    return array("d", [math.nan]) * N_POINTS


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _values(ring: _Ring[float], order: list[int]) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(ring[place]) else round(ring[place], 2) for place in order)
