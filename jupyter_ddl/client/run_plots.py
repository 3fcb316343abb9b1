"""``run.plot.history()`` and its like: charts of what the records of runs hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from jupyter_ddl.client.scaling import scaling_chart, scaling_of_runs
from jupyter_ddl.errors import OptionError
from jupyter_ddl.formats import format_count, format_counted, format_score
from jupyter_ddl.ledger.run_state import RunState, TrialState, by_importance
from jupyter_ddl.ledger.tables import complete_trials, curve_trials, metric_curves
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.plotting.chart import (
    MAX_MARKS,
    Chart,
    Layer,
    Mark,
    Panel,
    Plot,
    Scale,
    is_number,
    thinned,
)
from jupyter_ddl.plotting.importance import importance_of
from jupyter_ddl.plotting.pipeline import pipeline_chart
from jupyter_ddl.plotting.staleness import staleness_chart
from jupyter_ddl.plotting.svg import to_svg
from jupyter_ddl.plotting.vega import to_vega
from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted, Event
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.space import ParamValue, Uniform

__all__ = ["RunPlots"]

_N_LINES = 60
"""Trials whose curves stand in one chart."""
_N_POINTS = 500
_N_PANELS = 12
_N_AXES = 12
_RESULTS = ("complete", "pruned", "running")
"""Only of these a value is a result."""


class Recorded(Protocol):
    """A run as far as its record tells: what :class:`~jupyter_ddl.Run` is."""

    id: str

    @property
    def spec(self) -> RunSpec: ...
    def events(self) -> list[Event]: ...
    def _fold(self) -> RunState: ...


Other: TypeAlias = Recorded | str


class _Told(NamedTuple):
    """What a plot needs of one run."""

    name: str
    spec: RunSpec
    state: RunState

    @property
    def metric(self) -> str:
        """What trials are judged by.

        Raises
        ------
        OptionError
            Nothing: it is no search.
        """
        objective = self.spec.verb.objective
        if objective is None:
            raise OptionError(
                f"run {self.spec.run_id} ({self.spec.verb.word}) has no objective to plot; "
                f"run.plot.curves() shows what it has reported"
            )
        return str(objective.metric)

    def trials(self) -> list[TrialState]:
        """Those that have a result, by number."""
        trials = self.state.trials
        return [trials[n] for n in sorted(trials) if trials[n].state in _RESULTS]


class RunPlots:
    """Plots of one run, or of several; each shows itself at the end of a cell.

    A plot is Vega-Lite with its data, which JupyterLab draws and which can be changed, and SVG for
    whoever can't draw that.  All values are those of the record.  Where there is nothing to see, a
    sentence says why.

    Examples
    --------
    >>> run.plot.history(runs=["other"])        # doctest: +SKIP
    >>> run.plot.curves("val_loss").save("curves.svg")   # doctest: +SKIP
    """

    def __init__(self, run: Recorded, find: Callable[[str], Recorded]) -> None:
        self._run = run
        self._find = find

    def __repr__(self) -> str:
        names = (
            "history(), importance(), parallel(), slice(), timeline(), curves(metric, runs=[…]), "
            "pipeline(), staleness(), scaling(runs=[…])"
        )
        return f"<plots of run {self._run.id}: {names}>"

    def history(self, *, runs: Sequence[Other] = ()) -> Plot:
        """The objective of each trial, and the best so far.

        Pruned trials are crosses: theirs is the last value that they have reported.

        Parameters
        ----------
        runs : sequence of Run or str, optional
            More runs to draw beside this one, by handle, id or name.

        Returns
        -------
        Plot

        Raises
        ------
        OptionError
            A run has no objective, or another one than this run.
        RunNotFoundError
            There is no such run.
        """
        told = self._told(runs)
        metric = _shared_metric(told)
        layers: list[Layer] = []
        parts, notes = [], []
        for each in told:
            points, n_odd, n_more = _history_points(each, metric)
            best = _best_so_far(each, points)
            layers += [Layer("line", best, is_step=True), Layer("point", points)]
            parts.append(_history_text(each, metric))
            notes += _notes(n_odd, n_more)
        return _plot(
            Chart(
                title=f"{metric} per trial",
                panels=_panels(Scale("trial number", "count"), Scale(metric), layers),
                note="; ".join(notes) or _nothing(layers, f"no trial has a value of {metric} yet"),
                series=tuple(each.name for each in told),
                text="; ".join(parts),
            )
        )

    def importance(self) -> Plot:
        """How much each parameter has to do with the best trials, by Optuna's PED-ANOVA.

        Shares add up to 1.  Needs ten complete trials; of more than a thousand, a thousand are
        taken.

        Returns
        -------
        Plot

        Raises
        ------
        OptionError
            The run has no search space.
        """
        (told,) = self._told(())
        study = told.spec.verb.study
        if study is None:
            raise OptionError(f"run {told.spec.run_id} has no search space; it is no search")
        found = importance_of(study, complete_trials(told.state))
        marks = tuple(
            Mark(share, name, label=f"{name}: {share:.1%}") for name, share in found.shares.items()
        )
        y = Scale("", "category", tuple(found.shares))
        shares = ", ".join(f"{name} {share:.0%}" for name, share in found.shares.items())
        return _plot(
            Chart(
                title=f"What sets the best trials apart ({study.metric})",
                panels=_panels(Scale("share"), y, [Layer("bar", marks)]),
                note=found.note,
                text=f"{shares}, of {format_count(found.n_trials)} trials" if shares else "",
            )
        )

    def parallel(self, params: Sequence[str] | None = None) -> Plot:
        """Every trial as a line through its parameters to its objective.

        The best one stands out; lines of pruned trials are dashed.

        Parameters
        ----------
        params : sequence of str, optional
            Parameters and their order; by default all, at most 12.

        Returns
        -------
        Plot

        Raises
        ------
        OptionError
            There is no such parameter, or the run has no objective.
        """
        (told,) = self._told(())
        metric = told.metric
        chosen, n_more = _chosen_params(told, params, _N_AXES)
        trials = [trial for trial in told.trials() if is_number(_value_of(trial))]
        axes = [*chosen, _apart(metric, chosen)]
        columns = [*([trial.params.get(name) for trial in trials] for name in chosen)]
        columns.append([_value_of(trial) for trial in trials])
        places = [_shares(told, name, column) for name, column in zip(axes, columns, strict=True)]
        kept = trials if len(axes) * len(trials) <= MAX_MARKS else trials[-MAX_MARKS // len(axes) :]
        first = len(trials) - len(kept)
        best = told.state.best_number
        lines: dict[bool, list[Mark]] = {True: [], False: []}
        for at, trial in enumerate(kept, first):
            label = _params_text(trial, metric)
            for axis, (shares, _) in zip(axes, places, strict=True):
                share = shares[at]
                if share is not None:
                    mark = Mark(axis, share, state=trial.state, line=str(trial.number), label=label)
                    lines[trial.number == best].append(mark)
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
        panels = tuple(Panel(p.x, p.y, p.layers, end_labels=ends) for p in _panels(x, y, layers))
        notes = (
            [f"the last {format_count(len(kept))} of {format_count(len(trials))} trials"]
            if first
            else []
        )
        notes += [f"{n_more} more parameters are not shown"] if n_more else []
        return _plot(
            Chart(
                title=f"Parameters and {metric}",
                panels=panels,
                note="; ".join(notes) or _nothing(layers, f"no trial has a value of {metric} yet"),
                text=_history_text(told, metric),
            )
        )

    def slice(self, params: Sequence[str] | None = None) -> Plot:
        """The objective against each parameter.

        Parameters
        ----------
        params : sequence of str, optional
            By default all, at most 12.

        Returns
        -------
        Plot

        Raises
        ------
        OptionError
            There is no such parameter, or the run has no objective.
        """
        (told,) = self._told(())
        metric = told.metric
        chosen, n_more = _chosen_params(told, params, _N_PANELS)
        panels: list[Panel] = []
        for name in chosen:
            trials = [t for t in told.trials() if is_number(_value_of(t)) and name in t.params]
            scale = _param_scale(told, name, [trial.params[name] for trial in trials])
            marks = (
                Mark(
                    _on(scale, trial.params[name]),
                    _value_of(trial) or 0.0,
                    state=trial.state,
                    label=_params_text(trial, metric),
                )
                for trial in trials
            )
            panels += _panels(scale, Scale(metric), [Layer("point", thinned(marks))])
        note = f"{n_more} more parameters are not shown" if n_more else ""
        layers = [layer for panel in panels for layer in panel.layers]
        return _plot(
            Chart(
                title=f"{metric} against each parameter",
                panels=tuple(panels),
                note=note or _nothing(layers, f"no trial has a value of {metric} yet"),
                text=_history_text(told, metric),
            )
        )

    def timeline(self) -> Plot:
        """What ran where and when: a bar for each attempt at a trial.

        Returns
        -------
        Plot
        """
        (told,) = self._told(())
        spans = _attempts(self._run.events())
        kept = spans[-MAX_MARKS:]
        began_s = min((span.start_s for span in spans), default=0.0)
        places = _places(kept)
        marks = tuple(
            Mark(
                span.start_s - began_s,
                place,
                x2=span.end_s - began_s,
                state=span.outcome,
                label=f"{told.spec.verb.nouns.trial} {span.trial}, attempt {span.attempt}: "
                f"{span.outcome}, {span.end_s - span.start_s:.1f} s on {span.worker}",
            )
            for span, place in zip(kept, places, strict=True)
        )
        categories = tuple(sorted(set(places)))
        note = f"the last {format_count(len(kept))} of {format_count(len(spans))} attempts"
        return _plot(
            Chart(
                title="What ran where",
                panels=_panels(
                    Scale("seconds since the first attempt"),
                    Scale("", "category", categories),
                    [Layer("span", marks)],
                ),
                note=note if len(kept) < len(spans) else "" if spans else "nothing has begun yet",
                text=f"{format_counted(len(spans), 'attempt')} in "
                f"{format_counted(len(categories), 'place')}",
            )
        )

    def pipeline(self) -> Plot:
        """Show what each rank computed when, in the last measured batch of ``--strategy pipeline``.

        Below it stands the same order of computations if nothing else took time.

        Returns
        -------
        Plot
        """
        ranks = self._run._fold().ranks.get(0)
        return _plot(pipeline_chart(None if ranks is None else ranks.pipeline))

    def staleness(self) -> Plot:
        """Show how many updates late gradients came under ``--strategy ps-async``.

        Returns
        -------
        Plot
        """
        ranks = self._run._fold().ranks.get(0)
        return _plot(staleness_chart(() if ranks is None else ranks.staleness.values()))

    def curves(self, metric: str | None = None, *, runs: Sequence[Other] = ()) -> Plot:
        """A metric over the steps: of a search's trials, or of a training.

        Of a search with many trials the best and the last ones are drawn, 60 in all; lines of
        pruned trials are dashed.

        Parameters
        ----------
        metric : str, optional
            As named in ``report()``; by default what trials are judged by, else the first
            validation metric or loss.
        runs : sequence of Run or str, optional
            More runs to draw beside this one, by handle, id or name.

        Returns
        -------
        Plot

        Raises
        ------
        OptionError
            No run has reported such a metric; the message has the nearest name.
        RunNotFoundError
            There is no such run.
        """
        told = self._told(runs)
        chosen = [curve_trials(each.state, _N_LINES) for each in told]
        handles = [self._run, *(self._handle(other) for other in runs)]
        series = [
            metric_curves(handle.events(), trials, _N_POINTS)
            for handle, trials in zip(handles, chosen, strict=True)
        ]
        known = by_importance(dict.fromkeys(name for each in series for _, name in each))
        wanted = metric or _default_metric(told[0], known)
        if metric is not None and metric not in known and known:
            names = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
            raise OptionError(
                f"curves({metric!r}): no trial has reported it, only {names}"
                f"{did_you_mean(metric, known)}"
            )
        layers, n_odd, parts = [], 0, []
        for each, found, trials in zip(told, series, chosen, strict=True):
            marks: list[Mark] = []
            n_lines = 0
            for number, state in trials.items():
                points = found[number, wanted].drawn() if (number, wanted) in found else ()
                n_lines += bool(points)
                n_odd += sum(not is_number(value) for _, value in points)
                label = f"{each.spec.verb.nouns.trial} {number}"
                marks += [
                    Mark(x, y, state=state, series=each.name, line=str(number), label=label)
                    for x, y in points
                    if is_number(y)
                ]
            layers.append(Layer("line", tuple(marks), is_faint=n_lines > 8))
            parts.append(f"{each.name}: {format_counted(n_lines, 'curve')}")
        return _plot(
            Chart(
                title=f"{wanted} over the steps" if wanted else "Curves",
                panels=_panels(Scale("step", "count"), Scale(wanted), layers),
                note="; ".join(_notes(n_odd, 0)) or _nothing(layers, "nothing was reported yet"),
                series=tuple(each.name for each in told),
                text="; ".join(parts),
            )
        )

    def scaling(self, *, runs: Sequence[Other] = ()) -> Plot:
        """What more ranks would give: :meth:`jupyter_ddl.Run.scaling` as a picture.

        Parameters
        ----------
        runs : sequence of Run or str, optional
            Runs of the same cell on other numbers of ranks.

        Returns
        -------
        Plot

        Raises
        ------
        OptionError
            As for the table.
        RunNotFoundError
            There is no such run.
        """
        others = [runs] if isinstance(runs, str) else runs
        return _plot(scaling_chart(scaling_of_runs([self._run, *map(self._handle, others)])))

    # -- inside ----------------------------------------------------------------------------------

    def _handle(self, other: Other) -> Recorded:
        return self._find(other) if isinstance(other, str) else other

    def _told(self, runs: Sequence[Other]) -> list[_Told]:
        if isinstance(runs, str):
            runs = [runs]
        found: list[_Told] = []
        for run in (self._run, *(self._handle(other) for other in runs)):
            spec, state = run.spec, run._fold()
            name = spec.name or spec.run_id
            taken = {each.name for each in found}
            found.append(_Told(name if name not in taken else spec.run_id, spec, state))
        return found


def _plot(chart: Chart) -> Plot:
    return Plot(chart, to_vega, to_svg)


def _panels(x: Scale, y: Scale, layers: Sequence[Layer]) -> tuple[Panel, ...]:
    """One panel, or none where there is nothing in it."""
    return (Panel(x, y, tuple(layers)),) if any(layer.marks for layer in layers) else ()


def _nothing(layers: Iterable[Layer], reason: str) -> str:
    return "" if any(layer.marks for layer in layers) else reason


def _notes(n_odd: int, n_more: int) -> list[str]:
    notes = [f"{format_counted(n_odd, 'value is', 'values are')} no finite number"] if n_odd else []
    return (
        [*notes, f"{format_count(MAX_MARKS)} of {format_count(n_more)} trials"] if n_more else notes
    )


def _shared_metric(told: Sequence[_Told]) -> str:
    metrics = {each.name: each.metric for each in told}
    first = told[0].metric
    for name, metric in metrics.items():
        if metric != first:
            raise OptionError(
                f"history(): run {name} is judged by {metric}, run {told[0].name} by {first}; they "
                f"share no axis, but curves({metric!r}, runs=[…]) may draw both"
            )
    return first


def _value_of(trial: TrialState) -> float | None:
    return trial.objective if trial.value is None else trial.value


def _history_points(told: _Told, metric: str) -> tuple[tuple[Mark, ...], int, int]:
    """Points, how many values are no finite numbers, and of how many trials these are some."""
    trials = [trial for trial in told.trials() if _value_of(trial) is not None]
    known = [trial for trial in trials if is_number(_value_of(trial))]
    marks = thinned(
        Mark(
            trial.number,
            _value_of(trial) or 0.0,
            state=trial.state,
            series=told.name,
            label=_params_text(trial, metric),
        )
        for trial in known
    )
    return marks, len(trials) - len(known), len(known) if len(marks) < len(known) else 0


def _best_so_far(told: _Told, points: Sequence[Mark]) -> tuple[Mark, ...]:
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


def _history_text(told: _Told, metric: str) -> str:
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
    return f"trial {trial.number}{state}: {metric} {_value_of(trial)}; {params}"


def _chosen_params(told: _Told, params: Sequence[str] | None, limit: int) -> tuple[list[str], int]:
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


def _param_scale(told: _Told, name: str, values: Sequence[ParamValue]) -> Scale:
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
    told: _Told, name: str, values: Sequence[Any]
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


def _default_metric(told: _Told, known: Sequence[str]) -> str:
    objective = told.spec.verb.objective
    if objective is not None and objective.metric in known:
        return str(objective.metric)
    return known[0] if known else ""


class _Span(NamedTuple):
    trial: int
    attempt: int
    worker: str
    start_s: float
    end_s: float
    outcome: str


def _attempts(events: Iterable[Event]) -> list[_Span]:
    """Attempts in the order in which they began; one that runs goes up to the last event."""
    begun: dict[tuple[int, int], AttemptStarted] = {}
    ended: dict[tuple[int, int], AttemptFinished] = {}
    last_s = 0.0
    for event in events:
        last_s = max(last_s, getattr(event, "at_s", 0.0))
        if isinstance(event, AttemptStarted):
            begun.setdefault((event.trial, event.attempt), event)
        elif isinstance(event, AttemptFinished):
            ended.setdefault((event.trial, event.attempt), event)
    spans = []
    for key, start in begun.items():
        end = ended.get(key)
        end_s = last_s if end is None else max(end.at_s, start.at_s)
        outcome = "running" if end is None else str(end.outcome)
        spans.append(_Span(*key, start.worker, start.at_s, end_s, outcome))
    return sorted(spans, key=lambda span: span.start_s)


def _places(spans: Sequence[_Span]) -> list[str]:
    """A row for each span: a worker has as many as it has had attempts at once."""
    free_s: dict[str, list[float]] = {}
    places = []
    for span in spans:
        rows = free_s.setdefault(span.worker, [])
        at = next((n for n, until_s in enumerate(rows) if until_s <= span.start_s), len(rows))
        if at == len(rows):
            rows.append(0.0)
        rows[at] = span.end_s
        places.append(f"{span.worker} {at + 1}")
    return places
