"""A run over time: what ran where from when to when, what happened, what machines did.  Pure.

A lane is a slot of a worker, or a rank of a training; a fit's bars are its units.  All times are
seconds since the run's first event.  However long a run is, this stays small: neighbours of one
lane that could not be told apart become one bar with a count, and of marks the most important kinds
are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    CheckpointSaved,
    Event,
    FoldFinished,
    HangVerdict,
    RankEnded,
    RankStarted,
    RunStarted,
    RunSubmitted,
)
from jupyter_ddl.protocol.telemetry import WorkerSample
from jupyter_ddl.protocol.view_messages import RunHistory

__all__ = ["history_of"]

_N_LANES = 64
_N_BARS = 1200
_N_MARKS = 300
_N_BINS = 120
_ANY_WORKER = "other workers"
_CLOCKS_S = 0.05
"""By so much a unit may seem to begin before the one ahead of it has ended."""
_FINEST = 2000
"""Into so many parts a run's length is divided at first; what is less apart is joined."""
_RANKED = ("hang", "failed", "evicted", "restart", "pruned", "checkpoint")
"""Kinds of marks, those first that are kept longest."""

Bar: TypeAlias = tuple[int, float, float, str, int, int]
Mark: TypeAlias = tuple[float, str, int | None, str]


def history_of(
    events: Iterable[Event], samples: Iterable[WorkerSample], now_s: float | None
) -> RunHistory:
    """See :class:`~jupyter_ddl.protocol.view_messages.RunHistory`.

    Parameters
    ----------
    now_s : float or None
        Unix seconds until which what runs is drawn; None: until the last event.
    """
    fold = _Fold()
    for event in events:
        fold.add(event)
    last_s = fold.last_s if now_s is None else max(now_s, fold.last_s)
    return fold.made(last_s, list(samples))


