"""A run as far as its ledger tells: what the reducer folds into.

Owned by whoever folds; everybody else reads, or takes a snapshot.  Small by design: some hundred
bytes per finished trial, because a search may have a hundred thousand of them.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from sys import intern
from typing import TypeAlias

import msgspec

from jupyter_ddl.ledger.reported import ReportedMetrics
from jupyter_ddl.ledger.trials import Trials, TrialState
from jupyter_ddl.protocol.assignment import StopWhen
from jupyter_ddl.protocol.events import (
    Failure,
    FoldFinished,
    HangVerdict,
    OutputShown,
    ProfileTaken,
    RankEnded,
    RankStarted,
    Reported,
    RunFinished,
    StepsTimed,
    StopRequested,
)
from jupyter_ddl.protocol.pipeline import PipelineTimes
from jupyter_ddl.protocol.prices import Budget, Held
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.snapshot import (
    BestTrial,
    CellRow,
    Counts,
    RestartRow,
    RunStateName,
    TrialStateName,
)
from jupyter_ddl.protocol.staleness import Staleness

__all__ = [
    "N_POINTS",
    "N_RECENT",
    "N_TOP",
    "FailedRound",
    "GroupHistory",
    "LastReport",
    "LogSpan",
    "RankGroupState",
    "RunState",
    "Series",
    "TrialState",
    "by_importance",
    "fold_finished",
]


# Where the output of a candidate's folds lies; of those that have printed something.

LogSpan: TypeAlias = tuple[str, int, int | None]
"""File, and the bytes between which it was printed; without an end, up to the file's."""


def fold_finished(state: RunState, event: FoldFinished) -> None:
    """All else about a fold, its candidate is told of by ``Reported``."""
    if event.log and event.log_end != event.log_start:
        spans = state.fold_logs.setdefault(event.trial, {})
        spans[event.fold] = intern(event.log), event.log_start, event.log_end


# What a run remembers of its rank groups: small however long they train.

N_POINTS = 300
"""Most points of a metric's series."""
_N_SERIES = 24
_N_NAMES = 1000
_VALIDATION = re.compile(r"(?:^|[^a-z])(?:val|valid|validation|dev|eval|test)(?:$|[^a-z])")
_N_RESTARTS = 8


class LastReport(msgspec.Struct, gc=False):
    """The latest report of one rank."""

    step: int
    names: tuple[str, ...]
    values: tuple[float, ...]


@dataclass(slots=True)
class RankGroupState:
    """The ranks of a trial's latest round."""

    attempt: int
    started: dict[int, RankStarted] = field(default_factory=dict)
    ended: dict[int, RankEnded] = field(default_factory=dict)
    reports: dict[int, LastReport] = field(default_factory=dict)
    steps: dict[int, StepsTimed] = field(default_factory=dict)
    """What the steps of each rank were made of, as far as it has told."""
    pipeline: PipelineTimes | None = None
    """The latest batch of a pipeline that was measured."""
    staleness: dict[tuple[int, int], Staleness] = field(default_factory=dict)
    """How old gradients were, by parameter server and the number of its process."""


class FailedRound(msgspec.Struct, frozen=True):
    """How a round failed, and how far it came."""

    cause: tuple[str, str, int | None]
    """Type, message and line of the exception."""
    step: int
    """The last one that rank 0 reported; -1: none."""
    saved_step: int
    """The newest checkpoint's; -1: none."""

    def repeats(self, earlier: FailedRound | None) -> bool:
        """Whether it failed as the round before did, without having come further."""
        return (
            earlier is not None
            and self.cause == earlier.cause
            and self.step <= earlier.step
            and self.saved_step <= earlier.saved_step
        )


class Losses(msgspec.Struct, frozen=True):
    """Evictions in a row between which a trial came no further."""

    number: int
    step: int
    """The furthest that an evicted attempt had reported; -1: none."""
    saved_step: int
    """Of the furthest checkpoint; -1: none."""


def by_importance(names: Iterable[str]) -> list[str]:
    """What a validation has found first, then losses, then the others as they were reported."""
    return sorted(names, key=_importance)


_OTHER = 2


@lru_cache(maxsize=4096)
def _importance(name: str) -> int:
    text = name.lower()
    return 0 if _VALIDATION.search(text) else 1 if "loss" in text else _OTHER


class Series:
    """A metric over the steps, thinned evenly; a round that resumes overwrites what it repeats."""

    __slots__ = ("_max_points", "last", "n_seen", "points", "stride")

    def __init__(self, max_points: int) -> None:
        self._max_points = max_points
        self.points: list[tuple[int, float]] = []
        self.last: tuple[int, float] | None = None
        self.stride = 1
        self.n_seen = 0

    def add(self, step: int, value: float) -> None:
        points = self.points
        while points and points[-1][0] >= step:
            points.pop()
        self.last = (step, value)
        if self.n_seen % self.stride == 0:
            points.append(self.last)
            if len(points) >= self._max_points:
                del points[1::2]
                self.stride *= 2
        self.n_seen += 1

    def drawn(self) -> tuple[tuple[int, float], ...]:
        """The points, the latest one included."""
        if self.last is None or (self.points and self.points[-1][0] >= self.last[0]):
            return tuple(self.points)
        return (*self.points, self.last)


