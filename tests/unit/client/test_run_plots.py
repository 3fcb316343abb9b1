"""Plots of a run's record: its values, in two forms, and a sentence where there is nothing."""

from __future__ import annotations

import json
import math
import re
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import JupyterDDLError, OptionError
from jupyter_ddl.plotting.chart import MAX_MARKS, Plot
from jupyter_ddl.protocol.events import AttemptStarted, RunStarted, TrialCreated
from tests.leaks import Home
from tests.unit.recorded_runs import (
    BEGAN_S,
    events_of_search,
    params_of,
    record_search,
    value_of,
)

VEGA = "application/vnd.vegalite.v5+json"
ALL = ("history", "importance", "parallel", "slice", "timeline", "curves")


def bundle(plot: Plot) -> dict[str, Any]:
    """What a notebook gets; the SVG is well-formed and runs nothing, the JSON is JSON."""
    found = plot._repr_mimebundle_()
    root = ElementTree.fromstring(found["image/svg+xml"])
    assert root.tag.endswith("svg")
    assert root.get("aria-label")
    assert not re.search(r"<script|javascript:|\son\w+=|href", found["image/svg+xml"])
    assert "\n" not in found["text/plain"]
    if VEGA in found:
        assert json.loads(json.dumps(found[VEGA], allow_nan=False)) == found[VEGA]
    return found


def layers(plot: Plot, kind: str) -> list[dict[str, Any]]:
    """Rows of the layers of a mark, of all panels."""
    spec = plot.vega
    panels = spec.get("concat", [spec])
    chosen = [each for p in panels for each in p["layer"] if each["mark"]["type"] == kind]
    return [row for layer in chosen for row in layer["data"]["values"]]


def test_each_plot_comes_as_vega_lite_and_as_svg(home: Home) -> None:
    record_search("plot-1", name="hand")
    run = Run("plot-1")
    for name in ALL:
        found = bundle(getattr(run.plot, name)())
        assert set(found) == {VEGA, "image/svg+xml", "text/plain"}
        assert found[VEGA]["$schema"].endswith("/vega-lite/v5.json")
    assert "history()" in repr(run.plot)


def test_history_has_the_records_values_and_tells_pruned_trials_apart(home: Home) -> None:
    record_search("plot-2")
    plot = Run("plot-2").plot.history()
    points = {row["x"]: (row["y"], row["state"]) for row in layers(plot, "point")}
    states = {n: "pruned" if n % 5 == 4 else "complete" for n in range(30) if n != 7}
    assert points == {n: (value_of(n), state) for n, state in states.items()}
    best, seen = -math.inf, {}
    for n, state in states.items():
        if state == "complete" and value_of(n) > best:
            best = seen[n] = value_of(n)
    line = [(row["x"], row["y"]) for row in layers(plot, "line")]
    assert line == [*seen.items(), (29, best)]
    assert plot.svg.count("<circle") == 24  # 23 trials and the legend
    assert plot.svg.count("m-3,-3l6,6") == 7
    shapes = next(each for each in plot.vega["layer"] if each["mark"]["type"] == "point")
    assert shapes["encoding"]["shape"]["scale"]["range"] == ["circle", "cross"]


def test_several_runs_share_a_chart(home: Home) -> None:
    record_search("plot-3", name="first")
    record_search("plot-4", events_of_search(5), name="second")
    record_search("plot-5", events_of_search(5), name="second")
    first = Run("plot-3")
    for plot in (first.plot.history(runs=["plot-4"]), first.plot.history(runs=[Run("plot-4")])):
        assert plot.chart.series == ("first", "second")
        rows = [row for row in layers(plot, "point") if row["series"] == "second"]
        assert [row["y"] for row in rows] == [value_of(n) for n in range(5)]
    twice = first.plot.curves("loss", runs=["plot-4", "plot-5"])
    assert twice.chart.series == ("first", "second", "plot-5")
    assert {row["series"] for row in layers(twice, "line")} == {"first", "second", "plot-5"}


def test_curves_are_those_that_were_reported(home: Home) -> None:
    record_search("plot-6")
    rows = layers(Run("plot-6").plot.curves("loss"), "line")
    found = [(row["x"], row["y"]) for row in rows if row["line"] == "12"]
    assert found == [(step, 2.0 - value_of(12) - step) for step in range(4)]
    assert {row["line"] for row in rows if row["state"] == "pruned"} == {
        str(n) for n in range(4, 30, 5)
    }
    assert Run("plot-6").plot.curves().chart.title == "val_acc over the steps"


def test_slices_have_a_panel_for_each_parameter(home: Home) -> None:
    record_search("plot-7")
    plot = Run("plot-7").plot.slice()
    lr, act, width = plot.vega["concat"]
    assert lr["layer"][0]["encoding"]["x"]["scale"] == {"type": "log"}
    assert act["layer"][0]["encoding"]["x"]["type"] == "nominal"
    rows = width["layer"][0]["data"]["values"]
    assert [row["x"] for row in rows] == [params_of(n)["width"] for n in range(30) if n != 7]
    only = Run("plot-7").plot.slice(["width"])
    assert len(only.chart.panels) == 1


def test_parallel_lines_go_through_each_trials_values(home: Home) -> None:
    record_search("plot-8")
    plot = Run("plot-8").plot.parallel()
    rows = [row for row in layers(plot, "line") if row["line"] == "10"]
    lows = {"width": (8, 37), "val_acc": (min(map(value_of, range(30))), 1.0)}
    for axis, value in (("width", 18), ("val_acc", value_of(10))):
        low, high = lows[axis]
        (row,) = [row for row in rows if row["x"] == axis]
        known = [value_of(n) for n in range(30) if n != 7]
        low, high = (8, 37) if axis == "width" else (min(known), max(known))
        assert row["y"] == pytest.approx((value - low) / (high - low))


