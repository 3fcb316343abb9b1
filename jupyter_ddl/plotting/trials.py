"""Charts of a search's trials: history, importance, parallel coordinates, slices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from jupyter_ddl.errors import OptionError
from jupyter_ddl.formats import format_count, format_counted, format_score
from jupyter_ddl.ledger.run_state import TrialState
from jupyter_ddl.ledger.tables import complete_trials
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.plotting.chart import (
    MAX_MARKS,
    Chart,
    Layer,
    Mark,
    Panel,
    Scale,
    is_number,
    notes_of,
    panels_of,
    reason_if_empty,
    thinned,
)
from jupyter_ddl.plotting.importance import importance_of
from jupyter_ddl.plotting.record import PlottedRun, value_of
from jupyter_ddl.protocol.space import ParamValue, Uniform

__all__ = ["history_chart", "importance_chart", "parallel_chart", "slice_chart"]

_N_PANELS = 12
_N_AXES = 12


def history_chart(told: Sequence[PlottedRun]) -> Chart:
    """The objective of each trial, and the best so far; of one run or of several.

    Raises
    ------
    OptionError
        A run has no objective, or another one than the first.
    """
    metric = _shared_metric(told)
    layers: list[Layer] = []
    parts, notes = [], []
    for each in told:
        points, n_odd, n_more = _history_points(each, metric)
        best = _best_so_far(each, points)
        layers += [Layer("line", best, is_step=True), Layer("point", points)]
        parts.append(_history_text(each, metric))
        notes += notes_of(n_odd, n_more)
    return Chart(
        title=f"{metric} per trial",
        panels=panels_of(Scale("trial number", "count"), Scale(metric), layers),
        note="; ".join(notes) or reason_if_empty(layers, f"no trial has a value of {metric} yet"),
        series=tuple(each.name for each in told),
        text="; ".join(parts),
    )


def importance_chart(told: PlottedRun) -> Chart:
    """Shares of the parameters, by Optuna's PED-ANOVA.

    Raises
    ------
    OptionError
        The run has no search space.
    """
    study = told.spec.verb.study
    if study is None:
        raise OptionError(f"run {told.spec.run_id} has no search space; it is no search")
    found = importance_of(study, complete_trials(told.state))
    marks = tuple(
        Mark(share, name, label=f"{name}: {share:.1%}") for name, share in found.shares.items()
    )
    y = Scale("", "category", tuple(found.shares))
    shares = ", ".join(f"{name} {share:.0%}" for name, share in found.shares.items())
    return Chart(
        title=f"What sets the best trials apart ({study.metric})",
        panels=panels_of(Scale("share"), y, [Layer("bar", marks)]),
        note=found.note,
        text=f"{shares}, of {format_count(found.n_trials)} trials" if shares else "",
    )


def parallel_chart(told: PlottedRun, params: Sequence[str] | None) -> Chart:
    """Every trial as a line through its parameters to its objective.

    Raises
    ------
    OptionError
        There is no such parameter, or the run has no objective.
    """
    metric = told.metric
    chosen, n_more = _chosen_params(told, params, _N_AXES)
    trials = [trial for trial in told.trials() if is_number(value_of(trial))]
    axes = [*chosen, _apart(metric, chosen)]
    columns = [*([trial.params.get(name) for trial in trials] for name in chosen)]
    columns.append([value_of(trial) for trial in trials])
    places = [_shares(told, name, column) for name, column in zip(axes, columns, strict=True)]
    kept = trials if len(axes) * len(trials) <= MAX_MARKS else trials[-MAX_MARKS // len(axes) :]
    first = len(trials) - len(kept)
    lines: dict[bool, list[Mark]] = {True: [], False: []}
    for at, trial in enumerate(kept, first):
        on = [(axis, shares[at]) for axis, (shares, _) in zip(axes, places, strict=True)]
        lines[trial.number == told.state.best_number] += _strand(trial, metric, on)
    ends = tuple(
        (axis, share, text)
        for axis, (_, labels) in zip(axes, places, strict=True)
        for share, text in labels
    )
    layers = [
        Layer("line", tuple(lines[False]), is_faint=True),
        Layer("line", tuple(lines[True])),
    ]
    x, y = Scale("", "category", tuple(axes)), Scale("", hidden=True)
    panels = tuple(Panel(p.x, p.y, p.layers, end_labels=ends) for p in panels_of(x, y, layers))
    notes = (
        [f"the last {format_count(len(kept))} of {format_count(len(trials))} trials"]
        if first
        else []
    )
    notes += [f"{n_more} more parameters are not shown"] if n_more else []
    return Chart(
        title=f"Parameters and {metric}",
        panels=panels,
        note="; ".join(notes) or reason_if_empty(layers, f"no trial has a value of {metric} yet"),
        text=_history_text(told, metric),
    )


def _strand(
    trial: TrialState, metric: str, places: Sequence[tuple[str, float | None]]
) -> list[Mark]:
    """A trial's line through the axes on which it has a place."""
    label = _params_text(trial, metric)
    return [
        Mark(axis, share, state=trial.state, line=str(trial.number), label=label)
        for axis, share in places
        if share is not None
    ]


