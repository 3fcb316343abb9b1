"""What a run remembers of its rank groups: small however long they train."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import msgspec

from jupyter_ddl.events.messages import HangVerdict, RankEnded, RankStarted, Reported
from jupyter_ddl.events.snapshot import RestartRow

__all__ = ["N_POINTS", "FailedRound", "GroupHistory", "LastReport", "RankGroupState", "Series"]

N_POINTS = 300
"""Most points of a metric's series."""
_N_SERIES = 6
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
    _series: dict[str, Series] = field(default_factory=dict)

    def add_report(self, event: Reported) -> None:
        """A point per metric of rank 0's report."""
        for name, value in event.metrics.items():
            if not math.isfinite(value):
                continue
            series = self._series.get(name)
            if series is None:
                if len(self._series) == _N_SERIES:
                    continue
                series = self._series[name] = Series(N_POINTS)
            series.add(event.step, value)

    def add_restart(self, row: RestartRow) -> None:
        self.restarts.append(row)

    def forget_failures(self) -> None:
        """A new session: who resumes a failed run may have mended the cause."""
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
    def series(self) -> dict[str, tuple[tuple[int, float], ...]]:
        """Metric → (step, value), as rank 0 reported them."""
        return {name: series.drawn() for name, series in self._series.items()}
