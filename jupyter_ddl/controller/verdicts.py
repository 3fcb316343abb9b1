"""What follows from samples: an idle GPU, a rank that waits for its data, memory that runs out.

Pure.  A verdict needs evidence that lasts, and survives a short interruption, so that it neither
comes from one odd sample nor flickers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from jupyter_ddl.formats import format_bytes, format_percent
from jupyter_ddl.protocol.telemetry import GpuSample, RankSample, WorkerSample

__all__ = ["Verdict", "WorkerEvidence", "verdicts"]

_GAP_S = 3.0
"""Evidence may be interrupted for so long."""
_SILENCE_S = 10.0
"""After a longer silence of the worker, evidence starts over."""
_IDLE_S = 30.0
_IDLE_UTILIZATION = 0.05
_MEMORY_S = 5.0
_MEMORY_SHARE = 0.9
_INPUT_S = 15.0
_INPUT_LOADER = 0.5
_INPUT_UTILIZATION = 0.5
_LOST_S = 2.0
_SMOOTH = 0.2
_MAX_IDLE = 4
_MAX_TEXTS = 20


class _Evidence:
    """Since when something holds."""

    __slots__ = ("_last_s", "_since_s")

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._last_s = 0.0

    def observe(self, holds: bool, at_s: float) -> None:
        if self._since_s is not None and at_s - self._last_s > _GAP_S:
            self._since_s = None
        if holds:
            self._last_s = at_s
            if self._since_s is None:
                self._since_s = at_s

    @property
    def lasting_s(self) -> float:
        """Seconds between the first and the last time that it was seen to hold."""
        return 0.0 if self._since_s is None else self._last_s - self._since_s


class _RankEvidence:
    __slots__ = ("input_bound", "loader", "rank", "run_id", "utilization")

    def __init__(self, sample: RankSample) -> None:
        self.run_id = sample.run_id
        self.rank = sample.rank
        self.input_bound = _Evidence()
        self.loader = sample.loader_share or 0.0
        self.utilization: float | None = None

    def observe(self, sample: RankSample, utilization: float | None, at_s: float) -> None:
        loader = sample.loader_share
        waits = sample.is_busy and loader is not None and loader >= _INPUT_LOADER
        self.input_bound.observe(waits and (utilization or 0.0) <= _INPUT_UTILIZATION, at_s)
        self.loader = _smooth(self.loader, loader) or 0.0
        self.utilization = _smooth(self.utilization, utilization)


class Verdict(msgspec.Struct, frozen=True):
    """One finding.  ``weight`` orders them, the heaviest first."""

    kind: str
    weight: int
    text: str
    run_ids: tuple[str, ...] = ()
    """Runs whose ranks are concerned."""


class WorkerEvidence:
    """What the samples of one worker have shown so far; bounded by what its newest one holds."""

    def __init__(self) -> None:
        self._at_s = 0.0
        self._sample: WorkerSample | None = None
        self._forget()

    def _forget(self) -> None:
        self._memory = _Evidence()
        self._nvml = _Evidence()
        self._idle: dict[str, _Evidence] = {}
        self._lost: dict[str, _Evidence] = {}
        self._ranks: dict[int, _RankEvidence] = {}

    def observe(self, sample: WorkerSample) -> None:
        """Take a sample; older ones than the last are ignored."""
        if sample.at_s <= self._at_s:
            return
        if sample.at_s - self._at_s > _SILENCE_S:
            self._forget()
        self._at_s = at_s = sample.at_s
        self._sample = sample
        self._memory.observe(_memory_share(sample) >= _MEMORY_SHARE, at_s)
        self._nvml.observe("does not answer" in sample.gpu_state, at_s)
        self._observe_gpus(sample, at_s)
        self._observe_ranks(sample, at_s)

    def _observe_gpus(self, sample: WorkerSample, at_s: float) -> None:
        held = _held(sample)
        idle, self._idle = self._idle, {}
        lost, self._lost = self._lost, {}
        for gpu in sample.gpus:
            self._lost[gpu.uuid] = lost.get(gpu.uuid) or _Evidence()
            self._lost[gpu.uuid].observe("lost" in gpu.state, at_s)
            if gpu.uuid in held:  # one that nobody holds has every right to be idle
                self._idle[gpu.uuid] = idle.get(gpu.uuid) or _Evidence()
                used = gpu.utilization
                self._idle[gpu.uuid].observe(used is not None and used <= _IDLE_UTILIZATION, at_s)

    def _observe_ranks(self, sample: WorkerSample, at_s: float) -> None:
        known, self._ranks = self._ranks, {}
        used = {gpu.uuid: gpu.utilization for gpu in sample.gpus}
        for rank in sample.ranks:
            found = known.get(rank.pid)
            if found is None or found.run_id != rank.run_id:
                found = _RankEvidence(rank)
            found.observe(rank, _mean(used.get(uuid) for uuid in rank.gpus), at_s)
            self._ranks[rank.pid] = found

    def verdicts(self) -> Iterator[Verdict]:
        """Findings about the worker and its GPUs."""
        sample = self._sample
        if sample is None:
            return
        runs = tuple(dict.fromkeys(rank.run_id for rank in sample.ranks))
        if self._memory.lasting_s >= _MEMORY_S:
            yield Verdict("memory", 3, _memory_text(sample), runs)
        if self._nvml.lasting_s >= _LOST_S:
            text = (
                f"NVML of {_worker_name(sample)} does not answer for {self._nvml.lasting_s:.0f} s"
            )
            yield Verdict("nvml", 2, text, runs)
        for gpu in sample.gpus:
            name = f"{_gpu_name(gpu)} of {_worker_name(sample)}"
            if self._lost[gpu.uuid].lasting_s >= _LOST_S:
                yield Verdict("lost", 4, f"{name} is lost", runs)
            idle = self._idle.get(gpu.uuid)
            if idle is not None and idle.lasting_s >= _IDLE_S:
                holders = tuple(r.run_id for r in sample.ranks if gpu.uuid in r.gpus)
                text = f"{name} idle for {idle.lasting_s:.0f} s"
                yield Verdict("idle", 1, text, holders or runs)

    def input_bound(self) -> Iterator[tuple[str, float, float | None]]:
        """(run, loader's share, GPU utilization) of every rank that waits for its data."""
        for rank in self._ranks.values():
            if rank.input_bound.lasting_s >= _INPUT_S:
                yield rank.run_id, rank.loader, rank.utilization


def verdicts(workers: Iterable[WorkerEvidence], run_id: str = "") -> tuple[str, ...]:
    """All findings as sentences, the gravest first, at most 20.

    Parameters
    ----------
    run_id : str
        Only those that concern this run; empty: all.
    """
    found: list[Verdict] = []
    waiting: dict[str, list[tuple[float, float | None]]] = {}
    for worker in workers:
        found += [v for v in worker.verdicts() if not run_id or run_id in v.run_ids]
        for run, loader, used in worker.input_bound():
            if run_id in ("", run):
                waiting.setdefault(run, []).append((loader, used))
    found += [_input_verdict(run if not run_id else "", ranks) for run, ranks in waiting.items()]
    found.sort(key=lambda verdict: -verdict.weight)
    texts = [verdict.text for verdict in found if verdict.kind != "idle"][: _MAX_TEXTS - _MAX_IDLE]
    idle = [verdict.text for verdict in found if verdict.kind == "idle"]
    if len(idle) > _MAX_IDLE:
        n_more = len(idle) - _MAX_IDLE + 1
        idle = [*idle[: _MAX_IDLE - 1], f"{n_more} more GPUs idle for {_IDLE_S:.0f} s or longer"]
    return (*texts, *idle)


def _input_verdict(run_id: str, ranks: list[tuple[float, float | None]]) -> Verdict:
    loader = _mean(share for share, _ in ranks) or 0.0
    used = _mean(utilization for _, utilization in ranks)
    gpu = "" if used is None else f"GPU {format_percent(used)}, "
    n_ranks = f" ({len(ranks)} ranks)" if len(ranks) > 1 else ""
    subject = f"{run_id} is " if run_id else ""
    text = f"{subject}input-bound: {gpu}loader {format_percent(loader)}{n_ranks}"
    return Verdict("input", 2, text, (run_id,))


def _held(sample: WorkerSample) -> set[str]:
    """GPUs that a busy rank was given, or has memory on."""
    busy = [rank for rank in sample.ranks if rank.is_busy]
    pids = {rank.pid for rank in busy}
    held = {uuid for rank in busy for uuid in rank.gpus}
    return held | {g.uuid for g in sample.gpus if any(p.pid in pids for p in g.processes)}


def _worker_name(sample: WorkerSample) -> str:
    name = sample.worker
    return f"worker {name}" if name.isdecimal() else name


def _gpu_name(gpu: GpuSample) -> str:
    return (
        f"MIG instance {gpu.uuid[-8:]} of GPU {gpu.index}"
        if gpu.parent_uuid
        else f"GPU {gpu.index}"
    )


def _memory_share(sample: WorkerSample) -> float:
    if sample.memory_bytes is None or not sample.memory_limit_bytes:
        return 0.0
    return sample.memory_bytes / sample.memory_limit_bytes


def _memory_text(sample: WorkerSample) -> str:
    used, limit = sample.memory_bytes or 0, sample.memory_limit_bytes or 1
    return (
        f"{_worker_name(sample)} uses {format_percent(used / limit)} of its memory "
        f"({format_bytes(used)} of {format_bytes(limit)})"
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _smooth(old: float | None, new: float | None) -> float | None:
    if old is None or new is None:
        return new
    return old + _SMOOTH * (new - old)