@dataclass(slots=True)
class GroupHistory:
    """Of a ddp run, whose one group goes through rounds."""

    restarts: deque[RestartRow] = field(default_factory=lambda: deque(maxlen=_N_RESTARTS))
    """Why the last rounds ended, in order."""
    checkpoint_step: int | None = None
    hang: HangVerdict | None = None
    """The latest verdict on a hang."""
    failed: FailedRound | None = None
    """The round before, if the cell itself failed in it."""
    failed_again: bool = False
    """Whether two rounds failed in the same way: another one would, too."""
    n_unmet: int = 0
    """Rounds in a row that were lost before all ranks were there."""
    bytes_sent: int | None = None
    """Payload that all ranks have sent in steps, in all rounds; None: nobody counts it."""
    _series: dict[str, Series] = field(default_factory=dict)
    _names: set[str] = field(default_factory=set)

    def add_report(self, event: Reported) -> None:
        """A point per metric of rank 0's report."""
        for name, value in event.metrics.items():
            if len(self._names) < _N_NAMES:
                self._names.add(name)
            if not math.isfinite(value):
                continue
            series = self._series.get(name)
            if series is None:
                if len(self._series) == _N_SERIES and not self._made_room(name):
                    continue
                series = self._series[name] = Series(N_POINTS)
            series.add(event.step, value)

    def _made_room(self, name: str) -> bool:
        """Whether a less important series has given way: validations come late, and matter most."""
        if _importance(name) == _OTHER:
            return False
        last = by_importance(self._series)[-1]
        if _importance(name) >= _importance(last):
            return False
        del self._series[last]
        return True

    def add_restart(self, row: RestartRow) -> None:
        self.restarts.append(row)

    def forget_failures(self) -> None:
        """A new session: who resumes a failed run may have fixed the cause."""
        self.failed = None
        self.failed_again = False
        self.n_unmet = 0

    def begin_round(self) -> None:
        """Another round begins where the last checkpoint was."""
        if self.restarts and not self.restarts[-1].is_over:
            last = self.restarts.pop()
            step = self.checkpoint_step
            self.restarts.append(msgspec.structs.replace(last, step=step, is_over=True))

    @property
    def n_metrics(self) -> int:
        """Metrics that rank 0 has reported, with a series or without; counted up to 1,000."""
        return len(self._names)

    @property
    def series(self) -> dict[str, tuple[tuple[int, float], ...]]:
        """Metric → (step, value), as rank 0 reported them; the most important first."""
        return {name: self._series[name].drawn() for name in by_importance(self._series)}


N_TOP = 10
"""Best trials that are kept in order."""
N_RECENT = 10
"""Last finished trials that are kept in order."""
_N_MARKS = 512
_REST_S = 5.0
"""Between two trials there is less; in more, the run waits for a worker, a slot or a person."""
_N_CELLS = 20
_N_NOTICES = 5


