"""A chart as SVG with its own text, on a white ground: to be seen wherever pictures are."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator

import msgspec

from jupyter_ddl.plotting.axes import Axis, count_axis, log_axis, value_axis
from jupyter_ddl.plotting.chart import Chart, Layer, LayerKind, Mark, Panel, Scale, is_number
from jupyter_ddl.plotting.colors import SERIES, STATES

__all__ = ["to_svg"]

_WIDE, _NARROW, _HEIGHT = 640.0, 300.0, 240.0
_N_COLUMNS = 3
_HEAD, _LEGEND, _TITLE, _TOP, _FOOT, _RIGHT = 24.0, 18.0, 16.0, 10.0, 40.0, 14.0
_CHAR = 6.3
_MAX_LABEL = 18
_ROW = 22.0
_INK, _QUIET, _GRID = "#222", "#5a5a5a", "#ddd"

Place = Callable[[float | str], float | None]


class _Box(msgspec.Struct, frozen=True):
    """Where a panel's marks are."""

    left: float
    top: float
    right: float
    bottom: float


def to_svg(chart: Chart) -> str:
    """The drawing; what lies on no axis is left out, as the chart's note tells."""
    is_single = len(chart.panels) <= 1
    width = _WIDE if is_single else _NARROW
    n_columns = 1 if is_single else min(_N_COLUMNS, len(chart.panels))
    heights = [_height(panel) for panel in chart.panels]
    total_width = max(_WIDE, n_columns * width)
    parts = [_text(8, 17, _cut(chart.title, total_width - 16, bold=True), weight="600")]
    y = _HEAD
    legend = _legend(chart)
    for line in [chart.note, *legend]:
        if not line:
            continue
        y += 14
        parts.append(line if line.startswith("<") else _text(8, y, _cut(line, total_width - 16)))
        if line.startswith("<"):
            parts[-1] = f"<g transform='translate(8 {y:g})'>{line}</g>"
    y += 6
    for start in range(0, len(chart.panels), n_columns):
        row = range(start, min(start + n_columns, len(chart.panels)))
        for column, at in enumerate(row):
            parts.append(_panel(chart.panels[at], chart, column * width, y, width, heights[at]))
        y += max(heights[at] for at in row)
    label = _escaped(". ".join(filter(None, (chart.title, chart.text, chart.note))))
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {total_width:g} {y:g}' "
        f"width='{total_width:g}' height='{y:g}' role='img' aria-label='{label}' "
        "font-family='system-ui,sans-serif' font-size='11'>"
        f"<rect width='100%' height='100%' fill='#fff'/>{''.join(parts)}</svg>"
    )


def _height(panel: Panel) -> float:
    if panel.y.kind == "category":
        return _TITLE + _TOP + _FOOT + max(2, len(panel.y.categories)) * _ROW
    return _HEIGHT


def _states(chart: Chart, kind: LayerKind) -> set[str]:
    """Of all marks in layers of a kind."""
    layers = (layer for panel in chart.panels for layer in panel.layers if layer.kind == kind)
    return {mark.state for layer in layers for mark in layer.marks}


def _legend(chart: Chart) -> list[str]:
    """Runs by colour, states by shape: only those that are there."""
    marks = [mark for panel in chart.panels for layer in panel.layers for mark in layer.marks]
    points, spans = _states(chart, "point"), _states(chart, "span")
    keys: list[tuple[str, str]] = []
    by_run = len(chart.series) > 1
    if by_run and marks:
        keys += [(_swatch(_series_color(chart, name)), name) for name in chart.series]
    for state in STATES:
        color = _QUIET if by_run else STATES[state]
        if state in points and len(points) > 1:
            keys.append((_point(5, -4, state, color), state))
        elif state in spans and not by_run:
            keys.append((_swatch(STATES[state]), state))
    drawn, x = [], 0.0
    for key, name in keys[:12]:
        shown = _clean(name, 24)
        drawn.append(f"<g transform='translate({x:g} 0)'>{key}{_text(13, 0, _escaped(shown))}</g>")
        x += 26 + len(shown) * _CHAR
    return ["".join(drawn)] if drawn else []


def _swatch(color: str) -> str:
    return f"<rect x='0' y='-8' width='9' height='8' fill='{color}'/>"


