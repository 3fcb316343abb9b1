"""Each plot of an author, of random runs: a mark stands where its axes say, and no other does."""

from __future__ import annotations

import html
import math
import random
import re
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pytest

from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.plotting.attempts import attempts_chart
from jupyter_ddl.plotting.axes import Axis, count_axis, log_axis, value_axis
from jupyter_ddl.plotting.chart import Chart, Layer, Panel, Scale, is_number
from jupyter_ddl.plotting.curves import curves_chart
from jupyter_ddl.plotting.pipeline import pipeline_chart
from jupyter_ddl.plotting.record import PlottedRun
from jupyter_ddl.plotting.staleness import staleness_chart
from jupyter_ddl.plotting.svg import to_svg
from jupyter_ddl.plotting.trials import (
    history_chart,
    importance_chart,
    parallel_chart,
    slice_chart,
)
from jupyter_ddl.protocol.events import Event, RunSubmitted
from jupyter_ddl.protocol.pipeline import PipelineSpan, PipelineTimes
from jupyter_ddl.protocol.staleness import Staleness
from tests.unit.cell.cell_makers import compiled
from tests.unit.recorded_runs import CELL, LINE, events_of_search

Place = Callable[[float | str], float]
Corner = tuple[float, float]

_MOST_PX = 0.5
_MOST = 1e300
_N_RUNS = 60


def _values(rng: random.Random) -> list[float]:
    """Of some size, with outliers and what is no number."""
    size = 10.0 ** rng.choice([0, 0, 0, rng.randrange(-200, 200)])
    odd = [math.nan, math.inf, -math.inf, 0.0, 1e12 * size, -1e12 * size]
    count = rng.choice([1, 2, 12, 40])
    return [
        rng.choice(odd) if rng.random() < 0.1 else size * (rng.random() - 0.5) for _ in range(count)
    ]


def _events(rng: random.Random) -> list[Event]:
    spec = msgspec.structs.replace(compiled(LINE, CELL).spec, run_id="r", name="told")
    events = events_of_search(values=_values(rng), n_steps=rng.choice([1, 4]))
    return [RunSubmitted(spec, 0.0), *events]


def _told(events: list[Event]) -> PlottedRun:
    state = fold_all(events)
    return PlottedRun("told", state.spec, state)


def _curves(rng: random.Random) -> Chart:
    events = _events(rng)
    return curves_chart([_told(events)], [events], "loss")


def _pipeline(rng: random.Random) -> Chart:
    def spans(scale: float) -> tuple[PipelineSpan, ...]:
        starts = [scale * 10 * rng.random() for _ in range(20)]
        return tuple(
            PipelineSpan(rng.randrange(3), 0, "forward", n, at, at + scale * rng.random())
            for n, at in enumerate(starts)
        )

    size = 10.0 ** rng.randrange(-4, 3)
    return pipeline_chart(PipelineTimes(1, 3, "1f1b", 4, (), 0.2, 0.1, spans(size), spans(1.0)))


def _staleness(rng: random.Random) -> Chart:
    counts = tuple(rng.randrange(10 ** rng.randrange(1, 7)) for _ in range(1 + rng.randrange(9)))
    return staleness_chart([Staleness(0, counts, 3)])


_CHARTS: dict[str, Callable[[random.Random], Chart]] = {
    "history": lambda rng: history_chart([_told(_events(rng))]),
    "slice": lambda rng: slice_chart(_told(_events(rng)), None),
    "parallel": lambda rng: parallel_chart(_told(_events(rng)), None),
    "importance": lambda rng: importance_chart(_told(_events(rng))),
    "curves": _curves,
    "timeline": lambda rng: attempts_chart(
        events_of_search(values=_values(rng), n_steps=1), "trial"
    ),
    "pipeline": _pipeline,
    "staleness": _staleness,
}


@pytest.mark.parametrize("name", _CHARTS)
def test_no_mark_stands_where_its_value_is_not(name: str) -> None:
    rng = random.Random(30)
    n_marks = 0
    for _ in range(_N_RUNS):
        chart = _CHARTS[name](rng)
        for panel in chart.panels:
            # Alone, so that all that is drawn is this panel's.
            svg = to_svg(msgspec.structs.replace(chart, panels=(panel,)))
            across, up = _across(svg, panel), _up(svg, panel)
            for layer in panel.layers:
                n_marks += _check(svg, layer, across, up)
            wanted = sum(_n_shapes(layer) for layer in panel.layers)
            assert len(_points(svg)) + len(_bars(svg)) + len(_lines(svg)) == wanted
    assert n_marks > 40


def _check(svg: str, layer: Layer, across: Place, up: Place) -> int:
    """Number of marks of a layer, each of which is drawn where it belongs."""
    corners = _points(svg) if layer.kind == "point" else [c for line in _lines(svg) for c in line]
    for mark in layer.marks:
        if not _is_shown(mark.x, mark.y):
            continue
        x, y = across(mark.x), up(mark.y)
        if layer.kind in {"point", "line"}:
            assert any(_near(x, a) and _near(y, b) for a, b in corners), mark
            continue
        start, end = (across(0.0), x) if layer.kind == "bar" else (x, across(mark.x2 or 0.0))
        assert any(
            _near(start, left) and _near(end, left + width) and _near(y, middle)
            for left, width, middle in _bars(svg)
        ), mark
    return len(layer.marks)


