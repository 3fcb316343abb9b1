"""The events of one run as event files: one for the run, one for each trial.

``<directory>/`` has what belongs to the whole run: the searched space and the best value so far, or
the metrics of a ddp run's rank 0.  ``trial-0007/`` has the metrics of a trial, ``rank-1/`` those of
another rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_ddl.events.messages import (
    AttemptFinished,
    Event,
    Reported,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.events.reducer import fold
from jupyter_ddl.events.run_state import RunState
from jupyter_ddl.spec.run import DdpSpec, RunSpec, SearchSpec
from jupyter_ddl.spec.space import Space
from jupyter_ddl.tensorboard import hparams
from jupyter_ddl.tensorboard.event_file import EventFile

__all__ = ["RunFiles"]

_ENDED = ("complete", "pruned", "failed", "cancelled")


@dataclass(slots=True)
class _Rank:
    """What one rank of one trial writes."""

    file: EventFile
    attempt: int = 0
    """Of the last report."""
    has_metric: bool = False
    last_step: int = -1


class RunFiles:
    """Fed with a ledger's events from the first one on; :meth:`flush` writes.

    Parameters
    ----------
    directory : Path
        Where the event files go.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._state = RunState()
        self._own: EventFile | None = None
        self._ranks: dict[tuple[int, int], _Rank] = {}
        self._written: set[EventFile] = set()
        self._best: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, as far as it was fed."""
        return self._state.end is not None

    def add(self, event: Event) -> None:
        """Take the next event of the ledger."""
        n_late = self._state.n_late
        fold(self._state, event)
        if self._state.n_late > n_late:
            return  # of an attempt that was over
        match event:
            case RunSubmitted():
                self._begin(event)
            case TrialCreated(trial=trial):
                self._open_trial(trial, event)
            case Reported():
                self._report(event)
            case AttemptFinished():
                self._finish(event)

    def flush(self) -> None:
        """Bring the files up to date.  Raises OSError."""
        for file in self._written:
            file.flush()
        self._written.clear()

    # -- inside --------------------------------------------------------------------------------

    @property
    def _spec(self) -> RunSpec:
        if self._state.spec is None:
            raise ValueError("a ledger begins with RunSubmitted")
        return self._state.spec

    def _begin(self, event: RunSubmitted) -> None:
        verb = event.spec.verb
        self._own = self._file(".", event.at_s)
        if isinstance(verb, SearchSpec):
            self._write(self._own, event.at_s, hparams.experiment(verb, event.at_s))

    def _open_trial(self, trial: int, event: TrialCreated) -> None:
        if isinstance(self._spec.verb, DdpSpec):
            return
        rank = self._rank(trial, 0, event.at_s)
        if event.params:
            space = _space_of(self._spec)
            group = f"{self._spec.run_id} trial {trial}"
            start = hparams.session_start(event.params, space, group, event.at_s)
            self._write(rank.file, event.at_s, start)

    def _report(self, event: Reported) -> None:
        if event.rank and not isinstance(self._spec.verb, DdpSpec):
            return  # rank 0 speaks for a trial
        rank = self._rank(event.trial, event.rank, event.at_s)
        if event.attempt != rank.attempt:
            if rank.attempt:
                self._restart(rank.file, event)
            rank.attempt, rank.has_metric = event.attempt, False
        self._scalars(rank.file, event.metrics, event.step, event.at_s)
        metric = getattr(self._spec.verb, "metric", None)
        rank.has_metric |= metric in event.metrics
        rank.last_step = event.step

    def _finish(self, event: AttemptFinished) -> None:
        if isinstance(self._spec.verb, DdpSpec):
            return
        trial = self._state.trials.get(event.trial)
        if trial is None or trial.state not in _ENDED:
            return  # another attempt follows
        rank = self._rank(event.trial, 0, event.at_s)
        metric = getattr(self._spec.verb, "metric", None)
        if metric is not None and event.value is not None and not rank.has_metric:
            self._scalars(rank.file, {metric: event.value}, rank.last_step + 1, event.at_s)
        if trial.param_names:
            self._write(rank.file, event.at_s, hparams.session_end(event.outcome, event.at_s))
        best = self._state.best_value
        if best is not None and best != self._best and self._own is not None:
            self._best = best
            self._scalars(self._own, {f"best/{metric}": best}, self._state.n_finished, event.at_s)

    def _rank(self, trial: int, rank: int, at_s: float) -> _Rank:
        found = self._ranks.get((trial, rank))
        if found is None:
            found = _Rank(self._file_of(trial, rank, at_s))
            self._ranks[trial, rank] = found
        return found

    def _file_of(self, trial: int, rank: int, at_s: float) -> EventFile:
        if not isinstance(self._spec.verb, DdpSpec):
            return self._file(f"trial-{trial:04d}", at_s)
        if rank or self._own is None:
            return self._file(f"rank-{rank}", at_s)
        return self._own

    def _file(self, folder: str, at_s: float) -> EventFile:
        # TensorBoard takes files with this word in their names, and reads them in their order.
        name = f"events.out.tfevents.{int(self._spec.created_at_s):010d}.{self._spec.run_id}"
        file = EventFile(self._directory / folder / name, at_s)
        self._written.add(file)
        return file

    def _restart(self, file: EventFile, event: Reported) -> None:
        """The attempt before has reported steps that this one repeats: they are void."""
        from tensorboard.compat.proto import event_pb2

        log = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._add(file, event_pb2.Event(wall_time=event.at_s, step=event.step, session_log=log))

    def _scalars(self, file: EventFile, metrics: dict[str, float], step: int, at_s: float) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in metrics.items()]
        self._write(file, at_s, Summary(value=values), step)

    def _write(self, file: EventFile, at_s: float, summary: Any, step: int = 0) -> None:
        from tensorboard.compat.proto.event_pb2 import Event as Written

        self._add(file, Written(wall_time=at_s, step=step, summary=summary))

    def _add(self, file: EventFile, event: Any) -> None:
        file.add(event)
        self._written.add(file)


def _space_of(spec: RunSpec) -> Space:
    return spec.verb.space if isinstance(spec.verb, SearchSpec) else {}