def _panel(panel: Panel, chart: Chart, x: float, y: float, width: float, height: float) -> str:
    marks = [mark for layer in panel.layers for mark in layer.marks]
    y_axis = _axis(panel.y, [mark.y for mark in marks])
    labels = panel.y.categories if panel.y.kind == "category" else _labels(y_axis)
    longest = max((len(_clean(label, _MAX_LABEL)) for label in labels), default=0)
    side = 8.0 if panel.y.hidden else max(30.0, longest * _CHAR + 22)
    box = _Box(x + side, y + _TITLE + _TOP, x + width - _RIGHT, y + height - _FOOT)
    places = [value for mark in marks for value in (mark.x, mark.x2) if value is not None]
    if any(layer.kind == "bar" for layer in panel.layers):
        places.append(0.0)  # a bar's length is its value
    x_axis = _axis(panel.x, places)
    across = _placing(panel.x, x_axis, box.left, box.right)
    up = _placing(panel.y, y_axis, box.bottom, box.top)
    title = (
        _text(box.left, y + _TITLE, _cut(panel.title, width - side), weight="600")
        if panel.title
        else ""
    )
    parts = [
        title,
        *_ticks_of_y(panel, y_axis, up, box, x),
        *_ticks_of_x(panel, x_axis, across, box),
    ]
    parts += ["".join(_layer(layer, chart, across, up, box)) for layer in panel.layers]
    parts += _end_labels(panel, across, box)
    return "".join(parts)


def _axis(scale: Scale, values: list[float | str]) -> Axis | None:
    if scale.kind == "category":
        return None
    if scale.hidden:
        return value_axis(0.0, 1.0)
    numbers = [float(value) for value in values if not isinstance(value, str) and is_number(value)]
    if scale.kind == "log":
        numbers = [value for value in numbers if value > 0]
        return log_axis(min(numbers), max(numbers)) if numbers else None
    if not numbers:
        return None
    if scale.kind == "count" and min(numbers) >= 0:
        return count_axis(math.ceil(max(numbers)))
    return value_axis(min(numbers), max(numbers))


def _labels(axis: Axis | None) -> tuple[str, ...]:
    return () if axis is None else axis.labels


def _placing(scale: Scale, axis: Axis | None, start: float, end: float) -> Place:
    """Where values stand between two edges; None: nowhere."""
    if scale.kind == "category":
        at = {name: n for n, name in enumerate(scale.categories)}
        step = (end - start) / max(1, len(at))
        if scale.categories and end < start:  # the first one at the top
            return lambda v: end - step * (at[str(v)] + 0.5) if str(v) in at else None
        return lambda v: start + step * (at[str(v)] + 0.5) if str(v) in at else None

    def place(value: float | str) -> float | None:
        if axis is None or isinstance(value, str) or not is_number(value):
            return None
        if scale.kind == "log":
            if value <= 0:
                return None
            value = math.log10(value)
        return start + axis.place(value) * (end - start) if axis.holds(value) else None

    return place


def _ticks_of_y(
    panel: Panel, axis: Axis | None, up: Place, box: _Box, left: float
) -> Iterator[str]:
    if panel.y.kind == "category":
        for name in panel.y.categories:
            row = up(name) or 0.0
            yield _text(box.left - 6, row + 4, _escaped(_clean(name, _MAX_LABEL)), anchor="end")
        return
    if panel.y.hidden or axis is None:
        return
    for tick, label in zip(axis.ticks, axis.labels, strict=True):
        at = box.bottom + axis.place(tick) * (box.top - box.bottom)
        yield f"<path d='M{box.left:g},{at:.1f}H{box.right:g}' stroke='{_GRID}'/>"
        yield _text(box.left - 6, at + 4, _escaped(label), anchor="end")
    name = _cut(panel.y.name, box.bottom - box.top)
    middle = (box.top + box.bottom) / 2
    yield (
        f"<text x='{left + 11:g}' y='{middle:g}' text-anchor='middle' fill='{_QUIET}' "
        f"transform='rotate(-90 {left + 11:g} {middle:g})'>{name}</text>"
    )


def _ticks_of_x(panel: Panel, axis: Axis | None, across: Place, box: _Box) -> Iterator[str]:
    middle = (box.left + box.right) / 2
    yield _text(middle, box.bottom + 32, _cut(panel.x.name, box.right - box.left), anchor="middle")
    if panel.x.kind == "category":
        step = (box.right - box.left) / max(1, len(panel.x.categories))
        for name in panel.x.categories:
            column = across(name) or 0.0
            if panel.y.hidden:
                yield f"<path d='M{column:.1f},{box.top:g}V{box.bottom:g}' stroke='{_QUIET}'/>"
            yield _text(column, box.bottom + 15, _cut(name, step), anchor="middle")
        return
    if axis is None:
        return
    room = -math.inf
    for tick, label in zip(axis.ticks, axis.labels, strict=True):
        at = box.left + axis.place(tick) * (box.right - box.left)
        half = len(label) * _CHAR / 2
        if at - half < room:
            continue
        room = at + half + 6
        yield f"<path d='M{at:.1f},{box.bottom:g}v4' stroke='{_QUIET}'/>"
        yield _text(at, box.bottom + 16, _escaped(label), anchor="middle")


