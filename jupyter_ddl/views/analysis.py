"""What a view asks for to see why a search went as it did: importance, curves, one trial as a cell.

Each answer is prepared from the run's state, and worked out without it: reading a long record or
learning from a thousand trials keeps nobody else waiting.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from jupyter_ddl.controller.telemetry_store import read_samples
from jupyter_ddl.errors import SpecError, TrialError
from jupyter_ddl.ledger.history import history_of
from jupyter_ddl.ledger.reader import LedgerReader
from jupyter_ddl.ledger.run_state import RunState, Series, by_importance
from jupyter_ddl.ledger.snapshots import trial_rows
from jupyter_ddl.ledger.step_parts import trial_steps_text
from jupyter_ddl.ledger.tables import (
    best_trial,
    complete_trials,
    curve_trials,
    metric_curves,
    points_of,
)
from jupyter_ddl.plotting.importance import Importance, importance_of
from jupyter_ddl.protocol.events import Event, StepsTimed
from jupyter_ddl.protocol.sampling import StudySpec
from jupyter_ddl.protocol.snapshot import TrialStateName
from jupyter_ddl.protocol.space import ParamValue
from jupyter_ddl.protocol.view_messages import (
    CurveAxis,
    CurvesPart,
    GetCurves,
    GetHistory,
    GetImportance,
    GetTrial,
    HistoryPart,
    ImportancePart,
    MetricCurve,
    TrialPart,
)
from jupyter_ddl.store.paths import ledger_path
from jupyter_ddl.verbs.base import Verb

__all__ = ["Analysis", "analysis_of", "cell_of"]

Analysis: TypeAlias = GetImportance | GetCurves | GetTrial | GetHistory
Analysed: TypeAlias = ImportancePart | CurvesPart | TrialPart | HistoryPart

_N_CURVES = 40
_N_POINTS = 40
_N_ALL_POINTS = 1600
"""Of all curves of an answer together: few of them are told finely."""
_N_FINE_POINTS = 400
_N_OWN_POINTS = 80
_N_METRICS = 24
"""Of one trial; the others are told by number."""
_N_NAMES = 300
_N_EVENTS = 500_000
"""Records of a run that one answer reads, from its beginning."""
_EVERY_S = 10.0
_N_KEPT = 16


def analysis_of(state: RunState, ask: Analysis) -> Callable[[], Analysed]:
    """What works the answer out; it may take a second, and does not look at ``state`` any more.

    Parameters
    ----------
    state : RunState
        Not changed.

    Raises
    ------
    TrialError
        There is no such trial.
    """
    match ask:
        case GetImportance():
            return _importance(state, ask)
        case GetCurves():
            return _curves(state, ask)
        case GetTrial():
            return _trial(state, ask)
        case GetHistory():
            return _history(state, ask)


# Importance: one calculation at a time in a process, and seldom again while a run goes on.


class _Importances:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._known: OrderedDict[str, tuple[float, int, Importance]] = OrderedDict()

    def of(
        self, run_id: str, study: StudySpec, trials: Sequence[tuple[dict[str, ParamValue], float]]
    ) -> Importance:
        with self._guard:
            at_s, n_trials, found = self._known.get(run_id, (-_EVERY_S, -1, Importance({}, 0)))
            if n_trials != len(trials) and self._clock() - at_s >= _EVERY_S:
                found = importance_of(study, trials)
                self._known[run_id] = self._clock(), len(trials), found
                self._known.move_to_end(run_id)
                while len(self._known) > _N_KEPT:
                    self._known.popitem(last=False)
            return found


_importances = _Importances()


def _importance(state: RunState, ask: GetImportance) -> Callable[[], ImportancePart]:
    study = None if state.spec is None else state.spec.verb.study
    if study is None:
        note = "importance needs a search space, and this run has none"
        return lambda: ImportancePart(ask.id, ask.run_id, (), 0, note)
    trials = complete_trials(state)

    def answer() -> ImportancePart:
        found = _importances.of(ask.run_id, study, trials)
        shares = tuple(found.shares.items())
        return ImportancePart(ask.id, ask.run_id, shares, found.n_trials, found.note)

    return answer


# Curves: whatever was reported, read from the record.


class _Record:
    """The events of a run, up to a number that can be read while somebody waits."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self.note = ""

    def __iter__(self) -> Iterator[Event]:
        with LedgerReader(ledger_path(self._run_id), stops_at_damage=True) as reader:
            for n_read, event in enumerate(reader.poll()):
                if n_read == _N_EVENTS:
                    self.note = f"of the first {_N_EVENTS:,} records of the run"
                    return
                yield event


