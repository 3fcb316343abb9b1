"""The attempt in progress: what ``report``, ``checkpoint`` and ``resume`` do inside a run."""

from __future__ import annotations

import math
import operator
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jupyter_ddl.events.messages import CheckpointSaved, Notice, RankEvent, Reported
from jupyter_ddl.spec.assignment import Assignment, TrialAssignment
from jupyter_ddl.worker.checkpoints import newest_checkpoint, save_checkpoint
from jupyter_ddl.worker.metrics import MetricError, ReportError, as_number, shown
from jupyter_ddl.worker.stopping import StopFlag, TrialStopped

__all__ = ["Attempt"]


class Attempt:
    """One attempt at one trial, used from the rank's main thread."""

    def __init__(
        self,
        trial: TrialAssignment,
        assignment: Assignment,
        emit: Callable[[RankEvent], None],
        stop: StopFlag,
    ) -> None:
        self.reported: dict[str, float] = {}
        """The last value of each metric."""
        place = assignment.place
        self.rank = place.rank if place else 0
        self.world_size = place.world_size if place else 1
        self.local_rank = place.local_rank if place else 0
        self._trial = trial
        self._assignment = assignment
        self._emit = emit
        self._stop = stop
        self._last_step: int | None = None
        self._pid = os.getpid()

    def objective_so_far(self) -> float | None:
        """The last reported objective if it is finite."""
        value = self.reported.get(self._assignment.metric or "")
        return value if value is not None and math.isfinite(value) else None

    def report(self, step: int | None, metrics: Mapping[str, Any]) -> None:
        """See :func:`jupyter_ddl.worker.incell.report`."""
        self._refuse_children("report")
        at = self._next_step(step)
        values: dict[str, float] = {}
        for name, value in metrics.items():
            number = as_number(value)
            if number is None:
                raise ReportError(
                    f"metric {name!r} is {shown(value)} ({type(value).__name__}); "
                    f"a number was expected",
                    metric=name,
                )
            values[name] = number
        self._last_step = at
        self.reported.update(values)
        trial = self._trial
        self._emit(Reported(trial.trial, trial.attempt, at, values, time.time(), self.rank))
        objective = values.get(self._assignment.metric or "")
        if objective is not None and not math.isfinite(objective):
            raise MetricError(
                f"metric {self._assignment.metric!r} is {objective} at step {at}; "
                f"a finite number was expected",
                metric=self._assignment.metric,
                step=at,
            )
        reason = self._stop.pending(trial.trial, trial.attempt)
        if reason is not None:
            raise TrialStopped(reason)

    def checkpoint(self, step: int | None, state: Mapping[str, Any]) -> None:
        """See :func:`jupyter_ddl.worker.incell.checkpoint`."""
        self._refuse_children("checkpoint")
        at = (self._last_step or 0) if step is None else _whole("checkpoint", step)
        if self.rank != 0:
            return
        trial = self._trial
        saved = save_checkpoint(self._directory(), trial.trial, trial.attempt, at, state)
        self._emit(CheckpointSaved(trial.trial, trial.attempt, at, *saved, time.time()))

    def resume(self) -> dict[str, Any] | None:
        """See :func:`jupyter_ddl.worker.incell.resume`."""
        return newest_checkpoint(
            self._directory(),
            self._trial.trial,
            lambda text: self._emit(Notice(time.time(), text, "warning")),
        )

    def _directory(self) -> Path:
        return Path(self._assignment.run_dir) / "checkpoints"

    def _next_step(self, step: int | None) -> int:
        last = self._last_step
        if step is None:
            return 0 if last is None else last + 1
        at = _whole("report", step)
        if last is not None and at <= last:
            raise ReportError(
                f"report(step={at}) came after report(step={last}); steps must grow within a "
                f"trial; report all metrics of a step in one call",
                step=at,
                last_step=last,
            )
        return at

    def _refuse_children(self, function: str) -> None:
        # A forked child shares the pipe to the worker, and its bytes would mix with ours.
        if os.getpid() != self._pid:
            raise ReportError(
                f"{function}() was called in process {os.getpid()}, a child of the trial's process "
                f"{self._pid}; return the values to the cell and call it there"
            )


def _whole(function: str, step: Any) -> int:
    if type(step) is int:
        return step
    try:
        return operator.index(step)
    except TypeError:
        raise ReportError(
            f"{function}(step=…) is {shown(step)} ({type(step).__name__}); "
            f"a whole number was expected"
        ) from None
