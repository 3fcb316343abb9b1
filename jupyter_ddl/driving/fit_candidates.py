"""Candidates of a fit as trials: begun with their first unit, over with their last.  Pure."""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass

import msgspec

from jupyter_ddl.driving.fit_graph import FitGraph
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Failure,
    FoldFinished,
    Reported,
    StopRequested,
    TrialCreated,
)
from jupyter_ddl.protocol.fit import FitCandidate, TellFit, node_file
from jupyter_ddl.protocol.fit_results import TakenUnit

__all__ = ["Candidates", "FitBatch", "Outputs", "Take"]


# One parallel call of a cell of fits, what waits to be fetched, and what lies on hosts.  Pure.

_REPLY_BYTES = 2 << 20
_DROP_INTERVAL_S = 0.25


class FitBatch:
    """What it consists of, and the outcomes that wait to be fetched.

    Attributes
    ----------
    trials : list of int
        Trial numbers of its candidates.
    cell_id : str
        The execution of the cell that it is of.
    is_whole : bool
        Whether all its units are needed, so that no candidate can be stopped alone.
    import_until_s : float or None
        Until when it waits for its modules to be imported on the workers.
    """

    def __init__(self, number: int, table: str, cell_id: str) -> None:
        self.number = number
        self.table = table
        self.cell_id = cell_id
        self.graph = FitGraph()
        self.trials: list[int] = []
        self.stopped: set[int] = set()
        """Its candidates that were stopped alone."""
        self.n_parts = 0
        self.is_given_up = False
        self.is_whole = False
        self.import_until_s: float | None = None
        self._outbox: deque[TakenUnit] = deque()
        self._n_taken = 0
        self._n_delivered = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left to compute."""
        return self.is_given_up or (self.graph.is_fed and not self.graph.n_units_left)

    @property
    def is_delivered(self) -> bool:
        """Whether nothing more will come to be fetched."""
        is_all = self.graph.is_fed and self._n_delivered == self.graph.n_units
        return self.is_given_up or is_all

    def deliver(self, unit: TakenUnit) -> None:
        """An outcome that is on record."""
        self._outbox.append(unit)
        self._n_delivered += 1

    def take(self, n_taken: int) -> tuple[TakenUnit, ...]:
        """Outcomes from number ``n_taken`` on, as many as fit into a reply."""
        while self._n_taken < n_taken and self._outbox:
            self._outbox.popleft()
            self._n_taken += 1
        taken: list[TakenUnit] = []
        size = 0
        for unit in self._outbox:
            if size > _REPLY_BYTES:
                break
            taken.append(unit)
            size += len(unit.outcome) + 300
        return tuple(taken)


class Outputs:
    """Account of the outputs of prefixes on hosts.

    Parameters
    ----------
    bound_bytes : int
        How much of them may lie in memory.
    """

    def __init__(self, run_id: str, bound_bytes: int) -> None:
        self._run_id = run_id
        self._unwanted: list[str] = []
        self._dropped_s: float | None = None
        self._bytes: dict[int, int] = {}
        self.bound_bytes = bound_bytes
        self.may_have_any = False
        """Whether anything may lie on a host: outputs may be there whose outcome was lost."""

    @property
    def left_bytes(self) -> int:
        """How much more may be kept in memory."""
        return max(0, self.bound_bytes - sum(self._bytes.values()))

    def release(self, batch: FitBatch) -> None:
        """Note what nobody needs any more."""
        for node in batch.graph.take_released():
            self._unwanted.append(node_file(self._run_id, batch.number, node.prefix, node.fold))
        self._bytes[batch.number] = batch.graph.memory_bytes

    @property
    def drop_at_s(self) -> float | None:
        """When the next files are to be removed: a few times a second."""
        if not self._unwanted:
            return None
        return 0.0 if self._dropped_s is None else self._dropped_s + _DROP_INTERVAL_S

    def take_unwanted(self, now_s: float) -> tuple[str, ...]:
        """Files that are to be removed now."""
        at_s = self.drop_at_s
        if at_s is None or now_s < at_s:
            return ()
        self._dropped_s = now_s
        names, self._unwanted = self._unwanted, []
        return tuple(names)


FOLD_METRIC = "fold_score"


@dataclass(slots=True)
class _Open:
    """A candidate whose units are not all done."""

    attempt: int
    n_units: int
    started_at_s: float | None = None
    log: str = ""
    log_end: int | None = None
    n_done: int = 0
    n_scored: int = 0
    total: float = 0.0
    n_failed: int = 0
    failure: Failure | None = None


class Candidates:
    """The trials of one run.

    Parameters
    ----------
    metric : str
        Name under which the mean score so far is reported.
    """

    def __init__(self, state: RunState, metric: str) -> None:
        self._state = state
        self._metric = metric
        self._open: dict[int, _Open] = {}
        self._n_units = array("l")
        """Units of each trial; 0: it is over, or of a session before."""
        self._n_before = self._n_created = state.n_created
        self._told: int | None = None
        self._moved: dict[int, int] = {}
        """Place among the cell's candidates → trial, where that is not its number."""
        self._elsewhere: set[int] = set()
        """Trials of such places: another place may have their number, and is not theirs."""
        self._stopped_in: dict[int, str] = {}
        """Of sessions before: trials that a person stopped, and in which execution of the cell."""
        self._left_out: set[int] = set()

    def remember(self, event: Event) -> None:
        """Take up what a session before has recorded."""
        if isinstance(event, TrialCreated) and event.place is not None:
            self._moved[event.place] = event.trial
            self._elsewhere.add(event.trial)
        elif isinstance(event, StopRequested) and event.trial is not None and event.cell_id:
            self._stopped_in[event.trial] = event.cell_id

    def is_left_out(self, number: int) -> bool:
        """Whether the cell goes on without this trial, as a session before was told."""
        return number in self._left_out

    def add(
        self,
        candidates: tuple[FitCandidate, ...],
        n_before: int,
        cell_id: str = "",
        *,
        at_s: float,
    ) -> tuple[list[int], list[Event]]:
        """Trial numbers of candidates, and the events that create those which are new.

        A resumed run has most of them: the cell asks for the same ones in the same order,
        ``n_before`` of them before these.
        """
        numbers: list[int] = []
        events: list[Event] = []
        for place, candidate in enumerate(candidates, n_before):
            number = self._moved.get(place, place)
            trial = self._state.trials.get(number) if number < self._n_before else None
            is_others = place not in self._moved and number in self._elsewhere
            if trial is not None and (is_others or trial.params != candidate.params):
                trial = None
            is_left_out = trial is not None and self._stopped_in.get(number) == cell_id
            # What was stopped alone is over; another execution that asks for it gets a new one.
            if trial is None or (trial.state == "cancelled" and not is_left_out):
                number, is_left_out = self._n_created, False
                self._n_created += 1
                events.append(_created(number, candidate, place, at_s))
            self._n_units.extend([0] * (number + 1 - len(self._n_units)))
            is_over = is_left_out or (trial is not None and trial.state in ("complete", "failed"))
            self._n_units[number] = 0 if is_over else candidate.n_units
            if is_left_out and trial is not None:
                self._left_out.add(number)
                if trial.state in ("waiting", "running"):  # its end was not recorded any more
                    attempt = self._state.next_attempt(number)
                    events.append(AttemptFinished(number, attempt, "cancelled", at_s, 0.0))
            numbers.append(number)
        return numbers, events

    def _known(self, number: int) -> _Open | None:
        """A candidate that is not over, from its first unit on."""
        known = self._open.get(number)
        if known is None and number < len(self._n_units) and self._n_units[number]:
            is_known = number in self._state.trials
            attempt = self._state.next_attempt(number) if is_known else 1
            known = self._open[number] = _Open(attempt, self._n_units[number])
        return known

    def started(self, number: int, unit: AttemptStarted) -> list[Event]:
        """A unit has begun: so has its candidate, if this is the first one."""
        known = self._known(number)
        if known is None or known.started_at_s is not None:
            return []
        known.started_at_s, known.log = unit.at_s, unit.log
        return [
            AttemptStarted(
                trial=number,
                attempt=known.attempt,
                at_s=unit.at_s,
                worker=unit.worker,
                pid=unit.pid,
                log=unit.log,
                log_start=unit.log_start,
            )
        ]

    def finished(self, fold: FoldFinished, at_s: float) -> list[Event]:
        """A unit has its outcome: what that says of its candidate."""
        known = self._known(fold.trial)
        if known is None:
            return []
        events: list[Event] = []
        if known.started_at_s is None:  # a resumed run had it
            begin = AttemptStarted(fold.trial, known.attempt, at_s, "", 0, "", 0)
            events += self.started(fold.trial, begin)
        known.n_done += 1
        if fold.log and fold.log == known.log:
            known.log_end = fold.log_end
        if fold.failure is not None:
            known.n_failed += 1
            known.failure = known.failure or fold.failure
        if fold.score is not None:
            known.n_scored += 1
            known.total += fold.score
        if known.n_scored and fold.score is not None:
            metrics = {self._metric: known.total / known.n_scored, FOLD_METRIC: fold.score}
            at = (fold.trial, known.attempt, known.n_done)
            events.append(Reported(*at, metrics, fold.at_s))
        if known.n_done == known.n_units:
            events.append(self._end(fold.trial, known, fold.at_s))
        return events

    def _end(self, number: int, known: _Open, at_s: float) -> AttemptFinished:
        del self._open[number]
        self._n_units[number] = 0
        failure = known.failure
        if failure is not None and known.n_units > 1:
            text = f"{known.n_failed} of {known.n_units} folds failed, the first one: "
            failure = Failure(
                failure.kind, failure.type_name, text + failure.message, failure.traceback
            )
        is_scored = known.n_scored == known.n_units
        return AttemptFinished(
            trial=number,
            attempt=known.attempt,
            outcome="complete" if failure is None else "failed",
            at_s=at_s,
            duration_s=max(0.0, at_s - (known.started_at_s or at_s)),
            value=known.total / known.n_scored if is_scored and known.n_scored else None,
            log_end=known.log_end,
            failure=failure,
        )

    def told(self, request: TellFit, at_s: float) -> list[Event]:
        """What the kernel says of its plain Dask work, which is one trial of the run."""
        events: list[Event] = []
        if self._told is None:
            one = (FitCandidate(request.params, 1),)
            (self._told,), events = self.add(one, request.first_candidate, at_s=at_s)
            events += self.started(self._told, AttemptStarted(0, 1, at_s, "", 0, "", 0))
        known = self._known(self._told)
        if known is None:
            return events
        at = (self._told, known.attempt, request.step)
        events.append(Reported(*at, request.metrics, at_s))
        if request.is_over:
            events.append(self._end(self._told, known, at_s))
        return events

    def is_told(self, number: int) -> bool:
        """Whether this is the plain Dask work of the cell, which the kernel tells of."""
        return number == self._told

    def given_up(self, numbers: list[int], at_s: float) -> list[Event]:
        """Candidates that nobody waits for any more."""
        events: list[Event] = []
        for number in numbers:
            known = self._known(number)
            if known is not None:
                del self._open[number]
                self._n_units[number] = 0
                seconds = max(0.0, at_s - (known.started_at_s or at_s))
                outcome = AttemptFinished(number, known.attempt, "cancelled", at_s, seconds)
                events.append(outcome)
        return events


def _created(number: int, candidate: FitCandidate, place: int, at_s: float) -> TrialCreated:
    moved = None if number == place else place
    return TrialCreated(number, candidate.params, at_s, candidate.is_refit, moved)


class Take(msgspec.Struct):
    """A request for outcomes that has not been answered yet."""

    request: int
    batch: FitBatch
    n_taken: int
    until_s: float
    gathered_s: float | None = None
    """Until when it waits for those that come close behind the first one."""