def _layer(layer: Layer, chart: Chart, across: Place, up: Place, box: _Box) -> Iterator[str]:
    if layer.kind == "line":
        yield from _lines(layer, chart, across, up)
        return
    for mark in layer.marks:
        x, y = across(mark.x), up(mark.y)
        if x is None or y is None:
            continue
        told = f"<title>{_escaped(_clean(mark.label, 200))}</title>" if mark.label else ""
        color = _color(mark, chart)
        if layer.kind == "point":
            yield _point(x, y, mark.state, color, told)
        elif layer.kind == "bar":
            start = across(0.0) or box.left
            yield _rect(min(start, x), y - _ROW * 0.35, abs(x - start), _ROW * 0.7, color, told)
        else:
            end = across(mark.x2) if mark.x2 is not None else None
            if end is not None:
                yield _rect(x, y - _ROW * 0.35, max(0.5, end - x), _ROW * 0.7, color, told)


def _lines(layer: Layer, chart: Chart, across: Place, up: Place) -> Iterator[str]:
    found: dict[tuple[str, str], list[Mark]] = {}
    for mark in layer.marks:
        found.setdefault((mark.series, mark.line), []).append(mark)
    for marks in found.values():
        path, before = "", False
        for mark in marks:
            x, y = across(mark.x), up(mark.y)
            if x is None or y is None:
                before = False
                continue
            to = f"H{x:.1f}V{y:.1f}" if layer.is_step else f"L{x:.1f},{y:.1f}"
            path += to if before else f"M{x:.1f},{y:.1f}h0"
            before = True
        dash = " stroke-dasharray='4 3'" if marks[-1].state == "pruned" else ""
        faint = " stroke-opacity='.4'" if layer.is_faint else ""
        color = _color(marks[0], chart, by_state=False)
        yield (
            f"<path d='{path}' fill='none' stroke='{color}' stroke-width='1.5' "
            f"stroke-linecap='round' stroke-linejoin='round'{dash}{faint}/>"
        )


def _color(mark: Mark, chart: Chart, *, by_state: bool = True) -> str:
    if len(chart.series) > 1 or not by_state:
        return _series_color(chart, mark.series)
    return STATES.get(mark.state, STATES["waiting"])


def _series_color(chart: Chart, name: str) -> str:
    at = chart.series.index(name) if name in chart.series else 0
    return SERIES[at % len(SERIES)]


def _point(x: float, y: float, state: str, color: str, told: str = "") -> str:
    """A circle; a cross where the trial was pruned, a triangle where it runs, else a diamond."""
    if state == "complete":
        return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.2' fill='{color}'>{told}</circle>"
    shapes = {"pruned": "m-3,-3l6,6m-6,0l6,-6", "running": "m0,-4l4,7h-8z"}
    shape = shapes.get(state, "m0,-4l4,4l-4,4l-4,-4z")
    return (
        f"<path d='M{x:.1f},{y:.1f}{shape}' fill='none' stroke='{color}' "
        f"stroke-width='1.5'>{told}</path>"
    )


def _rect(x: float, y: float, width: float, height: float, color: str, told: str) -> str:
    return (
        f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' "
        f"fill='{color}'>{told}</rect>"
    )


def _end_labels(panel: Panel, across: Place, box: _Box) -> Iterator[str]:
    for name, share, text in panel.end_labels:
        x = across(name)
        if x is not None:
            y = box.bottom - share * (box.bottom - box.top)
            step = (box.right - box.left) / max(1, len(panel.x.categories))
            yield _text(x + 4, y + 4, _cut(text, step - 6), color=_QUIET)


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: str = "", color: str = _INK
) -> str:
    """Text that is escaped already."""
    bold = f" font-weight='{weight}'" if weight else ""
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='{color}'{bold}>{text}</text>"
    )


def _cut(text: str, room: float, *, bold: bool = False) -> str:
    """As much of a text as there is room for, escaped."""
    return _escaped(_clean(text, max(1, int(room / (_CHAR * (1.1 if bold else 1.0))))))


def _clean(text: str, limit: int) -> str:
    shown = "".join(each if each.isprintable() else " " for each in text[: limit + 1])
    return shown if len(text) <= limit else shown[: limit - 1].rstrip() + "…"


def _escaped(text: str) -> str:
    printable = "".join(each if each.isprintable() else " " for each in text)
    return html.escape(printable, quote=True)
