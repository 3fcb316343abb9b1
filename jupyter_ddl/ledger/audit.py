"""Checks a ledger against what it promises: nothing lost, nothing done twice.

Written apart from the reducer on purpose: it judges what the reducer relies on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    BudgetSet,
    CheckpointSaved,
    Event,
    Notice,
    Reported,
    RunFinished,
    RunStarted,
    RunSubmitted,
    StopRequested,
    TrialCreated,
)
from jupyter_ddl.protocol.run import Limits
from jupyter_ddl.protocol.space import ParamValue

__all__ = ["audit"]

_UNBEGUN = ("evicted", "cancelled", "moved")
"""Outcomes of attempts that a driver may write although no worker has begun them."""


@dataclass
class _Trial:
    params: dict[str, ParamValue]
    last_attempt: int = 0
    open_attempt: int | None = None
    ended_attempts: set[int] = field(default_factory=set)
    own_failures: int = 0
    losses: int = 0
    """Evictions in a row without a further step or checkpoint."""
    step: int = -1
    saved_step: int = -1
    furthest: tuple[int, int] = (-1, -1)
    """Steps that evicted attempts had reported, and saved."""
    n_completed: int = 0
    outcome: str | None = None
    has_failed: bool = False
    """So has its last attempt.  Others may be left that are not made (the same failure twice, one
    that is meant), and what is resumed has all of them."""
    ended_with_run: bool = False
    """Cancelled by the stop of the whole run: another session may take it up again."""


class _Audit:
    def __init__(self) -> None:
        self.violations: list[str] = []
        self._limits = Limits()
        self._is_fed = False
        self._submitted = False
        self._session = 0
        self._over: RunFinished | None = None
        self._trials: dict[int, _Trial] = {}
        self._stopping = False
        self._stopped_trials: set[int] = set()

    def observe(self, number: int, event: Event) -> None:
        """Judge record ``number`` (from 1)."""
        where = f"record {number}"
        if not self._submitted and not isinstance(event, RunSubmitted):
            self._blame(where, f"{type(event).__name__} comes before RunSubmitted")
            self._submitted = True  # said once
        if self._over is not None and not isinstance(event, (RunStarted, Notice, BudgetSet)):
            self._blame(where, f"{type(event).__name__} comes after RunFinished")
        if isinstance(event, RunSubmitted):
            self._on_submitted(where, event)
        elif isinstance(event, RunStarted):
            self._on_started(where, event)
        elif isinstance(event, TrialCreated):
            self._on_created(where, event)
        elif isinstance(event, AttemptStarted):
            self._on_attempt_started(where, event)
        elif isinstance(event, AttemptFinished):
            self._on_attempt_finished(where, event)
        elif isinstance(event, Reported | CheckpointSaved):
            self._on_progress(event)
        elif isinstance(event, StopRequested):
            self._on_stop(event)
        elif isinstance(event, RunFinished):
            self._over = event

    def finish(self) -> list[str]:
        """All violations, once the last record was seen."""
        if not self._submitted:
            self._blame("end", "there is no RunSubmitted")
        # One that has a reason was told to finish early.
        if self._over is not None and self._over.state == "complete" and not self._over.reason:
            for number, trial in self._trials.items():
                if trial.outcome is None:
                    self._blame("end", f"the run is complete, but trial {number} has no outcome")
        return self.violations

    def _blame(self, where: str, what: str) -> None:
        self.violations.append(f"{where}: {what}")

    def _on_submitted(self, where: str, event: RunSubmitted) -> None:
        if self._submitted:
            self._blame(where, "RunSubmitted comes again")
        self._submitted = True
        self._limits = event.spec.limits
        self._is_fed = event.spec.verb.is_fed

    def _on_started(self, where: str, event: RunStarted) -> None:
        if event.session != self._session + 1:
            self._blame(where, f"session {event.session} follows session {self._session}")
        self._session = event.session
        resumed, self._over = self._over is not None, None
        for trial in self._trials.values():
            trial.open_attempt = None  # its controller is gone, and the attempt with it
            if trial.ended_with_run and resumed:
                trial.outcome, trial.ended_with_run = None, False
            is_over = trial.outcome == "failed" or (trial.outcome is None and trial.has_failed)
            if is_over and resumed and not self._is_fed:
                trial.outcome, trial.own_failures, trial.losses = None, 0, 0
        if resumed:
            self._stopping = False
        self._stopped_trials.clear()

    def _on_stop(self, event: StopRequested) -> None:
        if event.trial is None:
            self._stopping = True
        else:
            self._stopped_trials.add(event.trial)

    def _on_created(self, where: str, event: TrialCreated) -> None:
        known = self._trials.get(event.trial)
        if known is not None:
            change = "with other params" if known.params != event.params else "with the same params"
            self._blame(where, f"trial {event.trial} is created again {change}")
            return
        if event.trial != len(self._trials):
            self._blame(
                where, f"trial {event.trial} is created, expected number {len(self._trials)}"
            )
        self._trials[event.trial] = _Trial(event.params)

    def _on_attempt_started(self, where: str, event: AttemptStarted) -> None:
        name = f"attempt {event.attempt} of trial {event.trial}"
        trial = self._trials.get(event.trial)
        if trial is None:
            self._blame(where, f"{name} starts, but the trial was never created")
            return
        if trial.outcome is not None:
            self._blame(where, f"{name} starts, but the trial is {trial.outcome}")
        if event.attempt <= trial.last_attempt:
            self._blame(where, f"{name} starts after attempt {trial.last_attempt}")
        if trial.open_attempt is not None:
            self._blame(where, f"{name} starts while attempt {trial.open_attempt} is under way")
        trial.last_attempt = max(trial.last_attempt, event.attempt)
        trial.open_attempt = event.attempt
        trial.step = -1

    def _on_attempt_finished(self, where: str, event: AttemptFinished) -> None:
        name = f"attempt {event.attempt} of trial {event.trial}"
        trial = self._trials.get(event.trial)
        if trial is None:
            self._blame(where, f"{name} ends, but the trial was never created")
            return
        if event.attempt in trial.ended_attempts:
            self._blame(where, f"{name} ends twice")
        elif event.attempt != trial.open_attempt and event.outcome not in _UNBEGUN:
            # The driver may evict or cancel what no worker has begun.
            self._blame(where, f"{name} ends as {event.outcome}, but it is not under way")
        if trial.outcome is not None:
            self._blame(where, f"{name} ends as {event.outcome}; the trial is {trial.outcome}")
        if event.outcome == "complete":
            trial.n_completed += 1
            if trial.n_completed > 1:
                self._blame(where, f"trial {event.trial} completes {trial.n_completed} times")
        trial.ended_attempts.add(event.attempt)
        trial.last_attempt = max(trial.last_attempt, event.attempt)
        if trial.open_attempt == event.attempt:
            trial.open_attempt = None
        self._charge(trial, event)

    def _on_progress(self, event: Reported | CheckpointSaved) -> None:
        trial = self._trials.get(event.trial)
        if trial is None or event.attempt != trial.open_attempt:
            return
        if isinstance(event, CheckpointSaved):
            trial.saved_step = event.step
        elif not event.rank:
            trial.step = event.step

    def _charge(self, trial: _Trial, event: AttemptFinished) -> None:
        if trial.outcome is not None:
            return
        trial.has_failed = event.outcome == "failed"
        if trial.has_failed:
            is_free = event.failure is not None and event.failure.kind == "disk"
            trial.own_failures += not is_free
            if trial.own_failures >= self._limits.max_own_failures:
                trial.outcome = "failed"
        elif event.outcome == "evicted":
            step, saved_step = trial.furthest
            is_further = trial.step > step or trial.saved_step > saved_step
            trial.losses = 1 if is_further else trial.losses + 1
            trial.furthest = max(step, trial.step), max(saved_step, trial.saved_step)
            if trial.losses > self._limits.max_evictions:
                trial.outcome = "failed"
        elif event.outcome != "moved":
            trial.outcome = event.outcome
            meant = event.trial in self._stopped_trials
            trial.ended_with_run = event.outcome == "cancelled" and self._stopping and not meant


def audit(events: Iterable[Event]) -> list[str]:
    """Everything in a ledger that breaks its promises; empty when it is clean.

    Numbers of trials are consecutive, parameters never change, attempts of a trial increase, do
    not overlap and end once, a trial has one outcome and completes once, nothing follows the
    end of the run but another session (and notices), and a complete run has lost no trial.
    """
    judge = _Audit()
    for number, event in enumerate(events, start=1):
        judge.observe(number, event)
    return judge.finish()
