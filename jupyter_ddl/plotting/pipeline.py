"""Stages of a pipeline over time: one batch as it was measured, above what it is at best."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_ddl.formats import format_counted, format_duration, format_percent
from jupyter_ddl.plotting.chart import Chart, Layer, Mark, Panel, Scale
from jupyter_ddl.protocol.pipeline import PipelineSpan, PipelineTimes

__all__ = ["pipeline_chart"]

_KINDS = {
    "forward": "forward",
    "backward": "backward",
    "input": "backward, input",
    "weight": "backward, weights",
}


def pipeline_chart(times: PipelineTimes | None) -> Chart:
    """Draw the last batch that was measured; None: none was."""
    title = "What each rank of the pipeline computes"
    if times is None:
        note = "no batch was measured: it takes --strategy pipeline and a few steps"
        return Chart(title=title, panels=(), note=note)
    ranks = tuple(f"rank {number * times.n_copies}" for number in range(times.n_ranks))
    copies = "" if times.n_copies == 1 else f" (the first of {times.n_copies} copies)"
    used = {span.kind for span in times.spans}
    panels = (
        _panel("as measured", "seconds", ranks, times.spans),
        _panel("at best", "forward passes", ranks, times.ideal),
    )
    n_hidden = "" if times.spans else "too many computations to be drawn"
    return Chart(
        title=title,
        panels=panels if times.spans else (),
        note=n_hidden,
        series=tuple(name for kind, name in _KINDS.items() if kind in used),
        text=(
            f"step {times.step}: {times.schedule} with "
            f"{format_counted(times.n_microbatches, 'micro-batch', 'micro-batches')} on "
            f"{format_counted(times.n_ranks, 'rank')}{copies}, idle for "
            f"{format_percent(times.idle_share)}, at best {format_percent(times.ideal_idle_share)}"
        ),
    )


def _panel(title: str, unit: str, ranks: tuple[str, ...], spans: Sequence[PipelineSpan]) -> Panel:
    first = min((span.start_s for span in spans), default=0.0)
    marks = tuple(
        Mark(
            span.start_s - first,
            ranks[span.rank],
            x2=span.end_s - first,
            series=_KINDS[span.kind],
            label=f"stage {span.stage}, micro-batch {span.microbatch}: {_KINDS[span.kind]}, "
            f"{_length(span, unit)}",
        )
        for span in spans
    )
    return Panel(Scale(unit), Scale("", "category", ranks), (Layer("span", marks),), title=title)


def _length(span: PipelineSpan, unit: str) -> str:
    lasted = span.end_s - span.start_s
    return format_duration(lasted) if unit == "seconds" else f"{lasted:g} {unit}"
