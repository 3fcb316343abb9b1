"""A chart as Vega-Lite 5, with its data in it: https://vega.github.io/vega-lite/docs/."""

from __future__ import annotations

from typing import Any

from jupyter_ddl.plotting.chart import Chart, Layer, Mark, Panel, Scale
from jupyter_ddl.plotting.colors import MARKS, SERIES, STATES

__all__ = ["to_vega"]

_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
_WIDE, _NARROW, _HEIGHT = 560, 230, 240
_N_COLUMNS = 3


def to_vega(chart: Chart) -> dict[str, Any]:
    """The specification; its values are the record's."""
    is_single = len(chart.panels) <= 1
    panels = [_panel(panel, chart, _WIDE if is_single else _NARROW) for panel in chart.panels]
    title: dict[str, Any] = {"text": chart.title, "anchor": "start"}
    if chart.note:
        title["subtitle"] = chart.note
    spec: dict[str, Any] = {"$schema": _SCHEMA, "title": title, "description": chart.text}
    spec["config"] = {"legend": {"orient": "top"}}
    if is_single:
        return {**spec, **(panels[0] if panels else {"mark": "text", "data": {"values": []}})}
    return {**spec, "concat": panels, "columns": _N_COLUMNS}


def _panel(panel: Panel, chart: Chart, width: int) -> dict[str, Any]:
    layers = [_layer(layer, panel, chart) for layer in panel.layers if layer.marks]
    if panel.end_labels:
        layers.append(_labels(panel))
    height: Any = {"step": 24} if panel.y.kind == "category" else _HEIGHT
    drawn: dict[str, Any] = {"width": width, "height": height, "layer": layers}
    if panel.title:
        drawn["title"] = panel.title
    return drawn


def _layer(layer: Layer, panel: Panel, chart: Chart) -> dict[str, Any]:
    values = [_row(mark, at) for at, mark in enumerate(layer.marks)]
    encoding: dict[str, Any] = {"x": _axis(panel.x, "x"), "y": _axis(panel.y, "y")}
    if any(mark.label for mark in layer.marks):
        encoding["tooltip"] = {"field": "label"}
    encoding |= _colors(layer, chart)
    if layer.kind == "span":
        encoding["x2"] = {"field": "x2"}
    if layer.kind == "line":
        encoding["detail"] = {"field": "line"}
        encoding["order"] = {"field": "order"}
    mark = {
        "point": {"type": "point", "filled": False, "size": 36},
        "line": {
            "type": "line",
            "interpolate": "step-after" if layer.is_step else "linear",
            "opacity": 0.35 if layer.is_faint else 1.0,
        },
        "bar": {"type": "bar"},
        "span": {"type": "bar", "height": {"band": 0.7}},
    }[layer.kind]
    return {"data": {"values": values}, "mark": mark, "encoding": encoding}


def _row(mark: Mark, at: int) -> dict[str, Any]:
    row: dict[str, Any] = {"x": mark.x, "y": mark.y, "state": mark.state, "order": at}
    for name in ("series", "line", "label"):
        if getattr(mark, name):
            row[name] = getattr(mark, name)
    if mark.x2 is not None:
        row["x2"] = mark.x2
    return row


def _colors(layer: Layer, chart: Chart) -> dict[str, Any]:
    """Runs differ by colour, states by shape (and by colour, where there is one run)."""
    states = [state for state in STATES if any(mark.state == state for mark in layer.marks)]
    by_run = len(chart.series) > 1
    found: dict[str, Any] = {}
    if by_run:
        range_ = [SERIES[at % len(SERIES)] for at in range(len(chart.series))]
        found["color"] = {
            "field": "series",
            "title": None if layer.kind == "span" else "run",
            "scale": {"domain": list(chart.series), "range": range_},
        }
    elif layer.kind in ("point", "span"):
        found["color"] = {
            "field": "state",
            "scale": {"domain": states, "range": [STATES[state] for state in states]},
        }
    else:
        found["color"] = {"value": SERIES[0]}
    if layer.kind == "point":
        found["shape"] = {
            "field": "state",
            "scale": {"domain": states, "range": [MARKS.get(state, "diamond") for state in states]},
        }
    if layer.kind == "line" and "pruned" in states:
        found["strokeDash"] = {
            "condition": {"test": "datum.state === 'pruned'", "value": [4, 3]},
            "value": [1, 0],
        }
    return found


def _axis(scale: Scale, field: str) -> dict[str, Any]:
    if scale.kind == "category":
        return {
            "field": field,
            "type": "nominal",
            "title": scale.name or None,
            "sort": list(scale.categories),
            "scale": {"domain": list(scale.categories)},
            "axis": {"labelLimit": 120},
        }
    kind: dict[str, Any] = {"zero": False}
    if scale.kind == "log":
        kind = {"type": "log"}
    axis: dict[str, Any] = {"field": field, "type": "quantitative", "title": scale.name or None}
    if scale.hidden:
        return {**axis, "axis": None, "scale": {"domain": [0, 1]}}
    if scale.kind == "count":
        axis["axis"] = {"tickMinStep": 1}
    return {**axis, "scale": kind}


def _labels(panel: Panel) -> dict[str, Any]:
    values = [{"x": x, "y": y, "text": text} for x, y, text in panel.end_labels]
    encoding = {
        "x": _axis(panel.x, "x"),
        "y": _axis(panel.y, "y"),
        "text": {"field": "text"},
    }
    mark = {"type": "text", "align": "left", "dx": 4, "fontSize": 10, "limit": 90}
    return {"data": {"values": values}, "mark": mark, "encoding": encoding}
