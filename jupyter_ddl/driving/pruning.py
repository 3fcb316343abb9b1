"""What reports and results decide: which trials stop, whose values are kept, whether the whole run
is hopeless.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from jupyter_ddl.driving.sources import to_record
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted, Event, Failure, Reported
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.sampling import TrialRecord
from jupyter_ddl.studies.pruners import Pruner, hopeless, make_pruner

__all__ = [
    "BestValues",
    "NoPruning",
    "PruningByReports",
    "PruningPolicy",
    "SamplerStop",
    "make_policy",
]


class PruningPolicy(Protocol):
    """Looks at what was committed; never at anything that is not in the ledger."""

    def begin(self, past: Iterable[Event], state: RunState) -> None:
        """Learn from the sessions before; ``past`` is read only if it matters.  May take long."""
        ...

    def to_prune(self, events: Iterable[Event], state: RunState) -> list[int]:
        """Trials to prune, after ``events`` were folded into ``state``."""
        ...

    def hopeless(self, state: RunState) -> Failure | None:
        """The common cause, when every first trial of this session failed the same way."""
        ...


class NoPruning:
    """Prunes nothing."""

    def __init__(self, max_parallel: int) -> None:
        self._max_parallel = max_parallel
        self._n_failed_before = 0

    def begin(self, past: Iterable[Event], state: RunState) -> None:
        # Who resumes a hopeless run has removed the cause: the old failures prove nothing.
        self._n_failed_before = len(state.first_failures)

    def to_prune(self, events: Iterable[Event], state: RunState) -> list[int]:
        return []

    def hopeless(self, state: RunState) -> Failure | None:
        if not state.failed:
            return None
        failures: Sequence[Failure] = state.first_failures[self._n_failed_before :]
        n_good = state.counts.complete + state.counts.pruned
        return hopeless(n_good, failures, self._max_parallel)


class PruningByReports(NoPruning):
    """Prunes by the reports of the objective."""

    def __init__(self, max_parallel: int, pruner: Pruner, metric: str) -> None:
        super().__init__(max_parallel)
        self._pruner = pruner
        self._metric = metric

    def begin(self, past: Iterable[Event], state: RunState) -> None:
        super().begin(past, state)
        self.to_prune(past, state)

    def to_prune(self, events: Iterable[Event], state: RunState) -> list[int]:
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


def make_policy(spec: RunSpec, max_parallel: int) -> PruningPolicy:
    """The policy that a run was asked for."""
    asked = spec.verb.study
    if asked is None or asked.pruner.name == "none":
        return NoPruning(max_parallel)
    pruner = make_pruner(asked.pruner, asked.mode)
    return PruningByReports(max_parallel, pruner, asked.metric)


class SamplerStop:
    """When to ask a user's sampler whether a running trial is to stop (its ``should_stop`` hook).

    One question at a time per trial, always with its newest reports.
    """

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._reports: dict[int, list[tuple[int, float]]] = {}
        self._shown: dict[int, int] = {}  # reports in the question that is under way, by trial

    def questions(self, events: Iterable[Event], state: RunState) -> list[TrialRecord]:
        """Follow committed events: what to ask where the objective was reported."""
        asked: list[TrialRecord] = []
        for event in events:
            if isinstance(event, AttemptStarted):
                self._reports[event.trial] = []
            elif isinstance(event, AttemptFinished):
                self._reports.pop(event.trial, None)
            elif isinstance(event, Reported) and self._metric in event.metrics:
                reports = self._reports.setdefault(event.trial, [])
                reports.append((event.step, event.metrics[self._metric]))
                if event.trial not in self._shown:
                    asked.append(self._question(event.trial, state))
        return asked

    def answered(self, trial: int, state: RunState, *, is_over: bool) -> TrialRecord | None:
        """The next question about a trial, if reports have come while the last one was asked."""
        n_shown = self._shown.pop(trial)
        reports = self._reports.get(trial)
        if is_over or reports is None or len(reports) == n_shown:
            return None
        return self._question(trial, state)

    def _question(self, trial: int, state: RunState) -> TrialRecord:
        reports = tuple(self._reports[trial])
        self._shown[trial] = len(reports)
        return msgspec.structs.replace(to_record(state.trial(trial)), reports=reports)


class BestValues:
    """Which files of brought values nobody wants: a search keeps the best trial's only."""

    def __init__(self, spec: RunSpec) -> None:
        self._keeps_best = spec.verb.can.brings == "best"
        self._best: tuple[int, str] | None = None

    def adopt(self, state: RunState) -> None:
        """Learn the best trial's file from a resumed run."""
        if state.best_number is not None:
            name = state.values_file(state.best_number)
            if name is not None:
                self._best = (state.best_number, name)

    def to_remove(self, event: AttemptFinished, state: RunState) -> list[str]:
        """After a committed attempt: its file unless it is the best, and the one before if so."""
        name = event.values_file
        if name is None or not self._keeps_best:
            return []
        if state.best_number != event.trial:
            return [name]
        before, self._best = self._best, (event.trial, name)
        return [before[1]] if before is not None and before[1] != name else []
