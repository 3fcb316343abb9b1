"""Outcomes of a fit on their way to the kernel: computed, then on record, then delivered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from jupyter_ddl.drivers.fit_batch import FitBatch
from jupyter_ddl.drivers.fit_candidates import Candidates
from jupyter_ddl.drivers.fit_sending import PieceDone
from jupyter_ddl.ledger.file import LedgerWriter
from jupyter_ddl.ledger.reader import read_ledger
from jupyter_ddl.protocol.events import Event, FoldFinished, StopRequested
from jupyter_ddl.protocol.fit_results import TakenUnit

__all__ = ["FitRecords"]


class FitRecords:
    """Used on the controller's loop only.

    Parameters
    ----------
    put : callable
        Takes events that are to be committed.
    """

    def __init__(self, candidates: Candidates, put: Callable[..., None]) -> None:
        self._candidates = candidates
        self._put = put
        self._waiting: dict[tuple[int, int], tuple[FitBatch, TakenUnit]] = {}
        self._stopped: dict[int, tuple[FitBatch, list[TakenUnit]]] = {}
        """Units of candidates that were stopped, until that is on record."""
        self._before: dict[bytes, FoldFinished] = {}

    @property
    def is_idle(self) -> bool:
        """Whether no outcome waits for its record."""
        return not self._waiting

    def read(self, ledger: LedgerWriter) -> None:
        """Take up the outcomes of the sessions before, but those that may turn out better now."""
        for event in read_ledger(ledger.path):
            if not isinstance(event, FoldFinished):
                self._candidates.remember(event)
            elif not event.is_lost and not event.has_raised:
                self._before[event.key] = event

    def of_before(self, key: bytes) -> FoldFinished | None:
        """The outcome that a session before has recorded for a unit."""
        return self._before.get(key)

    def take_from_before(self, batch: FitBatch, index: int, fold: FoldFinished, trial: int) -> None:
        """Deliver such an outcome, to the trial that asks for it now."""
        self._put(*self._candidates.finished(msgspec.structs.replace(fold, trial=trial)))
        batch.deliver(_taken(index, fold))

    def done(self, done: PieceDone) -> None:
        """Record a unit's outcome; it is delivered once that is committed."""
        batch, index = done.batch, done.piece.index
        unit = batch.graph.settle_unit(index)
        if unit is None or batch.is_given_up:
            return
        result = done.unit
        fold = FoldFinished(
            trial=batch.trials[unit.candidate],
            fold=unit.fold,
            key=unit.key,
            at_s=done.at_s,
            duration_s=done.duration_s,
            outcome=b"" if result is None else result.outcome,
            file="" if result is None else result.file,
            score=None if result is None else result.score,
            has_raised=result is not None and result.has_raised,
            failure=done.failure if result is None else result.failure,
            is_lost=result is None,
            log=done.log,
            log_start=done.log_start,
            log_end=done.log_end,
        )
        self._waiting[fold.trial, fold.fold] = batch, _taken(index, fold)
        self._put(fold, *self._candidates.finished(fold))

    def stop(self, trial: int, batch: FitBatch, units: Sequence[int]) -> None:
        """Units of a candidate that is being stopped: delivered as such with the record of it."""
        self._stopped[trial] = batch, [TakenUnit(index, is_stopped=True) for index in units]

    def committed(self, events: Sequence[Event]) -> None:
        """Deliver what is on record now."""
        for event in events:
            if type(event) is FoldFinished:
                waiting = self._waiting.pop((event.trial, event.fold), None)
                if waiting is not None:
                    waiting[0].deliver(waiting[1])
            elif type(event) is StopRequested and event.trial in self._stopped:
                batch, units = self._stopped.pop(event.trial)
                for unit in units:
                    batch.deliver(unit)


def _taken(index: int, fold: FoldFinished) -> TakenUnit:
    lost = fold.failure if fold.is_lost else None
    return TakenUnit(index, fold.outcome, fold.file, fold.has_raised, lost)
