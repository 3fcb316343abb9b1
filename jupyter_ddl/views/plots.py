"""The objective per trial, with the best so far: dots, a step line and two axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from urllib.parse import quote

import msgspec

from jupyter_ddl.formats import format_count, format_score
from jupyter_ddl.plotting.axes import Axis, count_axis, value_axis
from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.views.drawing import GREY, MUTED, dot, esc

__all__ = [
    "Series",
    "draw_curve",
    "draw_plot",
    "draw_strokes",
    "edge_ticks",
    "line_path",
    "outside_text",
    "point_at",
    "series_of",
    "x_of",
    "y_of",
]


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
    shared = f"fill='none' stroke='{color}' vector-effect='non-scaling-stroke'"
    return "".join(
        f"<path d='{path}' {shared} stroke-linecap='{_cap(stroke)}' {stroke}/>"
        for path, stroke in strokes
    )


def _cap(stroke: str) -> str:
    return "square" if stroke == _PRUNED else "round"


def x_of(place: float) -> float:
    """Horizontal position in the SVG of a place on an axis."""
    return round(_PAD_X + place * (_WIDTH - 2 * _PAD_X), 1)


def y_of(place: float) -> float:
    """Vertical position in the SVG of a place on an axis."""
    return round(_PAD_PX + (1 - place) * (_HEIGHT_PX - 2 * _PAD_PX), 1)


def line_path(points: Sequence[tuple[float, float]], x_axis: Axis, y_axis: Axis) -> str:
    """A line through points by growing x; it breaks off at the edge of the axis, or at a gap."""
    path = ""
    before: tuple[float, float] | None = None
    for x, y in points:
        if before is None:
            inside = y_axis.holds(y)
            path += f"M{point_at(x, y, x_axis, y_axis)}h0" if inside else ""
        else:
            path += _part(before, (x, y), x_axis, y_axis)
        before = (x, y)
    return path


def _part(a: tuple[float, float], b: tuple[float, float], x_axis: Axis, y_axis: Axis) -> str:
    """From one point to the next one, as much of it as lies on the axis."""
    is_in = y_axis.holds(a[1]), y_axis.holds(b[1])
    if all(is_in):
        return f"L{point_at(*b, x_axis, y_axis)}"
    if not any(is_in):
        return ""
    inner, outer = (a, b) if is_in[0] else (b, a)
    start, end = y_axis.place(inner[1]), y_axis.place(outer[1])
    edge = 1.0 if end > start else 0.0
    share = (edge - start) / (end - start)
    x0, x1 = x_axis.place(inner[0]), x_axis.place(outer[0])
    cut = f"{x_of(x0 + share * (x1 - x0)):g},{y_of(edge):g}"
    return f"L{cut}" if is_in[0] else f"M{cut}L{point_at(*b, x_axis, y_axis)}"


def edge_ticks(points: Sequence[tuple[float, float]], x_axis: Axis, y_axis: Axis) -> str:
    """A short stroke beyond the edge for each point that lies outside of it."""
    marks = {
        (x_of(x_axis.place(x)), _is_above(y, y_axis)) for x, y in points if not y_axis.holds(y)
    }
    low, high = y_of(0.0), y_of(1.0)
    return "".join(
        f"M{x:g},{0 if above else low + 2:g}V{high - 2 if above else _HEIGHT_PX:g}"
        for x, above in sorted(marks)
    )


def outside_text(points: Iterable[tuple[float, float]], y_axis: Axis) -> str:
    """How many points lie outside of the axis, and where; empty when none does."""
    outside = [_is_above(y, y_axis) for _, y in points if not y_axis.holds(y)]
    n_above, n_below = sum(outside), len(outside) - sum(outside)
    parts = [f"▲ {format_count(n_above)} above the axis"] if n_above else []
    parts += [f"▼ {format_count(n_below)} below the axis"] if n_below else []
    return " · ".join(parts)


def _is_above(y: float, axis: Axis) -> bool:
    return y > axis.ticks[-1]


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


_LINE = "stroke-width='1.75' stroke-linejoin='round'"
_PRUNED = "stroke-width='4' stroke-opacity='.45'"
"""Trials that were pruned are squares, smaller and fainter."""


class Series(msgspec.Struct, frozen=True):
    """What one run adds to the drawing."""

    points: tuple[tuple[int, float], ...]
    """(trial number, objective)"""
    steps: tuple[tuple[int, float], ...]
    """(trial number, best so far), one per improvement."""
    color: str
    label: str = ""
    pruned: frozenset[int] = frozenset()
    """Trials among the points whose objective is no result."""


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
    pruned = frozenset(snapshot.pruned)
    return Series(points=kept, steps=steps, color=color, label=label, pruned=pruned)


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
    drawn = (point for one in series for point in (*one.points, *one.steps))
    outside = outside_text(set(drawn), y_axis)
    body = "".join(_paths(one, x_axis, y_axis) for one in series)
    plot = draw_plot(
        body,
        x_axis,
        y_axis,
        key=_key(series, metric, mode, outside),
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
    inside = [(x, y) for x, y in one.points if y_axis.holds(y)]
    kinds = ((False, "stroke-width='5' stroke-opacity='.7'"), (True, _PRUNED))
    drawn = [
        ("".join(f"M{point_at(x, y, x_axis, y_axis)}h0" for x, y in points), stroke)
        for is_pruned, stroke in kinds
        if (points := [(x, y) for x, y in inside if (x in one.pruned) is is_pruned])
    ]
    if one.steps:
        last_x = max(x for x, _ in (*one.points, *one.steps))
        drawn.append((line_path(_stairs(one.steps, last_x), x_axis, y_axis), _LINE))
        end = one.steps[-1]
        if y_axis.holds(end[1]):
            drawn.append((f"M{point_at(*end, x_axis, y_axis)}h0", "stroke-width='9'"))
    ticks = edge_ticks((*one.points, *one.steps), x_axis, y_axis)
    drawn += [(ticks, "stroke-width='2'")] if ticks else []
    return draw_strokes(drawn, one.color)


def _stairs(steps: Sequence[tuple[int, float]], last_x: int) -> list[tuple[float, float]]:
    """Corners of the line of the best so far: level until another trial is better."""
    corners: list[tuple[float, float]] = [steps[0]]
    for x, y in steps[1:]:
        corners += [(x, corners[-1][1]), (x, y)]
    return [*corners, (last_x, corners[-1][1])]


def _key(series: Sequence[Series], metric: str, mode: str, outside: str) -> str:
    better = "higher is better" if mode == "max" else "lower is better"
    outside = f" · {outside}" if outside else ""
    marks = "".join(
        f'<span style="white-space:nowrap">{dot(one.color)}{esc(one.label, 60)}</span>'
        for one in series
        if one.label
    )
    squares = " · squares: pruned" if any(one.pruned for one in series) else ""
    line_key = (
        f'<span style="white-space:nowrap;{MUTED}">dots: trials{squares} · line: best so far'
        f"{outside}</span>"
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