def _drawn(
    series: dict[tuple[int, str], Series], trials: dict[int, TrialStateName], axis: CurveAxis
) -> tuple[MetricCurve, ...]:
    return tuple(
        MetricCurve(trial, trials[trial], metric, points_of(each, axis))
        for (trial, metric), each in series.items()
    )


def _curves(state: RunState, ask: GetCurves) -> Callable[[], CurvesPart]:
    trials = best_trial(state) if ask.is_best else curve_trials(state, _N_CURVES)
    is_training = state.spec is not None and state.spec.verb.objective is None
    restarts = tuple(state.group.restarts) if is_training else ()
    n_points = max(_N_POINTS, min(_N_FINE_POINTS, _N_ALL_POINTS // max(1, len(trials))))

    def answer() -> CurvesPart:
        record = _Record(ask.run_id)
        series = metric_curves(record, trials, n_points, ask.axis) if trials else {}
        names = by_importance(dict.fromkeys(metric for _, metric in series))
        metric = ask.metric or (names[0] if names else "")
        wanted = {key: each for key, each in series.items() if key[1] == metric}
        note = record.note
        if not wanted:
            beside = " with an epoch" if ask.axis == "epoch" else ""
            note = f"no trial has reported {metric or 'anything'}{beside}"
        shown = tuple(names[:_N_NAMES])
        drawn = _drawn(wanted, trials, ask.axis)
        return CurvesPart(ask.id, ask.run_id, metric, drawn, shown, note, restarts)

    return answer


# The run over time: its record, and what its machines did beside it.


def _history(state: RunState, ask: GetHistory) -> Callable[[], HistoryPart]:
    is_over = state.end is not None

    def answer() -> HistoryPart:
        record = _Record(ask.run_id)
        samples = read_samples(ask.run_id)
        history = history_of(record, samples, None if is_over else time.time())
        return HistoryPart(ask.id, ask.run_id, history, record.note)

    return answer


# One trial: its row, what it reported, and the cell that it was.


def _trial(state: RunState, ask: GetTrial) -> Callable[[], TrialPart]:
    if ask.trial not in state.trials:
        raise TrialError(f"run {ask.run_id} has no trial {ask.trial}", trial=ask.trial)
    (row,) = trial_rows(state, [ask.trial])
    cell, reason = cell_of(state, ask.trial)
    n_params = len(state.trials[ask.trial].params)
    trials = {ask.trial: row.state}
    strategy = "ddp" if state.spec is None else state.spec.verb.ranks.strategy

    def answer() -> TrialPart:
        record = _Record(ask.run_id)
        timed: dict[int, StepsTimed] = {}
        series = metric_curves(_noting(record, ask.trial, timed), trials, _N_OWN_POINTS)
        names = by_importance(dict.fromkeys(metric for _, metric in series))
        shown = {(ask.trial, name): series[ask.trial, name] for name in names[:_N_METRICS]}
        missing = {"parameters": n_params - len(row.params), "metrics": len(names) - len(shown)}
        cut = (f"{n} more {what} are not shown" for what, n in missing.items() if n)
        notes = [reason, record.note, *cut]
        note = "; ".join(filter(None, notes))
        curves = _drawn(shown, trials, "step")
        steps = trial_steps_text(timed, strategy)
        return TrialPart(ask.id, ask.run_id, row, curves, cell, note, steps)

    return answer


def _noting(record: Iterable[Event], trial: int, timed: dict[int, StepsTimed]) -> Iterator[Event]:
    """The record, of which is noted what the steps of a trial's latest attempt were, by rank."""
    for event in record:
        if isinstance(event, StepsTimed) and event.trial == trial:
            if any(before.attempt < event.attempt for before in timed.values()):
                timed.clear()
            timed[event.rank] = event
        yield event


def cell_of(state: RunState, number: int) -> tuple[str, str]:
    """A trial as a plain cell, and why there is none: one of them is empty."""
    spec = state.spec
    if spec is None or not isinstance(spec.verb, Verb):
        return "", "there is no cell in the record"
    title = f"{spec.verb.nouns.trial} {number} of run {spec.name or spec.run_id}"
    trial = state.trials[number]
    if trial.value is not None and spec.verb.objective is not None:
        title += f": {spec.verb.objective.metric} {trial.value!r}"
    try:
        return spec.verb.trial_cell(spec.program, trial.params, title), ""
    except SpecError as error:
        return "", error.message
