"""A run as far as its ledger tells: what the reducer folds into.

Owned by whoever folds; everybody else reads, or takes a snapshot.  Small by design: about half
a kilobyte per finished trial, because a search may have ten thousand of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from jupyter_ddl.events.fold_logs import LogSpan
from jupyter_ddl.events.fold_snapshot import snapshot
from jupyter_ddl.events.group_state import GroupHistory, RankGroupState, Series
from jupyter_ddl.events.messages import (
    CheckpointSaved,
    Failure,
    RunFinished,
    StopRequested,
)
from jupyter_ddl.events.snapshot import (
    BestTrial,
    CellRow,
    Counts,
    RunSnapshot,
    RunStateName,
    TrialStateName,
)
from jupyter_ddl.spec.assignment import StopWhen
from jupyter_ddl.spec.run import FitSpec, RunSpec
from jupyter_ddl.spec.space import ParamValue

__all__ = ["N_RECENT", "N_TOP", "RunState", "TrialState"]

N_TOP = 10
"""Best trials that are kept in order."""
N_RECENT = 10
"""Last finished trials that are kept in order."""
_N_MARKS = 512
_N_CELLS = 20
_N_NOTICES = 5


class TrialState(msgspec.Struct, gc=False):
    """One trial.  Names of parameters and metrics are shared between trials."""

    number: int
    param_names: tuple[str, ...]
    param_values: tuple[ParamValue, ...]
    state: TrialStateName = "waiting"
    attempt: int = 0
    """Number of the latest attempt that began or ended, from 1; 0 before the first."""
    n_attempts: int = 0
    own_failures: int = 0
    evictions: int = 0
    step: int | None = None
    value: float | None = None
    """The final objective; None until an attempt that counts has ended."""
    objective: float | None = None
    """The last reported objective of the current attempt."""
    metric_names: tuple[str, ...] = ()
    metric_values: tuple[float, ...] = ()
    worker: str = ""
    log: str = ""
    log_start: int | None = None
    log_end: int | None = None
    values_file: str | None = None
    started_at_s: float | None = None
    duration_s: float | None = None
    failure: Failure | None = None
    """The last attempt's, also while the trial waits for its next attempt."""
    checkpoint: CheckpointSaved | None = None
    """The last one of any attempt; forgotten when the trial ends, unless it was stopped."""

    @property
    def params(self) -> dict[str, ParamValue]:
        return dict(zip(self.param_names, self.param_values, strict=True))

    @property
    def metrics(self) -> dict[str, float]:
        """Last reported metrics; kept for running, best and last finished trials only."""
        return dict(zip(self.metric_names, self.metric_values, strict=True))


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
    trials: dict[int, TrialState] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    ended_with_run: set[int] = field(default_factory=set)
    """Cancelled only because the run ended: another session takes them up again."""
    numbers: dict[TrialStateName, int] = field(default_factory=dict)
    """Trials per state."""
    refits: list[int] = field(default_factory=list)
    """Trials that are no candidates: they are shown, and not counted."""
    n_finished_before: int = 0
    """Trials finished before this session."""
    n_attempts: int = 0
    n_evictions: int = 0
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
    """Start of the session, then the times at which trials finished."""
    notices: deque[str] = field(default_factory=lambda: deque(maxlen=_N_NOTICES))
    stop: StopRequested | None = None
    """The strongest request to stop the whole run."""
    trial_stops: dict[int, StopWhen] = field(default_factory=dict)
    ranks: dict[int, RankGroupState] = field(default_factory=dict)
    """Rank groups by trial; of a search, only those of running trials and the best one."""
    learning: dict[int, Series] = field(default_factory=dict)
    """Of a search: objective over steps of trials that run, are among the best or ended last."""
    fold_logs: dict[int, dict[int, LogSpan]] = field(default_factory=dict)
    """Of a fit: what the folds of a candidate have printed, by trial and fold."""
    cells: deque[CellRow] = field(default_factory=lambda: deque(maxlen=_N_CELLS))
    """The last cells of a persistent group."""
    group: GroupHistory = field(default_factory=GroupHistory)
    """Of a ddp run: why rounds ended, and the series of its metrics."""
    shared_names: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)

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
        if self.spec is None or isinstance(self.spec.verb, FitSpec):
            return self.n_created - len(self.refits)
        return self.spec.n_trials

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

    def snapshot(self, now_s: float, paused: str = "", max_rows: int = 64) -> RunSnapshot:
        """See :func:`jupyter_ddl.events.fold_snapshot.snapshot`."""
        return snapshot(self, now_s, paused, max_rows)