def slice_chart(told: PlottedRun, params: Sequence[str] | None) -> Chart:
    """The objective against each parameter.

    Raises
    ------
    OptionError
        There is no such parameter, or the run has no objective.
    """
    metric = told.metric
    chosen, n_more = _chosen_params(told, params, _N_PANELS)
    panels: list[Panel] = []
    for name in chosen:
        trials = [t for t in told.trials() if is_number(value_of(t)) and name in t.params]
        scale = _param_scale(told, name, [trial.params[name] for trial in trials])
        marks = (
            Mark(
                _on(scale, trial.params[name]),
                value_of(trial) or 0.0,
                state=trial.state,
                label=_params_text(trial, metric),
            )
            for trial in trials
        )
        panels += panels_of(scale, Scale(metric), [Layer("point", thinned(marks))])
    note = f"{n_more} more parameters are not shown" if n_more else ""
    layers = [layer for panel in panels for layer in panel.layers]
    return Chart(
        title=f"{metric} against each parameter",
        panels=tuple(panels),
        note=note or reason_if_empty(layers, f"no trial has a value of {metric} yet"),
        text=_history_text(told, metric),
    )


def _shared_metric(told: Sequence[PlottedRun]) -> str:
    metrics = {each.name: each.metric for each in told}
    first = told[0].metric
    for name, metric in metrics.items():
        if metric != first:
            raise OptionError(
                f"history(): run {name} is judged by {metric}, run {told[0].name} by {first}; they "
                f"share no axis, but curves({metric!r}, runs=[…]) may draw both"
            )
    return first


def _history_points(told: PlottedRun, metric: str) -> tuple[tuple[Mark, ...], int, int]:
    """Points, how many values are no finite numbers, and of how many trials these are some."""
    trials = [trial for trial in told.trials() if value_of(trial) is not None]
    known = [trial for trial in trials if is_number(value_of(trial))]
    marks = thinned(
        Mark(
            trial.number,
            value_of(trial) or 0.0,
            state=trial.state,
            series=told.name,
            label=_params_text(trial, metric),
        )
        for trial in known
    )
    return marks, len(trials) - len(known), len(known) if len(marks) < len(known) else 0


def _best_so_far(told: PlottedRun, points: Sequence[Mark]) -> tuple[Mark, ...]:
    """Where a complete trial was better than all before, up to the last trial."""
    objective = told.spec.verb.objective
    larger = objective is None or objective.mode == "max"
    steps: list[Mark] = []
    for trial in told.trials():
        value = trial.value
        if trial.state != "complete" or value is None or not is_number(value):
            continue
        best = steps[-1].y if steps else None
        if best is None or (value > float(best) if larger else value < float(best)):
            steps.append(Mark(trial.number, value, series=told.name, line="best"))
    last = points[-1].x if points else 0
    if steps and float(last) > float(steps[-1].x):
        steps.append(Mark(last, steps[-1].y, series=told.name, line="best"))
    return thinned(steps)


