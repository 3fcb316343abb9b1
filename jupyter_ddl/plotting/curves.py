"""A metric over the steps: of a search's trials, or of trainings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from jupyter_ddl.errors import OptionError
from jupyter_ddl.formats import format_counted
from jupyter_ddl.ledger.run_state import by_importance
from jupyter_ddl.ledger.tables import curve_trials, metric_curves
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.plotting.chart import (
    Chart,
    Layer,
    Mark,
    Scale,
    is_number,
    notes_of,
    panels_of,
    reason_if_empty,
)
from jupyter_ddl.plotting.record import PlottedRun
from jupyter_ddl.protocol.events import Event

__all__ = ["curves_chart"]

_N_LINES = 60
"""Trials whose curves stand in one chart."""
_N_POINTS = 500
_MANY_LINES = 8


def curves_chart(
    told: Sequence[PlottedRun], events: Sequence[Iterable[Event]], metric: str | None
) -> Chart:
    """Draw a metric of runs, each with its events; None: what the first one is judged by.

    Raises
    ------
    OptionError
        No run has reported such a metric.
    """
    chosen = [curve_trials(each.state, _N_LINES) for each in told]
    series = [
        metric_curves(own, trials, _N_POINTS) for own, trials in zip(events, chosen, strict=True)
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
        lines = {
            number: found[number, wanted].drawn() for number in trials if (number, wanted) in found
        }
        lines = {number: points for number, points in lines.items() if points}
        n_odd += sum(not is_number(value) for points in lines.values() for _, value in points)
        layers.append(_layer(each, trials, lines))
        parts.append(f"{each.name}: {format_counted(len(lines), 'curve')}")
    return Chart(
        title=f"{wanted} over the steps" if wanted else "Curves",
        panels=panels_of(Scale("step", "count"), Scale(wanted), layers),
        note="; ".join(notes_of(n_odd, 0)) or reason_if_empty(layers, "nothing was reported yet"),
        series=tuple(each.name for each in told),
        text="; ".join(parts),
    )


def _layer(
    told: PlottedRun,
    states: Mapping[int, str],
    lines: Mapping[int, Sequence[tuple[float, float | None]]],
) -> Layer:
    """Lines of a run's trials, by their numbers."""
    marks = (
        Mark(
            step,
            value,
            state=states[number],
            series=told.name,
            line=str(number),
            label=f"{told.spec.verb.nouns.trial} {number}",
        )
        for number, points in lines.items()
        for step, value in points
        if value is not None and is_number(value)
    )
    return Layer("line", tuple(marks), is_faint=len(lines) > _MANY_LINES)


def _default_metric(told: PlottedRun, known: Sequence[str]) -> str:
    objective = told.spec.verb.objective
    if objective is not None and objective.metric in known:
        return str(objective.metric)
    return known[0] if known else ""