def test_the_timeline_has_every_attempt_where_it_ran(home: Home) -> None:
    events = events_of_search(6)
    late = AttemptStarted(0, 2, BEGAN_S + 3.0, worker="w0", pid=9, log="a.log", log_start=0)
    record_search("plot-9", [*events, late], ends=False)
    rows = layers(Run("plot-9").plot.timeline(), "bar")
    assert len(rows) == 7
    first = next(row for row in rows if row["label"].startswith("trial 0, attempt 1"))
    assert (first["x"], first["x2"], first["y"]) == (0.0, 1.5, "w0 1")
    again = next(row for row in rows if row["label"].startswith("trial 0, attempt 2"))
    assert (again["state"], again["x"], again["y"]) == ("running", 3.0, "w0 2")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p.curves("val_ac"), r"only val_acc, loss; did you mean 'val_acc'\?"),
        (lambda p: p.slice(["witdh"]), r"no parameter 'witdh'.*did you mean 'width'\?"),
        (lambda p: p.parallel("lrr"), r"did you mean 'lr'\?"),
        (lambda p: p.history(runs=["plot-1x"]), "plot-1x"),
        (lambda p: p.history(runs="plot-run"), "no objective to plot"),
        (lambda p: p.history(runs=["plot-other"]), "judged by loss"),
    ],
)
def test_bad_input_is_one_line(home: Home, make: Any, message: str) -> None:
    record_search("plot-10")
    record_search("plot-run", [], line="run", cell="x = 1")
    record_search(
        "plot-other", line="search --metric loss --mode min", cell="a = uniform(0, 1)\nloss = a"
    )
    with pytest.raises(JupyterDDLError, match=message) as caught:
        make(Run("plot-10").plot)
    assert "\n" not in str(caught.value)


def test_what_is_no_search_says_so(home: Home) -> None:
    record_search("plot-11", [], line="run", cell="x = 1")
    run = Run("plot-11")
    for name in ("history", "importance", "parallel", "slice"):
        with pytest.raises(OptionError, match=r"no objective to plot|no search space"):
            getattr(run.plot, name)()
    assert "nothing was reported yet" in repr(run.plot.curves())


def test_where_there_is_nothing_a_sentence_says_why(home: Home) -> None:
    record_search("plot-12", [RunStarted(BEGAN_S, 1, 2, 2, 42)], ends=False)
    created = [TrialCreated(0, params_of(0), BEGAN_S)]
    record_search("plot-13", created, ends=False)
    for run_id in ("plot-12", "plot-13"):
        for name in ALL:
            found = bundle(getattr(Run(run_id).plot, name)())
            assert VEGA not in found
            assert re.search(r"yet|needs 10 complete trials", found["text/plain"]), name
            assert re.search(r"yet|needs 10 complete trials", found["image/svg+xml"]), name


def test_values_that_are_no_numbers_are_counted(home: Home) -> None:
    record_search("plot-14", events_of_search(values=[math.nan, math.inf, 1e308, 0.5, 0.5, 0.7]))
    plot = Run("plot-14").plot.history()
    assert [row["y"] for row in layers(plot, "point")] == [0.5, 0.5, 0.7]
    assert "3 values are no finite number" in plot.chart.note
    for name in ALL:
        bundle(getattr(Run("plot-14").plot, name)())
    record_search("plot-15", events_of_search(values=[math.nan] * 3))
    assert "3 values are no finite number" in repr(Run("plot-15").plot.history())


def test_one_value_and_one_trial_are_drawn(home: Home) -> None:
    record_search("plot-16", events_of_search(1))
    record_search("plot-17", events_of_search(values=[0.5] * 15))
    for run_id in ("plot-16", "plot-17"):
        for name in ALL:
            bundle(getattr(Run(run_id).plot, name)())
    assert "val_acc is 0.5000 in all" in repr(Run("plot-17").plot.importance())


def test_names_that_mean_something_to_a_page_are_names(home: Home) -> None:
    cell = "__proto__ = uniform(0, 1)\nval_acc = __proto__\nreport(val_acc=val_acc)"
    events = [
        msgspec.structs.replace(each, params={"__proto__": each.trial / 30})
        if isinstance(each, TrialCreated)
        else each
        for each in events_of_search()
    ]
    record_search("plot-18", events, cell=cell, name="</text><script>'\x00\u202e")
    for name in ALL:
        found = bundle(getattr(Run("plot-18").plot, name)())
        assert VEGA in found


def test_large_searches_are_thinned_and_say_so(home: Home) -> None:
    n_trials = MAX_MARKS + 1000
    record_search("plot-19", events_of_search(n_trials, n_steps=0))
    plot = Run("plot-19").plot.history()
    points = layers(plot, "point")
    assert len(points) == MAX_MARKS
    assert points[-1]["x"] == n_trials - 1
    assert "5,000 of 5,999 trials" in plot.chart.note
    assert "trials" in Run("plot-19").plot.parallel().chart.note


def test_a_plot_can_be_saved(home: Home, tmp_path: Any) -> None:
    record_search("plot-20")
    plot = Run("plot-20").plot.history()
    plot.save(tmp_path / "a.svg")
    plot.save(tmp_path / "a.json")
    assert (tmp_path / "a.svg").read_text() == plot.svg
    assert json.loads((tmp_path / "a.json").read_text()) == plot.vega
