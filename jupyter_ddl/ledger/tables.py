"""A run as rows: trials and metrics, ready for a DataFrame.  Plain Python, no pandas."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any, Literal, TypeAlias

from jupyter_ddl.ledger.reducer import RunState, fold_all
from jupyter_ddl.ledger.run_state import Series
from jupyter_ddl.ledger.step_parts import bytes_per_step, step_parts
from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted, Event, Reported
from jupyter_ddl.protocol.group import n_servers
from jupyter_ddl.protocol.snapshot import StepParts, TrialStateName
from jupyter_ddl.protocol.space import ParamValue

__all__ = [
    "METRIC_COLUMNS",
    "PROFILE_COLUMNS",
    "RANK_COLUMNS",
    "TRIAL_COLUMNS",
    "best_trial",
    "complete_trials",
    "curve_trials",
    "metric_curves",
    "metrics_table",
    "points_of",
    "profile_table",
    "ranks_table",
    "trials_table",
]

TRIAL_COLUMNS = (
    "number",
    "state",
    "value",
    "attempts",
    "own_failures",
    "evictions",
    "worker",
    "started_at_s",
    "duration_s",
)
Axis: TypeAlias = Literal["step", "time", "epoch"]
_MOST_PLACE = 1e12
METRIC_COLUMNS = ("trial", "attempt", "rank", "step")
"""What every row has, or may have; a table without rows has these columns."""


PROFILE_COLUMNS = (
    "trial",
    "rank",
    "operation",
    "calls",
    "cpu_ms",
    "device_ms",
    "share",
    "trace",
)


RANK_COLUMNS = (
    "rank",
    "host",
    "device",
    "state",
    "steps",
    "step_ms",
    "data_ms",
    "compute_ms",
    "waiting_ms",
    "exchange_ms",
    "bytes_per_step",
    "peak_memory_bytes",
)


def ranks_table(state: RunState) -> list[dict[str, Any]]:
    """One row per rank of a training's latest round; None: not measured."""
    ranks = state.ranks.get(0)
    if ranks is None or state.spec is None or not state.spec.verb.can.has_ranks:
        return []
    needs = state.spec.verb.ranks
    n_training = len(ranks.started) - n_servers(needs.strategy, needs.strategy_options)
    parts = step_parts({n: timed for n, timed in ranks.steps.items() if n < n_training})
    rows = []
    for rank, started in sorted(ranks.started.items()):
        ended, timed = ranks.ended.get(rank), ranks.steps.get(rank)
        row = (
            rank,
            started.host,
            started.device,
            "running" if ended is None else ended.outcome,
            None if timed is None else timed.n_updates,
            *_milliseconds(parts.get(rank)),
            bytes_per_step(timed),
            None if timed is None else timed.peak_memory_bytes,
        )
        rows.append(dict(zip(RANK_COLUMNS, row, strict=True)))
    return rows


def _milliseconds(parts: StepParts | None) -> list[float | None]:
    """Of a step, and of what it is made of."""
    if parts is None:
        return [None] * 5
    own_s = (parts.step_s, parts.data_s, parts.compute_s)
    shared_s = (parts.waiting_s, parts.exchange_s)
    return [None if s is None else 1e3 * s for s in (*own_s, *shared_s)]


def profile_table(state: RunState, folder: Path) -> list[dict[str, Any]]:
    """One row per trial, rank and operation, the costliest first; calls and times are a step's.

    Parameters
    ----------
    folder
        Where the traces lie.
    """
    rows = []
    for (trial, rank), taken in sorted(state.profiles.items()):
        whole_s = taken.device_s or taken.cpu_s
        for each in taken.operations:
            own_s = each.device_s if taken.device_s else each.cpu_s
            row = (
                trial,
                rank,
                each.name,
                each.n_calls / taken.n_steps,
                1e3 * each.cpu_s / taken.n_steps,
                1e3 * each.device_s / taken.n_steps,
                own_s / whole_s if whole_s else 0.0,
                str(folder / taken.file),
            )
            rows.append(dict(zip(PROFILE_COLUMNS, row, strict=True)))
    return rows


def trials_table(run: RunState | Iterable[Event]) -> list[dict[str, Any]]:
    """One row per trial, by number.

    Columns: ``number``, ``state``, one per parameter (``param_`` before its name only where it
    would hide one of the others; None for a trial of another branch), ``value``, ``attempts``,
    ``own_failures``, ``evictions``, ``worker``, ``started_at_s`` (Unix seconds, of the
    last attempt), ``duration_s``.
    """
    state = run if isinstance(run, RunState) else fold_all(run)
    study = state.spec.verb.study if state.spec is not None else None
    seen = dict.fromkeys(name for trial in state.trials.values() for name in trial.param_names)
    names = [name for name in (study.space if study is not None else ()) if name in seen]
    names += [name for name in seen if name not in names]
    columns = {name: _column(name, "param_", TRIAL_COLUMNS) for name in names}
    rows = []
    for number in sorted(state.trials):
        trial = state.trials[number]
        row: dict[str, Any] = {"number": number, "state": trial.state}
        params = trial.params
        row |= {column: params.get(name) for name, column in columns.items()}
        row |= {
            "value": trial.value,
            "attempts": trial.n_attempts,
            "own_failures": trial.own_failures,
            "evictions": trial.evictions,
            "worker": trial.worker,
            "started_at_s": trial.started_at_s,
            "duration_s": trial.duration_s,
        }
        rows.append(row)
    return rows


