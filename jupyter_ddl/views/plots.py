"""The objective per trial, with the best so far: dots, a step line and two axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from urllib.parse import quote

import msgspec

from jupyter_ddl.formats import format_count, format_score, format_ticks
from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.views.drawing import GREY, MUTED, dot, esc

__all__ = [
    "Axis",
    "Series",
    "count_axis",
    "draw_curve",
    "draw_plot",
    "draw_strokes",
    "point_at",
    "series_of",
    "value_axis",
    "x_of",
    "y_of",
]


# Axis ticks: few round numbers, evenly spaced, that cover the data.

_HUGE = 1e300
_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)


class Axis(msgspec.Struct, frozen=True):
    """Evenly spaced ticks, ascending; the axis ends at the first and the last one."""

    ticks: tuple[float, ...]
    labels: tuple[str, ...]

    def place(self, value: float) -> float:
        """Position of ``value`` from 0 (first tick) to 1 (last), clamped to that range."""
        low, high = self.ticks[0], self.ticks[-1]
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def holds(self, value: float) -> bool:
        return self.ticks[0] <= value <= self.ticks[-1]


def value_axis(low: float, high: float, n_steps: int = 4) -> Axis:
    """An axis for values between ``low`` and ``high`` in about ``n_steps`` steps.

    Parameters
    ----------
    low, high : float
        Finite, ``low <= high``; a span that is empty or lost in rounding is widened.
    """
    low, high = (min(_HUGE, max(-_HUGE, value)) for value in (low, high))
    least = max(abs(low), abs(high), 1e-290) * 1e-6
    if high - low < least:
        middle, half = (low + high) / 2, max(abs(low) * 0.05, least * 2, 1e-280)
        low, high = middle - half, middle + half
    step = _round_step((high - low) / n_steps)
    first, last = math.floor(low / step), math.ceil(high / step)
    ticks = tuple(k * step for k in range(first, last + 1))
    return Axis(ticks=ticks, labels=format_ticks(ticks, step))


def count_axis(last: int, n_steps: int = 5) -> Axis:
    """An axis of whole numbers from 0 to at least ``last``, which is at least 1."""
    raw = max(1.0, max(1, last) / n_steps)
    scale = 10.0 ** math.floor(math.log10(raw))
    options = (1, 2, 5, 10) if scale == 1 else (1, 2, 2.5, 5, 10)
    step = int(next(f * scale for f in options if f * scale >= raw))
    n_ticks = math.ceil(max(1, last) / step) + 1
    ticks = tuple(float(k * step) for k in range(n_ticks))
    return Axis(ticks=ticks, labels=format_ticks(ticks, step))


def _round_step(raw: float) -> float:
    scale = 10.0 ** math.floor(math.log10(raw))
    return next((f * scale for f in _ROUND if f * scale >= raw * (1 - 1e-9)), 10 * scale)


# A plot: an SVG without text, stretched to the width that there is, and HTML labels around it.
#
# The labels keep the theme's font, size and colour.  While a run is live the SVG stands inline,
# because images decode late and flicker when replaced; in its final form it is an image, because
# the sanitizer for untrusted notebooks drops ``<svg>``.

_WIDTH = 1000.0
_PAD_X = 6.0
_HEIGHT_PX = 150
_PAD_PX = 6
_LINE_PX = 14


def draw_plot(
    body: str, x_axis: Axis, y_axis: Axis, *, key: str, alt: str, x_label: str, inline: bool
) -> str:
    """HTML of a plot.

    Parameters
    ----------
    body : str
        SVG elements, placed by :func:`point_at`.
    key, alt, x_label : str
        Escaped: the line above, the description, and what the horizontal axis counts.
    inline : bool
        Inline SVG (live) or an image that survives untrusted notebooks (final).
    """
    drawn = "".join(_grid(y_axis)) + body
    return (
        f"{key}"
        '<div style="display:flex;padding-right:16px">'
        f"{_value_labels(y_axis)}"
        f'<div style="flex:1 1 0;min-width:0">{_picture(drawn, alt, inline=inline)}'
        f"{_count_labels(x_axis)}"
        f'<div style="text-align:center;font-size:11px;{MUTED}">{x_label}</div>'
        "</div></div>"
    )


def draw_strokes(strokes: Sequence[tuple[str, str]], color: str) -> str:
    """Paths with their own stroke attributes, in one colour."""
    round_ends = "stroke-linecap='round' vector-effect='non-scaling-stroke'"
    shared = f"fill='none' stroke='{color}' {round_ends}"
    return "".join(f"<path d='{path}' {shared} {stroke}/>" for path, stroke in strokes)


def x_of(place: float) -> float:
    """Horizontal position in the SVG of a place on an axis."""
    return round(_PAD_X + place * (_WIDTH - 2 * _PAD_X), 1)


def y_of(place: float) -> float:
    """Vertical position in the SVG of a place on an axis."""
    return round(_PAD_PX + (1 - place) * (_HEIGHT_PX - 2 * _PAD_PX), 1)


def point_at(x: float, y: float, x_axis: Axis, y_axis: Axis) -> str:
    """``x,y`` in the SVG."""
    return f"{x_of(x_axis.place(x)):g},{y_of(y_axis.place(y)):g}"


def _grid(y_axis: Axis) -> Iterable[str]:
    for tick in y_axis.ticks:
        y = y_of(y_axis.place(tick))
        yield (
            f"<path d='M0,{y:g}H{_WIDTH:g}' stroke='{GREY}' stroke-opacity='.28' "
            "stroke-width='1' vector-effect='non-scaling-stroke'/>"
        )


def _picture(body: str, alt: str, *, inline: bool) -> str:
    frame = f"viewBox='0 0 {_WIDTH:g} {_HEIGHT_PX}' preserveAspectRatio='none'"
    style = f"display:block;width:100%;height:{_HEIGHT_PX}px;margin:0;max-width:none"
    if inline:
        return f'<svg {frame} role="img" aria-label="{alt}" style="{style}">{body}</svg>'
    svg = f"<svg xmlns='http://www.w3.org/2000/svg' {frame}>{body}</svg>"
    source = "data:image/svg+xml," + quote(svg, safe="/:='(),.!-")
    return f'<img alt="{alt}" src="{source}" style="{style}">'


def _value_labels(axis: Axis) -> str:
    labels = "".join(f"<div>{label}</div>" for label in reversed(axis.labels))
    height = _HEIGHT_PX - 2 * _PAD_PX + _LINE_PX
    return (
        '<div aria-hidden="true" style="flex:none;display:flex;flex-direction:column;'
        f"justify-content:space-between;height:{height}px;"
        f"margin:{_PAD_PX - _LINE_PX // 2}px 7px 0 0;"
        f'line-height:{_LINE_PX}px;font-size:11px;text-align:right;white-space:nowrap;{MUTED}">'
        f"{labels}</div>"
    )


def _count_labels(axis: Axis) -> str:
    labels = "".join(
        '<span style="display:flex;width:0;justify-content:center;white-space:nowrap">'
        f"{label}</span>"
        for label in axis.labels
    )
    return (
        '<div aria-hidden="true" style="display:flex;justify-content:space-between;'
        f'padding:2px {_PAD_X / _WIDTH:.1%} 0;line-height:{_LINE_PX}px;font-size:11px;{MUTED}">'
        f"{labels}</div>"
    )


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
            best = f", best {format_score(value)} at trial {number}"
        parts.append(f"{name}{len(one.points)} trials{best}")
    return esc(f"{metric} per trial. {'; '.join(parts)}.", 240)
