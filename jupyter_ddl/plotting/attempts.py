"""What ran where and when: a bar for each attempt at a trial."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jupyter_ddl.formats import format_count, format_counted
from jupyter_ddl.plotting.chart import MAX_MARKS, Chart, Layer, Mark, Scale, panels_of
from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted, Event

__all__ = ["attempts_chart"]


def attempts_chart(events: Iterable[Event], noun: str) -> Chart:
    """Draw the attempts of a run's record; ``noun``: what is tried."""
    spans = _attempts(events)
    kept = spans[-MAX_MARKS:]
    began_s = min((span.start_s for span in spans), default=0.0)
    places = _places(kept)
    marks = tuple(
        Mark(
            span.start_s - began_s,
            place,
            x2=span.end_s - began_s,
            state=span.outcome,
            label=f"{noun} {span.trial}, attempt {span.attempt}: "
            f"{span.outcome}, {span.end_s - span.start_s:.1f} s on {span.worker}",
        )
        for span, place in zip(kept, places, strict=True)
    )
    categories = tuple(sorted(set(places)))
    note = f"the last {format_count(len(kept))} of {format_count(len(spans))} attempts"
    return Chart(
        title="What ran where",
        panels=panels_of(
            Scale("seconds since the first attempt"),
            Scale("", "category", categories),
            [Layer("span", marks)],
        ),
        note=note if len(kept) < len(spans) else "" if spans else "nothing has begun yet",
        text=f"{format_counted(len(spans), 'attempt')} in "
        f"{format_counted(len(categories), 'place')}",
    )


class _Span(NamedTuple):
    trial: int
    attempt: int
    worker: str
    start_s: float
    end_s: float
    outcome: str


def _attempts(events: Iterable[Event]) -> list[_Span]:
    """Attempts in the order in which they began; one that runs goes up to the last event."""
    begun: dict[tuple[int, int], AttemptStarted] = {}
    ended: dict[tuple[int, int], AttemptFinished] = {}
    last_s = 0.0
    for event in events:
        last_s = max(last_s, getattr(event, "at_s", 0.0))
        if isinstance(event, AttemptStarted):
            begun.setdefault((event.trial, event.attempt), event)
        elif isinstance(event, AttemptFinished):
            ended.setdefault((event.trial, event.attempt), event)
    spans = []
    for key, start in begun.items():
        end = ended.get(key)
        end_s = last_s if end is None else max(end.at_s, start.at_s)
        outcome = "running" if end is None else str(end.outcome)
        spans.append(_Span(*key, start.worker, start.at_s, end_s, outcome))
    return sorted(spans, key=lambda span: span.start_s)


def _places(spans: Sequence[_Span]) -> list[str]:
    """A row for each span: a worker has as many as it has had attempts at once."""
    free_s: dict[str, list[float]] = {}
    places = []
    for span in spans:
        rows = free_s.setdefault(span.worker, [])
        at = next((n for n, until_s in enumerate(rows) if until_s <= span.start_s), len(rows))
        if at == len(rows):
            rows.append(0.0)
        rows[at] = span.end_s
        places.append(f"{span.worker} {at + 1}")
    return places
