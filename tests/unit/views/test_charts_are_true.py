"""Whatever a run reports: what charts draw stands where its value is, or is marked as outside."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

import tests.unit.views.view_samples as samples
from jupyter_ddl.plotting.axes import Axis, count_axis, value_axis
from jupyter_ddl.plotting.chart import Chart, Layer, Mark, Panel, Scale
from jupyter_ddl.plotting.svg import to_svg
from jupyter_ddl.views.bundle import LIVE_DIR
from jupyter_ddl.views.group import series_plots
from jupyter_ddl.views.plots import _value_axis, draw_curve, series_of
from tests.unit.views.node_tools import node

N_RUNS = 10_000
replace = msgspec.structs.replace
EMPTY = replace(samples.search(), best=None, curve=(), best_curve=())
TRAINING = samples.group()
_DRIVER = Path(__file__).with_name("live_charts.mjs")


def test_no_mark_of_the_live_view_stands_where_its_value_is_not() -> None:
    command = [node(), str(_DRIVER), str(LIVE_DIR), "21", str(N_RUNS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    names = ["lines", "watched", "replayed", "parallel", "strips", "steps", "timeline", "smooth"]
    assert [each["name"] for each in told] == names
    assert [each for each in told if each["wrong"]] == []
    # And the runs were such that it could have gone wrong.
    marks = {each["name"]: each["nMarks"] for each in told}
    assert min(marks.values()) > 3_000
    assert told[0]["nOutside"] > 10_000


def test_slices_grids_distributions_and_fronts_are_those_of_the_trials() -> None:
    driver = _DRIVER.with_name("live_spread.mjs")
    command = [node(), str(driver), str(LIVE_DIR), "16", "4000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["name"] for each in told] == ["slices", "grid", "distribution", "front"]
    assert [each for each in told if each["wrong"]] == []
    assert min(each["nMarks"] for each in told) > 2_000
    assert told[0]["nOutside"] > 1_000


def _values(rng: random.Random) -> list[float]:
    """A run's values: of some size, with outliers, few of them or all alike."""
    size = 10.0 ** rng.choice([0, 0, 0, rng.randrange(-300, 300), rng.randrange(-10, 10)])
    middle = rng.choice([0.0, 1.0, -1.0, size, 1e6 * size])
    spread = rng.choice([0.0, 1e-16, 1e-9, 1.0, 1.0]) * size
    wildly = rng.choice([0.0, 0.02, 0.2])
    values = [
        (middle + spread * (rng.random() - 0.5))
        * (rng.choice([-1, 1]) * 10.0 ** rng.randrange(12) if rng.random() < wildly else 1.0)
        for _ in range(rng.choice([1, 2, 3, 9, 40]))
    ]
    odd = [1e308, -1e308, 5e-324, 0.0, 1e300, math.nan, math.inf, -math.inf]
    return [rng.choice(odd) if rng.random() < wildly else value for value in values]


def _corners(html: str) -> Iterator[tuple[str, float, float]]:
    """Stroke width and place of every corner of every path but for the grid's."""
    for path, attributes in re.findall(r"<path d='([^']*)'([^>]*)>", html):
        if path.startswith("M0,"):
            continue
        width = re.search(r"stroke-width='([\d.]+)'", attributes)
        x = y = math.nan
        for command, numbers in re.findall(r"([MLHVh])([^MLHVh]*)", path):
            given = [float(each) for each in numbers.split(",")]
            if command in "ML":
                x, y = given
            elif command == "V":
                y = given[0]
            yield width[1] if width else "", x, y


def _check(html: str, points: list[tuple[int, float]], axis: Axis) -> tuple[int, int]:
    """Numbers of points within the axis and outside of it; each is where it belongs."""
    low, high = axis.ticks[0], axis.ticks[-1]
    last_x = float(count_axis(max(1, *(x for x, _ in points))).ticks[-1])
    places = {
        (6 + x / last_x * 988, 144 - (value - low) / (high - low) * 138) for x, value in points
    }
    inside = {(x, y) for x, y in places if 6 <= y <= 144}
    outside = {(x, y) for x, y in places if not 5.95 <= y <= 144.05}
    corners = list(_corners(html))
    for x, y in inside:
        assert any(abs(x - a) <= 0.5 and abs(y - b) <= 0.5 for _, a, b in corners)
    told = re.findall(r"(?:▲|▼) ([\d,]+) (?:above|below) the axis", html)
    assert sum(int(each.replace(",", "")) for each in told) == len(set(points)) - sum(
        axis.holds(y) for _, y in set(points)
    )
    for x, y in outside:
        ends = {0.0, 4.0} if y < 6 else {146.0, 150.0}
        assert any(width == "2" and abs(a - x) <= 0.5 and b in ends for width, a, b in corners)
    # Nothing else is drawn as a value: dots are values, lines end at values or at the edge.
    for width, a, b in corners:
        is_value = any(abs(a - x) <= 0.5 and abs(b - y) <= 0.5 for x, y in places - outside)
        if width in {"4", "5", "7", "9"}:
            assert is_value
        elif width == "1.75":
            assert 5.9 <= b <= 144.1
    return len(inside), len(outside)


