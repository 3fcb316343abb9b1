"""Decides on running trials: which are pruned, and whether the whole run is hopeless."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from jupyter_ddl.events.messages import AttemptFinished, Event, Failure, Reported
from jupyter_ddl.events.reducer import RunState
from jupyter_ddl.search.pruners import Pruner
from jupyter_ddl.search.verdict import hopeless

__all__ = ["Judge", "PlainJudge", "PruningJudge"]


class Judge(Protocol):
    """Looks at what was committed; never at anything that is not in the ledger."""

    def look(self, events: Sequence[Event], state: RunState) -> list[int]:
        """Trials to prune."""
        ...

    def restarted(self, trial: int) -> None:
        """A trial begins again: its earlier reports no longer count."""
        ...

    def hopeless(self, state: RunState) -> Failure | None:
        """The common cause, when every first trial failed the same way."""
        ...


class PlainJudge:
    """Prunes nothing."""

    def __init__(self, max_parallel: int) -> None:
        self._max_parallel = max_parallel

    def look(self, events: Sequence[Event], state: RunState) -> list[int]:
        return []

    def restarted(self, trial: int) -> None:
        """Nothing is remembered."""

    def hopeless(self, state: RunState) -> Failure | None:
        n_good = state.counts.complete + state.counts.pruned
        return hopeless(n_good, state.first_failures, self._max_parallel)


class PruningJudge(PlainJudge):
    """Prunes by the reports of the objective."""

    def __init__(self, max_parallel: int, pruner: Pruner, metric: str) -> None:
        super().__init__(max_parallel)
        self._pruner = pruner
        self._metric = metric

    def look(self, events: Sequence[Event], state: RunState) -> list[int]:
        pruned: list[int] = []
        for event in events:
            if isinstance(event, Reported) and self._metric in event.metrics:
                self._pruner.report(event.trial, event.step, event.metrics[self._metric])
                if self._pruner.should_prune(event.trial):
                    pruned.append(event.trial)
            elif isinstance(event, AttemptFinished) and event.outcome != "evicted":
                self._pruner.finished(event.trial, event.outcome)
        return pruned

    def restarted(self, trial: int) -> None:
        self._pruner.restarted(trial)
