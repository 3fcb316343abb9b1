"""The objective per trial, with the best so far: dots, a step line and two axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from jupyter_ddl.events.snapshot import RunSnapshot
from jupyter_ddl.views.axes import Axis, count_axis, value_axis
from jupyter_ddl.views.escape import esc
from jupyter_ddl.views.format import format_count
from jupyter_ddl.views.palette import MUTED, dot
from jupyter_ddl.views.plot import draw_plot, draw_strokes, point_at, x_of, y_of

__all__ = ["Series", "draw_curve", "series_of"]

_SPREAD_LIMIT = 8.0
"""Span over interquartile range from which on far worse values are cut off."""


class Series(msgspec.Struct, frozen=True):
    """What one run adds to the drawing."""

    points: tuple[tuple[int, float], ...]
    """(trial number, objective)"""
    steps: tuple[tuple[int, float], ...]
    """(trial number, best so far), one per improvement."""
    color: str
    label: str = ""


def series_of(
    snapshot: RunSnapshot, *, color: str, label: str = "", n_points: int = 300
) -> Series | None:
    """The curve of a run, or None while no trial has an objective.

    ``best_curve`` counts finished trials; a step is drawn at the trial that made it where
    that trial is among the points.
    """
    points = [(x, y) for x, y in snapshot.curve if math.isfinite(y)]
    steps = _steps(snapshot, points)
    if not points and not steps:
        return None
    n_kept = min(len(points), max(1, n_points))
    kept = tuple(points[at * len(points) // n_kept] for at in range(n_kept))
    return Series(points=kept, steps=steps, color=color, label=label)


def _steps(
    snapshot: RunSnapshot, points: Sequence[tuple[int, float]]
) -> tuple[tuple[int, float], ...]:
    # Not from the points alone: pruned trials have points, but are never the best.
    made_by = {y: x for x, y in reversed(points)}
    if snapshot.best is not None:
        made_by[snapshot.best.value] = snapshot.best.number
    known = [(made_by.get(y, max(0, count - 1)), y) for count, y in snapshot.best_curve]
    if snapshot.best is not None:
        known.append((snapshot.best.number, snapshot.best.value))
    finite = sorted({(x, y) for x, y in known if math.isfinite(y)})
    return tuple(_improving(finite, larger=snapshot.mode == "max"))


def _improving(ordered: Iterable[tuple[int, float]], *, larger: bool) -> list[tuple[int, float]]:
    improving: list[tuple[int, float]] = []
    for x, y in ordered:
        if not improving or (y > improving[-1][1] if larger else y < improving[-1][1]):
            improving.append((x, y))
    return improving


def draw_curve(series: Sequence[Series], *, metric: str, mode: str, inline: bool) -> str:
    """HTML of the curves of one or more runs.

    Parameters
    ----------
    metric : str
        Shown as the name of the value axis.
    mode : str
        ``max`` or ``min``.
    inline : bool
        Inline SVG (live) or an image that survives untrusted notebooks (final).
    """
    x_axis = count_axis(max(x for one in series for x, _ in (*one.points, *one.steps)))
    y_axis = _value_axis(series, larger=mode == "max")
    n_outside = sum(not y_axis.holds(y) for one in series for _, y in one.points)
    body = "".join(_paths(one, x_axis, y_axis) for one in series)
    plot = draw_plot(
        body,
        x_axis,
        y_axis,
        key=_key(series, metric, mode, n_outside),
        alt=_description(series, metric),
        x_label="trial number",
        inline=inline,
    )
    return f'<div style="margin:14px 0 0;max-width:760px">{plot}</div>'


def _value_axis(series: Sequence[Series], *, larger: bool) -> Axis:
    """Covers all values, but for far worse ones: one diverged trial must not flatten the rest."""
    values = sorted(y for one in series for _, y in (*one.points, *one.steps))
    low, high = values[0], values[-1]
    quarter, three_quarters = values[len(values) // 4], values[(len(values) * 3) // 4]
    spread = three_quarters - quarter
    if spread > 0 and high - low > _SPREAD_LIMIT * spread:
        if larger:
            low = max(low, quarter - 3 * spread)
        else:
            high = min(high, three_quarters + 3 * spread)
    return value_axis(low, high)


def _paths(one: Series, x_axis: Axis, y_axis: Axis) -> str:
    # A line of no length with a round cap stays a circle however the drawing is stretched.
    dots = "".join(f"M{point_at(x, y, x_axis, y_axis)}h0" for x, y in one.points)
    drawn = [(dots, "stroke-width='5' stroke-opacity='.7'")] if dots else []
    if one.steps:
        last_x = max(x for x, _ in (*one.points, *one.steps))
        line = f"M{point_at(*one.steps[0], x_axis, y_axis)}" + "".join(
            f"H{x_of(x_axis.place(x)):g}V{y_of(y_axis.place(y)):g}" for x, y in one.steps[1:]
        )
        line += f"H{x_of(x_axis.place(last_x)):g}"
        drawn.append((line, "stroke-width='1.75' stroke-linejoin='round'"))
        drawn.append((f"M{point_at(*one.steps[-1], x_axis, y_axis)}h0", "stroke-width='9'"))
    return draw_strokes(drawn, one.color)


def _key(series: Sequence[Series], metric: str, mode: str, n_outside: int) -> str:
    better = "higher is better" if mode == "max" else "lower is better"
    outside = f" · {format_count(n_outside)} off the scale" if n_outside else ""
    marks = "".join(
        f'<span style="white-space:nowrap">{dot(one.color)}{esc(one.label, 60)}</span>'
        for one in series
        if one.label
    )
    line_key = (
        f'<span style="white-space:nowrap;{MUTED}">dots: trials · line: best so far{outside}</span>'
    )
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:0 14px;align-items:baseline;'
        'margin:0 0 6px;font-size:12px">'
        f'<span><b style="font-weight:600">{esc(metric, 60)}</b> '
        f'<span style="{MUTED}">per trial, {better}</span></span>{marks}{line_key}</div>'
    )


def _description(series: Sequence[Series], metric: str) -> str:
    parts = []
    for one in series:
        name = f"{one.label}: " if one.label else ""
        best = ""
        if one.steps:
            number, value = one.steps[-1]
            best = f", best {value:.4g} at trial {number}"
        parts.append(f"{name}{len(one.points)} trials{best}")
    return esc(f"{metric} per trial. {'; '.join(parts)}.", 240)
