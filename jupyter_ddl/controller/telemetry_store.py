"""What workers measured, kept for views and for recordings; no event, and nothing depends on it.

:class:`TelemetryStore` holds the last samples of every worker: what strips, heat maps and lists are
drawn from.  :class:`TelemetryRecord` keeps a thin part of them beside a run's ledger, a JSON line
each: it may lack samples and it may be missing, and a full disk stops it silently.
"""

from __future__ import annotations

import asyncio
import logging
import math
from array import array
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from jupyter_ddl.controller.verdicts import WorkerEvidence, verdicts
from jupyter_ddl.protocol.reading import json_decoder, msgpack_decoder
from jupyter_ddl.protocol.telemetry import (
    ClusterTelemetry,
    GpuSample,
    RankSample,
    WorkerHistory,
    WorkerSample,
)
from jupyter_ddl.store.paths import ledger_path

__all__ = [
    "MAX_BYTES",
    "MAX_SAMPLE_BYTES",
    "N_POINTS",
    "History",
    "TelemetryRecord",
    "TelemetryStore",
    "of_run",
    "read_samples",
    "samples_path",
]


# The newest sample and the last minute of every worker, and what views get of them.  Pure.

# The last minute of one worker in little memory: 60 points in rings of plain numbers.  Pure.

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


MAX_SAMPLE_BYTES = 256 << 10
_MAX_HISTORIES = 32
_SAMPLES_BYTES = 48_000
_OTHERS_BYTES = 36_000
_HISTORIES_BYTES = 40_000
"""Together with verdicts below 128 kB, as JSON."""
_RUN_KEPT_S = 60.0
"""A worker stays in the picture of a run for so long after its last rank."""


class _Worker:
    def __init__(self) -> None:
        self.sample: WorkerSample | None = None
        self.history = History()
        self.evidence = WorkerEvidence()
        self.runs: dict[str, float] = {}
        """Run → when a rank of it was seen last."""

    def add(self, sample: WorkerSample) -> None:
        self.sample = sample
        self.history.add(sample)
        self.evidence.observe(sample)
        at_s = sample.at_s
        self.runs = {run: seen for run, seen in self.runs.items() if at_s - seen < _RUN_KEPT_S}
        self.runs.update((rank.run_id, at_s) for rank in sample.ranks)


class TelemetryStore:
    """Bounded by the workers that the cluster has, whatever they send."""

    def __init__(self) -> None:
        self._decoder = msgpack_decoder(WorkerSample)
        self._workers: dict[str, _Worker] = {}
        self._views: dict[str, ClusterTelemetry] = {}
        self.seq = 0
        self.n_refused = 0
        """Messages that were no sample, or came from no worker of this cluster."""

    def keep(self, workers: Collection[str]) -> None:
        """The cluster has these workers, by name; others are forgotten, and new ones let in."""
        self._workers = {name: self._workers.get(name) or _Worker() for name in workers}
        self._changed()

    def add(self, encoded: bytes) -> WorkerSample | None:
        """Take a message of a worker; None when it was refused."""
        sample = self._decoded(encoded)
        worker = None if sample is None else self._workers.get(sample.worker)
        if sample is None or worker is None:
            self.n_refused += 1
            return None
        if worker.sample is not None and sample.at_s < worker.sample.at_s:
            return None  # overtaken by a newer one
        worker.add(sample)
        self._changed()
        return sample

    def _decoded(self, encoded: bytes) -> WorkerSample | None:
        if len(encoded) > MAX_SAMPLE_BYTES:
            return None
        try:
            return self._decoder.decode(encoded)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def _changed(self) -> None:
        self.seq += 1
        self._views.clear()

    def samples(self) -> Iterable[WorkerSample]:
        """The newest sample of every worker that has sent one."""
        return [w.sample for w in self._workers.values() if w.sample is not None]

    def view(
        self, run_id: str, now_s: float, *, cpu_hours: float | None, gpu_hours: float | None
    ) -> ClusterTelemetry:
        """What a view draws: at most 128 kB as JSON, whatever the size of the cluster.

        Parameters
        ----------
        run_id : str
            Of whose workers; empty: all.
        now_s : float
            Unix seconds.
        """
        view = self._views.get(run_id)
        if view is None:
            view = self._views[run_id] = self._made(run_id, now_s)
        return msgspec.structs.replace(view, cpu_hours=cpu_hours, gpu_hours=gpu_hours)

    def _made(self, run_id: str, now_s: float) -> ClusterTelemetry:
        chosen = {
            name: worker
            for name, worker in sorted(self._workers.items(), key=_by_name)
            if worker.sample is not None and (not run_id or run_id in worker.runs)
        }
        samples = [of_run(w.sample, run_id) for w in chosen.values() if w.sample is not None]
        shown = _within(sorted(samples, key=_interest), _SAMPLES_BYTES)
        names = {sample.worker for sample in shown}
        others = [(s.worker, _brief(s)) for s in samples if s.worker not in names]
        return ClusterTelemetry(
            seq=self.seq,
            at_s=round(now_s, 1),
            workers=tuple(sample for sample in samples if sample.worker in names),
            histories=_histories(chosen, [sample.worker for sample in shown]),
            verdicts=verdicts((w.evidence for w in chosen.values()), run_id),
            n_workers=len(samples),
            others=dict(_within(others, _OTHERS_BYTES)),
        )