class _Fold:
    def __init__(self) -> None:
        self.began_s = self.last_s = 0.0
        self._lanes: dict[tuple[str, int], int] = {}
        self._busy: dict[str, set[int]] = {}
        self._open: dict[tuple[int, int | None], tuple[int, float, str, int]] = {}
        self._bars: list[Bar] = []
        self._marks: list[Mark] = []
        self._drawn: set[int] = set()
        self._worker_of_log: dict[str, str] = {}
        self._free_s: dict[str, list[float]] = {}
        self._is_training = False
        self._noun = ""
        self._n_hidden = self._n_lanes = 0

    def add(self, event: Event) -> None:
        at_s = getattr(event, "at_s", self.last_s)
        if isinstance(event, RunSubmitted):
            self.began_s = at_s
            verb = event.spec.verb
            self._is_training = verb.can.has_ranks
            self._noun = "" if verb.can.has_ranks else verb.nouns.trial
        self.last_s = max(self.last_s, at_s)
        match event:
            case RunStarted(session=session) if session > 1:
                self._end_all(at_s)
                self._mark(at_s, "restart", None, f"session {session} of the controller")
            case AttemptStarted():
                self._attempt_started(event)
            case RankStarted():
                self._rank_started(event)
            case RankEnded():
                self._end((event.trial, event.rank), at_s, event.outcome)
                if event.others_go_on and event.outcome != "cancelled":
                    text = f"rank {event.rank} was lost; the round goes on"
                    self._mark(at_s, event.outcome, event.trial, text)
            case AttemptFinished():
                self._attempt_finished(event)
            case FoldFinished():
                self._unit_finished(event)
            case CheckpointSaved():
                self._mark(at_s, "checkpoint", event.trial, f"checkpoint at step {event.step}")
            case HangVerdict():
                self._mark(at_s, "hang", event.trial, event.text[:200])

    def _attempt_started(self, event: AttemptStarted) -> None:
        key = (event.trial, None)
        self._end(key, event.at_s, "evicted")
        self._worker_of_log[event.log] = event.worker
        if event.attempt > 1:
            self._mark(event.at_s, "restart", event.trial, f"attempt {event.attempt}")
        if not self._is_training:
            self._begin(key, event.worker, self._slot(event.worker), event.at_s)

    def _rank_started(self, event: RankStarted) -> None:
        # Its ranks tell more than the group's own bar.
        self._drop((event.trial, None))
        key = (event.trial, event.rank)
        self._end(key, event.at_s, "evicted")
        if event.life > 1:
            self._mark(event.at_s, "restart", event.trial, f"rank {event.rank} joins")
        if self._is_training:
            self._begin(key, "", event.rank, event.at_s)
        else:
            self._begin(key, event.worker, self._slot(event.worker), event.at_s)

    def _unit_finished(self, event: FoldFinished) -> None:
        # The units of a candidate tell more than its own bar: they run on several workers.
        self._drop((event.trial, None))
        worker = self._worker_of_log.get(event.log) or _ANY_WORKER
        began_s = min(event.at_s, max(self.began_s, event.at_s - event.duration_s))
        # In which of its worker's slots it ran is on no record: one that was free.
        free_s = self._free_s.setdefault(worker, [])
        slot = next((n for n, at_s in enumerate(free_s) if at_s <= began_s + _CLOCKS_S), None)
        if slot is None:
            slot = len(free_s)
            free_s.append(0.0)
        began_s = min(event.at_s, max(began_s, free_s[slot]))
        free_s[slot] = event.at_s
        lane = self._lane((worker, slot))
        if lane is not None:
            self._drawn.add(lane)
            outcome = "evicted" if event.is_lost else "failed" if event.has_raised else "complete"
            self._bars.append((lane, began_s, event.at_s, outcome, event.trial, 1))

    def _lane(self, name: tuple[str, int]) -> int | None:
        """Its number; None where there is no room for another one."""
        if name not in self._lanes and len(self._lanes) == _N_LANES:
            self._n_hidden += 1
            return None
        lane = self._lanes.setdefault(name, self._n_lanes)
        self._n_lanes = max(self._n_lanes, lane + 1)
        return lane

    def _slot(self, worker: str) -> int:
        busy = self._busy.setdefault(worker, set())
        slot = next(n for n in range(len(busy) + 1) if n not in busy)
        busy.add(slot)
        return slot

    def _begin(self, key: tuple[int, int | None], worker: str, slot: int, at_s: float) -> None:
        lane = self._lane((worker, slot))
        if lane is None:
            if worker:
                self._busy[worker].discard(slot)
            return
        self._open[key] = (lane, at_s, worker, slot)

    def _drop(self, key: tuple[int, int | None]) -> None:
        begun = self._open.pop(key, None)
        if begun is not None and begun[2]:
            self._busy[begun[2]].discard(begun[3])
            if begun[0] not in self._drawn:
                del self._lanes[begun[2], begun[3]]

    def _end(self, key: tuple[int, int | None], at_s: float, state: str) -> None:
        begun = self._open.pop(key, None)
        if begun is None:
            return
        lane, began_s, worker, slot = begun
        if worker:
            self._busy[worker].discard(slot)
        self._drawn.add(lane)
        self._bars.append((lane, began_s, max(began_s, at_s), state, key[0], 1))

    def _end_all(self, at_s: float) -> None:
        for key in list(self._open):
            self._end(key, at_s, "evicted")

    def _attempt_finished(self, event: AttemptFinished) -> None:
        for key in [key for key in self._open if key[0] == event.trial]:
            self._end(key, event.at_s, event.outcome)
        if event.outcome in ("failed", "evicted", "pruned"):
            why = "" if event.failure is None else f": {event.failure.type_name}"
            text = f"attempt {event.attempt} {event.outcome}{why}"
            self._mark(event.at_s, event.outcome, event.trial, text)

    def _mark(self, at_s: float, kind: str, trial: int | None, text: str) -> None:
        who = f"{self._noun} {trial}: " if self._noun and trial is not None else ""
        self._marks.append((at_s, kind, trial, who + text))

    def made(self, last_s: float, samples: Sequence[WorkerSample]) -> RunHistory:
        bars = list(self._bars)
        for (trial, _), (lane, began_s, _, _) in self._open.items():
            bars.append((lane, began_s, max(began_s, last_s), "running", trial, 1))
        order = sorted(self._lanes, key=lambda name: (len(name[0]), name))
        place = {self._lanes[name]: n for n, name in enumerate(order)}
        length_s = max(1e-3, last_s - self.began_s)
        moved = [
            (place[lane], round(a - self.began_s, 3), round(b - self.began_s, 3), state, trial, n)
            for lane, a, b, state, trial, n in bars
        ]
        at_s, cpu, gpu, memory = _usage(samples, self.began_s, length_s)
        kept = _kept(self._marks)
        return RunHistory(
            began_s=self.began_s,
            length_s=round(length_s, 3),
            noun=self._noun,
            lanes=tuple(_label(*name) for name in order),
            bars=tuple(_joined(moved, length_s)),
            marks=tuple(
                (round(at - self.began_s, 3), kind, trial, text) for at, kind, trial, text in kept
            ),
            n_bars=len(bars),
            n_hidden=self._n_hidden,
            n_marks=len(self._marks),
            usage_at_s=at_s,
            cpu=cpu,
            gpu=gpu,
            memory=memory,
        )