def metrics_table(events: Iterable[Event]) -> list[dict[str, Any]]:
    """One row per report that counts, by trial, rank and step of time.

    Columns: ``trial``, ``attempt``, ``rank`` (of rank groups only), ``step``, one per metric
    (``metric_`` before its name where it would hide one of these).  Of an attempt that was followed
    by another, only what lies before the next one's first step counts: an attempt that resumed from
    a checkpoint goes on where the checkpoint was, one that started over replaces everything.
    """
    reports: dict[tuple[int, int], dict[int, list[Reported]]] = {}
    current: dict[int, int] = {}
    ended: set[tuple[int, int]] = set()
    for event in events:
        if isinstance(event, AttemptStarted):
            current[event.trial] = max(event.attempt, current.get(event.trial, 0))
        elif isinstance(event, AttemptFinished):
            ended.add((event.trial, event.attempt))
        elif isinstance(event, Reported):
            is_current = current.get(event.trial) == event.attempt
            if is_current and (event.trial, event.attempt) not in ended:
                attempts = reports.setdefault((event.trial, event.rank), {})
                attempts.setdefault(event.attempt, []).append(event)
    grouped = any(rank for _, rank in reports)
    return [
        _metric_row(report, with_rank=grouped)
        for key in sorted(reports)
        for report in _counted(reports[key])
    ]


def _counted(attempts: dict[int, list[Reported]]) -> list[Reported]:
    counted: list[Reported] = []
    for attempt in sorted(attempts, reverse=True):
        reports = attempts[attempt]
        if counted:
            first = counted[0].step
            reports = [report for report in reports if report.step < first]
        counted = reports + counted
    return counted


def _metric_row(report: Reported, *, with_rank: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"trial": report.trial, "attempt": report.attempt}
    if with_rank:
        row["rank"] = report.rank
    row["step"] = report.step
    for name, value in report.metrics.items():
        row[_column(name, "metric_", METRIC_COLUMNS)] = value
    return row


def _column(name: str, prefix: str, taken: tuple[str, ...]) -> str:
    return prefix + name if name in taken else name


def complete_trials(state: RunState) -> list[tuple[dict[str, ParamValue], float]]:
    """Parameters and objective of complete trials, by number."""
    found = (state.trials[number] for number in sorted(state.trials))
    return [(t.params, t.value) for t in found if t.state == "complete" and t.value is not None]


def curve_trials(state: RunState, n_trials: int) -> dict[int, TrialStateName]:
    """The best trials and those begun last, with their states, by number."""
    best = [number for _, number in state.top[: n_trials // 2]]
    last = sorted((n for n, t in state.trials.items() if t.state != "waiting"), reverse=True)
    chosen = [*dict.fromkeys([*best, *last])][:n_trials]
    return {number: state.trials[number].state for number in sorted(chosen)}


def best_trial(state: RunState) -> dict[int, TrialStateName]:
    """The best trial with its state; before there is one, that which began last."""
    best = state.best_number
    if best is None:
        best = max((n for n, t in state.trials.items() if t.state != "waiting"), default=None)
    return {} if best is None else {best: state.trials[best].state}


def metric_curves(
    events: Iterable[Event], trials: Container[int], n_points: int, axis: Axis = "step"
) -> dict[tuple[int, str], Series]:
    """Metrics of some trials; over steps and epochs a later attempt overwrites what it repeats.

    Parameters
    ----------
    axis
        ``step``; or, in thousandths since a series counts in whole numbers, ``time`` (seconds since
        the trial began) or ``epoch`` (where it was reported as a metric).  :func:`points_of` has
        them as they are.
    """
    found: dict[tuple[int, str], Series] = {}
    current: dict[int, int] = {}
    began_s: dict[int, float] = {}
    for event in events:
        if isinstance(event, AttemptStarted):
            current[event.trial] = max(event.attempt, current.get(event.trial, 0))
            began_s.setdefault(event.trial, event.at_s)
        elif isinstance(event, Reported) and event.rank == 0 and event.trial in trials:
            if event.attempt < current.get(event.trial, 0):
                continue
            place = _place(event, axis, began_s)
            if place is None:
                continue
            for name, value in event.metrics.items():
                key = (event.trial, name)
                if key not in found:
                    found[key] = Series(n_points)
                found[key].add(place, value)
    return found


def _place(event: Reported, axis: Axis, began_s: dict[int, float]) -> int | None:
    if axis == "step":
        return event.step
    if axis == "time":
        place = event.at_s - began_s.get(event.trial, event.at_s)
    else:
        place = event.metrics.get("epoch", math.nan)
    return round(1000 * place) if abs(place) < _MOST_PLACE else None


def points_of(series: Series, axis: Axis) -> tuple[tuple[float, float], ...]:
    """What a curve draws, by steps, seconds or epochs."""
    if axis == "step":
        return series.drawn()
    return tuple((place / 1000, value) for place, value in series.drawn())
