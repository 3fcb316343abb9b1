"""Events folded: what every face (cell, panel, terminal) draws."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from jupyter_ddl.events.messages import Failure
from jupyter_ddl.spec.space import ParamValue

__all__ = ["BestTrial", "Counts", "RunSnapshot", "RunStateName", "TrialRow", "TrialStateName"]

RunStateName: TypeAlias = Literal[
    "submitted", "starting", "running", "complete", "failed", "cancelled"
]
TrialStateName: TypeAlias = Literal[
    "waiting", "running", "complete", "pruned", "failed", "cancelled"
]


class Counts(msgspec.Struct, frozen=True):
    waiting: int = 0
    running: int = 0
    complete: int = 0
    pruned: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def finished(self) -> int:
        return self.complete + self.pruned + self.failed + self.cancelled


class TrialRow(msgspec.Struct, frozen=True):
    """One trial as a view shows it."""

    number: int
    state: TrialStateName
    params: dict[str, ParamValue]
    value: float | None = None
    step: int | None = None
    """Last reported step."""
    metrics: dict[str, float] = {}
    """Last reported metrics."""
    attempts: int = 0
    own_failures: int = 0
    evictions: int = 0
    worker: str = ""
    started_at_s: float | None = None
    duration_s: float | None = None
    failure: Failure | None = None


class BestTrial(msgspec.Struct, frozen=True):
    number: int
    params: dict[str, ParamValue]
    value: float


class RunSnapshot(msgspec.Struct, frozen=True):
    """A run at one moment, bounded in size whatever the run does (≤ 64 kB as JSON).

    ``seq`` grows with every committed event: a view that has seen ``seq`` n ignores older ones.
    """

    seq: int
    run_id: str
    name: str
    verb: Literal["search", "map", "ddp"]
    state: RunStateName
    cluster: str
    created_at_s: float
    n_trials: int
    counts: Counts
    started_at_s: float | None = None
    finished_at_s: float | None = None
    metric: str | None = None
    mode: Literal["max", "min"] = "max"
    sampler: str = ""
    pruner: str = ""
    best: BestTrial | None = None
    rows: tuple[TrialRow, ...] = ()
    """The trials worth showing: best ones, running ones, last finished ones; by number."""
    curve: tuple[tuple[int, float], ...] = ()
    """(trial number, objective) of finished trials, thinned to at most 300 points."""
    best_curve: tuple[tuple[int, float], ...] = ()
    """(trials finished, best so far), one point per improvement, at most 100."""
    trials_per_s: float | None = None
    eta_s: float | None = None
    n_evictions: int = 0
    n_attempts: int = 0
    notices: tuple[str, ...] = ()
    """The last 5."""
    paused: str = ""
    """Why the run is waiting (disk full, no worker), empty when it is not."""
    stopping: bool = False
    reason: str = ""
    failure: Failure | None = None
    failed_trial: int | None = None
