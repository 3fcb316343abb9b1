from __future__ import annotations

import itertools

import msgspec

import tests.unit.views.view_samples as samples
from jupyter_ddl.protocol.snapshot import BestTrial
from jupyter_ddl.views.plots import draw_curve, series_of

replace = msgspec.structs.replace
EMPTY = replace(samples.search(), best=None, curve=(), best_curve=())


def test_a_run_without_any_objective_has_no_curve() -> None:
    assert series_of(EMPTY, color="#000000") is None
    nan = replace(EMPTY, curve=((0, float("nan")), (1, float("inf"))))
    assert series_of(nan, color="#000000") is None


def test_a_pruned_trial_is_a_dot_but_never_the_best() -> None:
    pruned_leads = replace(
        EMPTY,
        curve=((0, 0.5), (1, 0.99), (2, 0.7)),
        best_curve=((1, 0.5), (3, 0.7)),
        best=BestTrial(number=2, params={}, value=0.7),
    )
    series = series_of(pruned_leads, color="#000000")
    assert series is not None
    assert series.points == ((0, 0.5), (1, 0.99), (2, 0.7))
    assert series.steps == ((0, 0.5), (2, 0.7))


def test_dots_without_a_best_are_drawn_without_a_line() -> None:
    only_pruned = replace(EMPTY, curve=((0, 0.5), (1, 0.6)))
    series = series_of(only_pruned, color="#000000")
    assert series is not None
    assert series.steps == ()
    assert "best" not in draw_curve([series], metric="m", mode="max", inline=True).split("svg")[1]


def test_the_best_trial_has_its_step_at_its_own_number() -> None:
    thinned = replace(
        EMPTY,
        curve=((0, 0.5), (8, 0.6)),
        best_curve=((1, 0.5), (3, 0.7)),
        best=BestTrial(number=5, params={}, value=0.7),
    )
    series = series_of(thinned, color="#000000")
    assert series is not None
    assert series.steps == ((0, 0.5), (5, 0.7))


def test_lower_is_better_for_a_metric_that_is_minimised() -> None:
    falling = replace(
        EMPTY,
        mode="min",
        curve=((0, 0.5), (1, 0.4), (2, 0.6)),
        best_curve=((1, 0.5), (2, 0.4)),
        best=BestTrial(number=1, params={}, value=0.4),
    )
    series = series_of(falling, color="#000000")
    assert series is not None
    assert series.steps == ((0, 0.5), (1, 0.4))


def test_thousands_of_points_are_thinned_evenly() -> None:
    crowded = replace(EMPTY, curve=tuple((k, k / 1000) for k in range(1000)))
    series = series_of(crowded, color="#000000", n_points=300)
    assert series is not None
    assert len(series.points) == 300
    gaps = {b - a for (a, _), (b, _) in itertools.pairwise(series.points)}
    assert gaps == {3, 4}