def _label(worker: str, slot: int) -> str:
    if not worker:
        return f"rank {slot}"
    name = f"worker {worker}" if worker.isdecimal() else worker
    return name if slot == 0 else f"{name} · {slot + 1}"


def _joined(bars: list[Bar], length_s: float) -> list[Bar]:
    """Bars by lane and time: no more than can be told apart, and than there is room for."""
    bars = sorted(bars)
    apart_s = length_s / _FINEST
    while len(bars) > _N_BARS:
        found: list[Bar] = []
        for bar in bars:
            last = found[-1] if found else None
            is_near = last is not None and last[0] == bar[0] and bar[1] - last[2] < apart_s
            if last is not None and is_near and bar[2] - last[1] < 4 * apart_s:
                state = last[3] if last[3] == bar[3] else "mixed"
                end_s = max(last[2], bar[2])
                found[-1] = (bar[0], last[1], end_s, state, last[4], last[5] + bar[5])
            else:
                found.append(bar)
        bars, apart_s = found, 2 * apart_s
    return bars


def _kept(marks: list[Mark]) -> list[Mark]:
    """At most so many: of the more important kinds all, of the last one every so manyth."""
    kept: list[Mark] = []
    for kind in _RANKED:
        of_kind = [mark for mark in marks if mark[1] == kind]
        room = _N_MARKS - len(kept)
        if len(of_kind) > room:
            stride = -(-len(of_kind) // room) if room else len(of_kind) + 1
            of_kind = of_kind[::stride] if room else []
        kept += of_kind
    return sorted(kept, key=lambda mark: mark[0])


_Means: TypeAlias = tuple[float | None, ...]


def _usage(
    samples: Sequence[WorkerSample], began_s: float, length_s: float
) -> tuple[tuple[float, ...], _Means, _Means, _Means]:
    """Shares of CPUs, GPUs and memory in use, on the average of the workers at work."""
    width_s = length_s / _N_BINS
    bins: dict[int, list[WorkerSample]] = {}
    for sample in samples:
        number = int((sample.at_s - began_s) / width_s)
        if 0 <= number < _N_BINS:
            bins.setdefault(number, []).append(sample)
    order = sorted(bins)
    return (
        tuple(round((number + 0.5) * width_s, 3) for number in order),
        tuple(_mean(_ratio(s.cpu, s.n_cpus) for s in bins[number]) for number in order),
        tuple(_mean(gpu.utilization for s in bins[number] for gpu in s.gpus) for number in order),
        tuple(
            _mean(_ratio(s.memory_bytes, s.memory_limit_bytes) for s in bins[number])
            for number in order
        ),
    )


def _ratio(used: float | None, limit: float | None) -> float | None:
    return None if used is None or not limit else used / limit


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 3) if known else None