def test_no_mark_of_the_saved_views_stands_where_its_value_is_not() -> None:
    rng = random.Random(20)
    n_inside = n_outside = 0
    for _ in range(N_RUNS // 2):
        values = _values(rng)
        curve = tuple(enumerate(values))
        pruned = tuple(x for x, _ in curve if rng.random() < 0.3)
        snapshot = replace(EMPTY, curve=curve, pruned=pruned, mode="max")
        series = series_of(snapshot, color="#000000")
        if series is None:
            assert not any(map(math.isfinite, values))
            continue
        html = draw_curve([series], metric="m", mode="max", inline=True)
        axis = _value_axis([series], larger=True)
        found = _check(html, [*series.points, *series.steps], axis)
        n_inside, n_outside = n_inside + found[0], n_outside + found[1]
    for _ in range(N_RUNS // 2):
        finite = [(x, y) for x, y in enumerate(_values(rng)) if math.isfinite(y)]
        html = series_plots(
            replace(TRAINING, series={"loss": finite}, metrics=("loss",)), live=True, n_points=300
        )
        if len(finite) < 2:
            assert html == ""
            continue
        ys = [y for _, y in finite]
        found = _check(html, finite, value_axis(min(ys), max(ys)))
        n_inside, n_outside = n_inside + found[0], n_outside + found[1]
    assert n_inside > 50_000
    assert n_outside > 1_000


_DOT = re.compile(r"<circle cx='([-\d.]+)' cy='([-\d.]+)'|<path d='M([-\d.]+),([-\d.]+)m-3")


def test_no_mark_of_an_authors_plot_stands_where_its_value_is_not() -> None:
    """Held against the lines of its grid, and the ticks below it."""
    rng = random.Random(22)
    n_marks = n_outside = 0
    for _ in range(2_000):
        values = _values(rng)
        states = [rng.choice(["complete", "pruned"]) for _ in values]
        points = tuple(
            Mark(x, y, state=s) for x, (y, s) in enumerate(zip(values, states, strict=True))
        )
        panel = Panel(Scale("trial", "count"), Scale("m"), (Layer("point", points),))
        svg = to_svg(Chart("t", (panel,)))
        drawn = [
            (float(a or c), float(b or d)) for a, b, c, d in _DOT.findall(svg.split("</g>")[-1])
        ]
        finite = [(x, y) for x, y in enumerate(values) if math.isfinite(y) and abs(y) <= 1e300]
        if not finite:
            assert drawn == []
            continue
        axis = value_axis(min(y for _, y in finite), max(y for _, y in finite))
        grid = [
            float(y) for y in re.findall(r"<path d='M[-\d.]+,([\d.]+)H[\d.]+' stroke='#ddd'", svg)
        ]
        ticks = [float(x) for x in re.findall(r"<path d='M([-\d.]+),[\d.]+v4'", svg)]
        across = count_axis(max(1, len(values) - 1)).ticks
        assert len(grid) == len(axis.ticks)
        low, high = axis.ticks[0], axis.ticks[-1]
        wanted = []
        for x, y in finite:
            at_x = ticks[0] + (x - across[0]) / (across[-1] - across[0]) * (ticks[-1] - ticks[0])
            wanted.append((at_x, grid[0] + (y - low) / (high - low) * (grid[-1] - grid[0])))
        assert len(drawn) == len(wanted)
        n_outside += len(values) - len(finite)
        for a, b in wanted:
            n_marks += 1
            assert any(abs(a - x) <= 0.5 and abs(b - y) <= 0.5 for x, y in drawn)
    assert n_marks > 8_000
    assert n_outside > 500
