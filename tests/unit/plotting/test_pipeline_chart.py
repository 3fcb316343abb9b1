"""What a pipeline computed, drawn above the ideal; and the sentence about it."""

from __future__ import annotations

import pytest

from jupyter_ddl.ledger.step_parts import pipeline_verdict
from jupyter_ddl.plotting.pipeline import pipeline_chart
from jupyter_ddl.plotting.svg import to_svg
from jupyter_ddl.plotting.vega import to_vega
from jupyter_ddl.protocol.pipeline import PipelineTimes
from jupyter_ddl.ranks.strategies.pipeline.schedules import Action, Span, ideal_spans, times


def measured(n_microbatches: int = 2, late_s: float = 0.0) -> PipelineTimes:
    """Two ranks, the second one late."""
    order = {
        rank: [Action(rank, "forward", each) for each in range(n_microbatches)]
        + [Action(rank, "backward", each) for each in range(n_microbatches)]
        for rank in range(2)
    }
    ideal = ideal_spans(order, 2)
    spans = [
        Span(each.rank, each.action, 3.0 + each.start + late_s * each.rank, 3.0 + each.end)
        for each in ideal
    ]
    return times(
        spans,
        ideal,
        step=4,
        n_ranks=2,
        schedule="gpipe",
        n_microbatches=n_microbatches,
        stages=(),
    )


def test_the_measured_batch_stands_above_the_ideal_one() -> None:
    chart = pipeline_chart(measured(late_s=0.5))
    above, below = (panel.layers[0].marks for panel in chart.panels)
    assert [panel.title for panel in chart.panels] == ["as measured", "at best"]
    assert len(above) == len(below) == 8
    assert min(mark.x for mark in above) == 0.0
    first = next(mark for mark in above if mark.y == "rank 1")
    assert (first.x, first.x2, first.series) == (1.5, 2.0, "forward")
    assert chart.series == ("forward", "backward")
    assert "gpipe with 2 micro-batches on 2 ranks" in chart.text
    colors = to_vega(chart)["concat"][0]["layer"][0]["encoding"]["color"]
    assert (colors["title"], colors["field"]) == (None, "series")
    drawn = to_svg(chart)
    assert drawn.count("<rect") >= 16
    assert ">backward</text>" in drawn
    assert ">complete</text>" not in drawn  # one colour says one thing


def test_without_a_measured_batch_the_plot_says_why() -> None:
    chart = pipeline_chart(None)
    assert not chart.panels
    assert "--strategy pipeline" in chart.note


def test_more_computations_than_can_be_drawn_leave_their_shares() -> None:
    told = measured(n_microbatches=600)
    assert (told.spans, told.ideal) == ((), ())
    assert told.idle_share == pytest.approx(1 / 601)
    assert pipeline_chart(told).note == "too many computations to be drawn"


def test_the_sentence_has_both_idle_shares_and_what_to_try() -> None:
    assert pipeline_verdict(measured()) == (
        "the ranks are idle for 33 % of a batch; gpipe with 2 micro-batches leaves at best 33 %: "
        "try --microbatches 8"
    )
    assert pipeline_verdict(measured(n_microbatches=8)).endswith("leaves at best 11 %")
    assert "or --split where stages take equally long" in pipeline_verdict(measured(late_s=0.9))