def _history_text(told: PlottedRun, metric: str) -> str:
    counts = told.state.counts
    parts = [f"{format_counted(counts.complete, 'complete trial')}"]
    parts += [f"{format_count(counts.pruned)} pruned"] if counts.pruned else []
    best = told.state.best
    if best is not None:
        parts.append(f"best {metric} {format_score(best.value)} at trial {best.number}")
    return f"{told.name}: {', '.join(parts)}"


def _params_text(trial: TrialState, metric: str) -> str:
    params = ", ".join(f"{name}={value}" for name, value in trial.params.items())
    state = "" if trial.state == "complete" else f" ({trial.state})"
    return f"trial {trial.number}{state}: {metric} {value_of(trial)}; {params}"


def _chosen_params(
    told: PlottedRun, params: Sequence[str] | None, limit: int
) -> tuple[list[str], int]:
    study = told.spec.verb.study
    seen = dict.fromkeys(n for trial in told.state.trials.values() for n in trial.param_names)
    names = [*(study.space if study is not None else ())]
    names += [name for name in seen if name not in names]
    if params is not None:
        chosen = [params] if isinstance(params, str) else list(params)
        for name in chosen:
            if name not in names:
                known = ", ".join(names) or "none"
                raise OptionError(
                    f"run {told.spec.run_id} has no parameter {name!r}, only {known}"
                    f"{did_you_mean(name, names)}"
                )
        return chosen, 0
    return names[:limit], max(0, len(names) - limit)


def _apart(name: str, taken: Sequence[str]) -> str:
    """A metric's name, unless a parameter has it, too."""
    return f"{name} (metric)" if name in taken else name


def _param_scale(told: PlottedRun, name: str, values: Sequence[ParamValue]) -> Scale:
    if not all(is_number(value) for value in values):
        texts = sorted({str(value) for value in values})
        return Scale(name, "category", tuple(texts))
    study = told.spec.verb.study
    dist = None if study is None else study.space.get(name)
    is_log = bool(getattr(dist, "log", False)) and all(float(value) > 0 for value in values)  # type: ignore[arg-type]
    if is_log:
        return Scale(name, "log")
    is_whole = all(isinstance(value, int) and value >= 0 for value in values)
    return Scale(name, "count" if is_whole and not isinstance(dist, Uniform) else "value")


def _on(scale: Scale, value: ParamValue) -> float | str:
    if scale.kind == "category" or not isinstance(value, int | float):
        return str(value)
    return value


def _shares(
    told: PlottedRun, name: str, values: Sequence[Any]
) -> tuple[list[float | None], list[tuple[float, str]]]:
    """Places of an axis' values from 0 to 1, and what is written beside it."""
    known = [value for value in values if value is not None]
    scale = _param_scale(told, name, known)
    if scale.kind == "category":
        last = max(1, len(scale.categories) - 1)
        at = {text: n / last for n, text in enumerate(scale.categories)}
        marks = list(at.items())
        shown = [
            (share, text) for text, share in (marks if len(marks) <= 8 else [marks[0], marks[-1]])
        ]
        return [None if value is None else at[str(value)] for value in values], shown
    of: Callable[[float], float] = math.log10 if scale.kind == "log" else float
    low, high = min(map(of, known), default=0.0), max(map(of, known), default=0.0)
    span = high - low
    shares = [None if v is None else (of(v) - low) / span if span > 0 else 0.5 for v in values]
    if not known:
        return shares, []
    if not span > 0:
        return shares, [(0.5, _end_text(min(known)))]
    return shares, [(0.0, _end_text(min(known))), (1.0, _end_text(max(known)))]


def _end_text(value: float) -> str:
    return str(value) if isinstance(value, int) else format_score(value)