def _histories(workers: dict[str, _Worker], names: list[str]) -> tuple[WorkerHistory, ...]:
    points = (workers[name].history.points(name) for name in names[:_MAX_HISTORIES])
    return tuple(_within(points, _HISTORIES_BYTES))


def _by_name(item: tuple[str, object]) -> tuple[int, str]:
    return len(item[0]), item[0]


def _interest(sample: WorkerSample) -> int:
    """Lower ones are shown rather than others where there is no room for all."""
    troubled = any(gpu.state for gpu in sample.gpus)
    busy = any(rank.is_busy for rank in sample.ranks)
    return -2 * troubled - busy


def of_run(sample: WorkerSample, run_id: str) -> WorkerSample:
    """The sample with the ranks of one run only; of all when ``run_id`` is empty."""
    if not run_id:
        return sample
    ranks: tuple[RankSample, ...] = tuple(r for r in sample.ranks if r.run_id == run_id)
    return msgspec.structs.replace(sample, ranks=ranks)


def _brief(sample: WorkerSample) -> tuple[float | None, ...]:
    cpu = _share(sample.cpu, sample.n_cpus)
    memory = _share(sample.memory_bytes, sample.memory_limit_bytes)
    return (cpu, memory, *(gpu.utilization for gpu in sample.gpus))


def _share(used: float | None, limit: float | None) -> float | None:
    return None if used is None or not limit else round(used / limit, 2)


T = TypeVar("T")


def _within(items: Iterable[T], max_bytes: int) -> list[T]:
    """The first of ``items`` that fit, as JSON, into ``max_bytes``."""
    found: list[T] = []
    for item in items:
        max_bytes -= len(msgspec.json.encode(item)) + 1
        if max_bytes < 0:
            break
        found.append(item)
    return found


log = logging.getLogger(__name__)

MAX_BYTES = 4 << 20
"""Of one run."""
_MIN_GAP_S = 0.9
_N_PER_AGE = 100
"""A sample of a worker is kept if the last one is older than its hundredth part of the run."""
_MAX_RUNS = 64
_SAMPLE = json_decoder(WorkerSample)


def samples_path(run_id: str) -> Path:
    """Where the samples of a run lie; the file need not exist."""
    return ledger_path(run_id).with_name("telemetry.jsonl")


def read_samples(run_id: str) -> list[WorkerSample]:
    """What was kept of a run's workers, as it was written; nothing where nothing was."""
    try:
        lines = samples_path(run_id).read_bytes().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            found.append(_SAMPLE.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # the last one may be cut off
    return found


class _Run:
    """What is known of one run's file."""

    def __init__(self, path: Path, began_s: float) -> None:
        self.path = path
        self.began_s = began_s
        self.last_s: dict[str, float] = {}
        self.waiting: list[bytes] = []
        self.n_bytes = path.stat().st_size if path.exists() else 0


class TelemetryRecord:
    """Used on the controller's loop; only :meth:`flush` touches the disk, in a thread."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def observe(self, sample: WorkerSample) -> None:
        """Keep a sample for the runs whose ranks are at work in it, unless there are enough."""
        for run_id in {rank.run_id for rank in sample.ranks if rank.is_busy}:
            run = self._runs.get(run_id) or self._begin(run_id, sample.at_s)
            if run is None or run.n_bytes >= MAX_BYTES:
                continue
            gap_s = max(_MIN_GAP_S, (sample.at_s - run.began_s) / _N_PER_AGE)
            if sample.at_s - run.last_s.get(sample.worker, float("-inf")) < gap_s:
                continue
            run.last_s[sample.worker] = sample.at_s
            line = msgspec.json.encode(of_run(sample, run_id)) + b"\n"
            run.n_bytes += len(line)
            run.waiting.append(line)

    async def flush(self) -> None:
        """Append what has been kept."""
        found = [(run.path, b"".join(run.waiting)) for run in self._runs.values() if run.waiting]
        for run in self._runs.values():
            run.waiting.clear()
        if found:
            await asyncio.to_thread(_append, found)

    def _begin(self, run_id: str, at_s: float) -> _Run | None:
        # Workers name runs, and a name must not become any path.
        if not run_id.replace("-", "").isalnum() or not ledger_path(run_id).exists():
            return None
        while len(self._runs) >= _MAX_RUNS:
            self._runs.pop(next(iter(self._runs)))
        run = self._runs[run_id] = _Run(samples_path(run_id), at_s)
        return run


def _append(pieces: list[tuple[Path, bytes]]) -> None:
    for path, data in pieces:
        try:
            with path.open("ab") as file:
                file.write(data)
        except OSError as error:
            log.debug("samples of %s are not kept: %s", path.parent.name, error)