@dataclass(slots=True)
class RunState:
    """Everything that follows from a run's events.  Only ``reducer.fold`` changes it."""

    spec: RunSpec | None = None
    state: RunStateName = "submitted"
    seq: int = 0
    """Events folded, those included that no longer counted."""
    session: int = 0
    n_slots: int = 0
    max_parallel: int = 0
    started_at_s: float | None = None
    """Unix seconds of the first session."""
    session_started_at_s: float | None = None
    end: RunFinished | None = None
    """The last record of a run that is over; None while it can go on."""
    trials: Trials = field(default_factory=Trials)
    waiting: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    ended_with_run: set[int] = field(default_factory=set)
    """Cancelled only because the run ended: another session takes them up again."""
    numbers: dict[TrialStateName, int] = field(default_factory=dict)
    """Trials per state."""
    refits: list[int] = field(default_factory=list)
    """Trials that are not candidates: they are shown, and not counted."""
    n_finished_before: int = 0
    """Trials finished before this session."""
    n_evictions: int = 0
    losses: dict[int, Losses] = field(default_factory=dict)
    """By trial, of those that have not ended."""
    n_late: int = 0
    """Events of attempts or trials that were over; they changed nothing."""
    top: list[tuple[float, int]] = field(default_factory=list)
    """(rank value, number) of the best trials, the best first; lower rank values are better."""
    recent: deque[int] = field(default_factory=lambda: deque(maxlen=N_RECENT))
    failed: list[int] = field(default_factory=list)
    """The first trials that failed for good, in the order in which they did."""
    n_failures_kept: int = 0
    curve: list[tuple[int, float]] = field(default_factory=list)
    curve_stride: int = 1
    n_curve: int = 0
    best_curve: list[tuple[int, float]] = field(default_factory=list)
    marks: deque[float] = field(default_factory=lambda: deque(maxlen=_N_MARKS))
    """Start of the session, then the times at which trials finished, by :meth:`busy_s`."""
    rested_s: float = 0.0
    """For how long nothing ran in this session, where that was long enough to be a wait."""
    rests_since_s: float | None = None
    notices: deque[str] = field(default_factory=lambda: deque(maxlen=_N_NOTICES))
    stop: StopRequested | None = None
    """The strongest request to stop the whole run."""
    trial_stops: dict[int, StopWhen] = field(default_factory=dict)
    ranks: dict[int, RankGroupState] = field(default_factory=dict)
    """Rank groups by trial; of a search, only those of running trials and the best one."""
    learning: dict[int, Series] = field(default_factory=dict)
    """Of a search: objective over steps of trials that run, are among the best or ended last."""
    reported: ReportedMetrics = field(default_factory=ReportedMetrics)
    """The metrics of all trials, by their rows."""
    fold_logs: dict[int, dict[int, LogSpan]] = field(default_factory=dict)
    """Of a fit: what the folds of a candidate have printed, by trial and fold."""
    outputs: dict[int, dict[str, OutputShown]] = field(default_factory=dict)
    """What trials show, by file; the trial that has shown something last stands last."""
    output_bytes: int = 0
    unkept: list[str] = field(default_factory=list)
    """Files of outputs that nobody shows any more; whoever removes them empties it."""
    has_forgotten_outputs: bool = False
    profiles: dict[tuple[int, int], ProfileTaken] = field(default_factory=dict)
    """Traces by trial and rank, of the attempt that took one last."""
    cells: deque[CellRow] = field(default_factory=lambda: deque(maxlen=_N_CELLS))
    """The last cells of a persistent group."""
    group: GroupHistory = field(default_factory=GroupHistory)
    """Of a ddp run: why rounds ended, and the series of its metrics."""
    spent: Held = field(default_factory=Held)
    """What all sessions have held and cost, as far as it is on record."""
    spent_at_s: float = 0.0
    budget: Budget | msgspec.UnsetType = msgspec.UNSET

    @property
    def counts(self) -> Counts:
        numbers = dict(self.numbers)
        for refit in self.refits:
            numbers[self.trials[refit].state] -= 1
        return Counts(**numbers)

    @property
    def n_created(self) -> int:
        return len(self.trials)

    @property
    def n_trials(self) -> int:
        """Trials of which the run consists; of a fit, the candidates that it was fed so far."""
        if self.spec is None or self.spec.verb.n_trials is None:
            return self.n_created - len(self.refits)
        return self.spec.n_trials

    def busy_s(self, at_s: float) -> float:
        """A clock that stands still while the run waits: rates and forecasts do not count that."""
        rests_s = 0.0 if self.rests_since_s is None else at_s - self.rests_since_s
        return at_s - self.rested_s - (rests_s if rests_s > _REST_S else 0.0)

    def rest(self, at_s: float) -> None:
        """Nothing runs from now on."""
        self.rests_since_s = at_s

    def rest_is_over(self, at_s: float) -> None:
        self.rested_s = at_s - self.busy_s(at_s)
        self.rests_since_s = None

    @property
    def n_finished(self) -> int:
        return len(self.trials) - len(self.waiting) - len(self.running)

    @property
    def finished_at_s(self) -> float | None:
        return None if self.end is None else self.end.at_s

    @property
    def best_number(self) -> int | None:
        """Number of the best complete trial with a finite value; the lowest one of equals."""
        return self.top[0][1] if self.top else None

    @property
    def best_value(self) -> float | None:
        return self.trials[self.top[0][1]].value if self.top else None

    @property
    def best(self) -> BestTrial | None:
        if not self.top:
            return None
        trial = self.trials[self.top[0][1]]
        return BestTrial(trial.number, trial.params, trial.value or 0.0)

    @property
    def first_failure(self) -> TrialState | None:
        """The trial that failed for good before all others: the first cause."""
        return self.trials[self.failed[0]] if self.failed else None

    @property
    def first_failures(self) -> list[Failure]:
        """Why the first trials failed for good, in order (at most 64 of them)."""
        failures = (self.trials[number].failure for number in self.failed)
        return [failure for failure in failures if failure is not None]

    def trial(self, number: int) -> TrialState:
        """One trial; KeyError when it was never created."""
        return self.trials[number]

    def next_attempt(self, number: int) -> int:
        """The lowest attempt number of a trial that the ledger has not seen; the first is 1."""
        return self.trials[number].attempt + 1

    def unfinished(self) -> list[TrialState]:
        """Trials that have no outcome of their own yet, by number."""
        numbers = self.waiting | self.running | self.ended_with_run
        return [self.trials[number] for number in sorted(numbers)]

    def values_file(self, number: int) -> str | None:
        """Where the values that a trial brought lie, relative to ``<run_dir>/values``."""
        return self.trials[number].values_file
