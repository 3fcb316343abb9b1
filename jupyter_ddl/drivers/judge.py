"""Decides on running trials: which are pruned, and whether the whole run is hopeless."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted, Event, Failure, Reported
from jupyter_ddl.search.pruners import Pruner, hopeless

__all__ = ["Judge", "PlainJudge", "PruningJudge"]


class Judge(Protocol):
    """Looks at what was committed; never at anything that is not in the ledger."""

    def begin(self, past: Iterable[Event], state: RunState) -> None:
        """Learn from the sessions before; ``past`` is read only if it matters.  May take long."""
        ...

    def poll(self, events: Iterable[Event], state: RunState) -> list[int]:
        """Trials to prune, after ``events`` were folded into ``state``."""
        ...

    def hopeless(self, state: RunState) -> Failure | None:
        """The common cause, when every first trial of this session failed the same way."""
        ...


class PlainJudge:
    """Prunes nothing."""

    def __init__(self, max_parallel: int) -> None:
        self._max_parallel = max_parallel
        self._n_failed_before = 0

    def begin(self, past: Iterable[Event], state: RunState) -> None:
        # Who resumes a hopeless run has mended the cause: the old failures prove nothing.
        self._n_failed_before = len(state.first_failures)

    def poll(self, events: Iterable[Event], state: RunState) -> list[int]:
        return []

    def hopeless(self, state: RunState) -> Failure | None:
        failures: Sequence[Failure] = state.first_failures[self._n_failed_before :]
        n_good = state.counts.complete + state.counts.pruned
        return hopeless(n_good, failures, self._max_parallel)


class PruningJudge(PlainJudge):
    """Prunes by the reports of the objective."""

    def __init__(self, max_parallel: int, pruner: Pruner, metric: str) -> None:
        super().__init__(max_parallel)
        self._pruner = pruner
        self._metric = metric

    def begin(self, past: Iterable[Event], state: RunState) -> None:
        super().begin(past, state)
        self.poll(past, state)

    def poll(self, events: Iterable[Event], state: RunState) -> list[int]:
        pruned: list[int] = []
        for event in events:
            if isinstance(event, Reported) and self._metric in event.metrics:
                self._pruner.report(event.trial, event.step, event.metrics[self._metric])
                if self._pruner.should_prune(event.trial):
                    pruned.append(event.trial)
            elif isinstance(event, AttemptStarted) and event.attempt > 1:
                self._pruner.restarted(event.trial)
            elif isinstance(event, AttemptFinished):
                self._attempt_finished(event, state)
        return pruned

    def _attempt_finished(self, event: AttemptFinished, state: RunState) -> None:
        trial = state.trial(event.trial)
        # A failed or evicted attempt ends its trial only when no other attempt follows.
        if event.attempt != trial.attempt or trial.number in state.ended_with_run:
            return
        if trial.state != "waiting" and trial.state != "running":
            self._pruner.finished(trial.number, trial.state)