def _n_shapes(layer: Layer) -> int:
    shown = [mark for mark in layer.marks if _is_shown(mark.x, mark.y)]
    return len({(m.series, m.line) for m in shown}) if layer.kind == "line" else len(shown)


def _is_shown(*places: float | str) -> bool:
    return all(isinstance(each, str) or (is_number(each) and abs(each) <= _MOST) for each in places)


def _near(wanted: float, drawn: float) -> bool:
    # A span that is too short to be seen is half a pixel wide.
    return abs(wanted - drawn) <= _MOST_PX + 0.06


def _points(svg: str) -> list[Corner]:
    found = re.findall(r"<circle cx='([-\d.]+)' cy='([-\d.]+)' r='3.2'[^>]*><title>", svg)
    found += re.findall(r"<path d='M([-\d.]+),([-\d.]+)m[-\d.,]+l[^>]*><title>", svg)
    return [(float(x), float(y)) for x, y in found]


def _bars(svg: str) -> list[tuple[float, float, float]]:
    """From where, how wide, and in the middle of which row."""
    number = r"'([-\d.]+)'"
    rect = rf"<rect x={number} y={number} width={number} height={number} [^>]*><title>"
    found = [map(float, each) for each in re.findall(rect, svg)]
    return [(x, width, y + height / 2) for x, y, width, height in found]


def _lines(svg: str) -> list[list[Corner]]:
    paths = re.findall(r"<path d='([^']*)' fill='none'[^>]*stroke-linecap", svg)
    return [list(_corners(path)) for path in paths]


def _corners(path: str) -> Iterator[Corner]:
    x = y = math.nan
    for command, numbers in re.findall(r"([MLHV])([-\d.,]+)", path):
        given = [float(each) for each in numbers.split(",")]
        if command in "ML":
            x, y = given
        elif command == "H":
            x = given[0]
            continue
        else:
            y = given[0]
        yield x, y


def _across(svg: str, panel: Panel) -> Place:
    if panel.x.kind == "category":
        return _labelled(svg, panel.x, r"<text x='([-\d.]+)'[^>]*text-anchor='middle'[^>]*>")
    ticks = re.findall(r"<path d='M([-\d.]+),[-\d.]+v4'[^>]*/><text [^>]*>([^<]*)</text>", svg)
    values = [v for layer in panel.layers for m in layer.marks for v in (m.x, m.x2)]
    values += [0.0 for layer in panel.layers if layer.kind == "bar"]
    axis = _axis(panel.x, values)
    places = dict(zip(axis.labels, axis.ticks, strict=True))
    (low, low_text), (high, high_text) = ticks[0], ticks[-1]
    ends = places[html.unescape(low_text)], places[html.unescape(high_text)]
    return _between(panel.x, *ends, float(low), float(high))


def _up(svg: str, panel: Panel) -> Place:
    if panel.y.kind == "category":
        rows = _labelled(
            svg, panel.y, r"<text x='[-\d.]+' y='([-\d.]+)'[^>]*text-anchor='end'[^>]*>"
        )
        return lambda value: rows(value) - 4
    if panel.y.hidden:
        top, bottom = re.findall(r"<path d='M[-\d.]+,([\d.]+)V([\d.]+)'", svg)[0]
        return lambda share: float(bottom) + float(share) * (float(top) - float(bottom))
    axis = _axis(panel.y, [m.y for layer in panel.layers for m in layer.marks])
    grid = [float(y) for y in re.findall(r"<path d='M[-\d.]+,([\d.]+)H[\d.]+' stroke='#ddd'", svg)]
    assert len(grid) == len(axis.ticks)
    return _between(panel.y, axis.ticks[0], axis.ticks[-1], grid[0], grid[-1])


def _labelled(svg: str, scale: Scale, text: str) -> Place:
    """By the names that are written beside rows, or below columns."""
    places = {name: at for at, name in re.findall(rf"{text}([^<]*)</text>", svg)}
    return lambda value: float(places[html.escape(str(value))])


def _axis(scale: Scale, values: Sequence[float | str | None]) -> Axis:
    numbers = [v for v in values if isinstance(v, int | float) and _is_shown(v)]
    if scale.kind == "log":
        return log_axis(min(numbers), max(numbers))
    if scale.kind == "count" and min(numbers) >= 0:
        return count_axis(math.ceil(max(numbers)))
    return value_axis(min(numbers), max(numbers))


def _between(scale: Scale, low: float, high: float, start: float, end: float) -> Place:
    def place(value: float | str) -> float:
        at = math.log10(float(value)) if scale.kind == "log" else float(value)
        return start + (at - low) / (high - low) * (end - start)

    return place
