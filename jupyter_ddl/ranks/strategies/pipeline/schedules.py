"""Schedules of a pipeline: in which order stages compute, and how long they are idle at best.

Pure: what is measured, and torch's own orders of actions, are given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jupyter_ddl.protocol.pipeline import PipelineSpan, PipelineTimes, SpanKind
from jupyter_ddl.ranks.metrics import ReportError

__all__ = [
    "DEFAULT_SCHEDULE",
    "SCHEDULES",
    "Action",
    "Span",
    "check_microbatches",
    "ideal_spans",
    "idle_share",
    "order_of_single",
    "stages_per_rank",
    "times",
]

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zerobubble")
DEFAULT_SCHEDULE = "1f1b"

_UNITS: Mapping[SpanKind, float] = {"forward": 1.0, "backward": 2.0, "input": 1.0, "weight": 1.0}
_MAX_SPANS = 2000
"""More make no picture, and would fill the record."""


class Action(NamedTuple):
    """What a rank computes at once."""

    stage: int
    kind: SpanKind
    microbatch: int


class Span(NamedTuple):
    """When a rank computed an action; in seconds, or in units of a forward pass."""

    rank: int
    action: Action
    start: float
    end: float


def stages_per_rank(schedule: str, n_parts: int, n_ranks: int) -> int:
    """Return how many stages each rank has.

    Raises
    ------
    ReportError
        The model has fewer parts than stages are needed.
    """
    if n_parts < n_ranks:
        raise ReportError(
            f"--strategy pipeline needs a part of the model for each rank: it has {n_parts}, and "
            f"the group has {n_ranks} ranks; expected at most -n {n_parts}, or a model of more "
            f"layers"
        )
    if schedule == "zerobubble":
        return 2 if n_parts >= 2 * n_ranks else 1
    if schedule != "interleaved":
        return 1
    if n_parts < 2 * n_ranks:
        raise ReportError(
            f"--schedule interleaved has two stages on each rank: it needs {2 * n_ranks} parts on "
            f"{n_ranks} ranks, and the model has {n_parts}; expected --schedule 1f1b, or fewer "
            f"ranks"
        )
    return 2


def check_microbatches(n_asked: int, schedule: str, n_ranks: int) -> None:
    """Refuse a number of micro-batches that a schedule can't run.

    Raises
    ------
    ReportError
        Fewer than ranks under ``1f1b``, or no equal rounds under ``interleaved`` and
        ``zerobubble``.
    """
    if schedule == "gpipe":
        return
    if n_asked < n_ranks:
        raise ReportError(
            f"--schedule {schedule} needs a micro-batch for each rank, and --microbatches is "
            f"{n_asked} for {n_ranks} ranks; expected at least {n_ranks}, or --schedule gpipe"
        )
    n_rounds = n_asked // n_ranks
    if schedule != "1f1b" and n_asked % n_rounds:
        below, above = n_asked - n_asked % n_ranks, n_asked - n_asked % n_ranks + n_ranks
        raise ReportError(
            f"--schedule {schedule} runs micro-batches in {n_rounds} equal rounds, and "
            f"--microbatches is {n_asked}; expected {below} or {above}"
        )


def order_of_single(schedule: str, n_ranks: int, n_microbatches: int) -> dict[int, list[Action]]:
    """Return what each rank computes under ``gpipe`` or ``1f1b``, with one stage on each.

    torch's own ``pipeline_order`` counts the last rank's forward passes of 1F1B from 1 (2.13).
    """
    order = {}
    for rank in range(n_ranks):
        forward = [Action(rank, "forward", each) for each in range(n_microbatches)]
        backward = [Action(rank, "backward", each) for each in range(n_microbatches)]
        n_ahead = n_microbatches if schedule == "gpipe" else min(n_ranks - 1 - rank, n_microbatches)
        alternating = [
            each for pair in zip(forward[n_ahead:], backward, strict=False) for each in pair
        ]
        order[rank] = [*forward[:n_ahead], *alternating, *backward[n_microbatches - n_ahead :]]
    return order


def ideal_spans(order: Mapping[int, Sequence[Action]], n_stages: int) -> tuple[Span, ...]:
    """Run an order of actions where nothing but computing takes time.

    All stages are equal.  A forward pass takes 1, a backward pass 2, each of its halves 1.

    Parameters
    ----------
    order : mapping
        What each rank computes, in its order.

    Raises
    ------
    ValueError
        The order waits for itself.
    """
    ended: dict[Action, float] = {}
    free = dict.fromkeys(order, 0.0)
    following = dict.fromkeys(order, 0)
    spans: list[Span] = []
    n_actions = sum(map(len, order.values()))
    while len(spans) < n_actions:
        n_before = len(spans)
        for rank, actions in order.items():
            while following[rank] < len(actions):
                action = actions[following[rank]]
                ready = _ready(action, ended, n_stages)
                if ready is None:
                    break
                start = max(free[rank], ready)
                free[rank] = ended[action] = start + _UNITS[action.kind]
                spans.append(Span(rank, action, start, free[rank]))
                following[rank] += 1
        if len(spans) == n_before:
            raise ValueError("the order of a schedule waits for itself")
    return tuple(spans)


def _ready(action: Action, ended: Mapping[Action, float], n_stages: int) -> float | None:
    """When what an action needs has ended; None: not yet known."""
    stage, kind, microbatch = action
    if kind == "forward":
        needs = [[Action(stage - 1, "forward", microbatch)]] if stage else []
    elif kind == "weight":
        needs = [[Action(stage, "input", microbatch)]]
    else:
        needs = [[Action(stage, "forward", microbatch)]]
        if stage + 1 < n_stages:
            after: tuple[SpanKind, ...] = ("backward", "input")
            needs.append([Action(stage + 1, each, microbatch) for each in after])
    latest = 0.0
    for either in needs:
        end = next((ended[each] for each in either if each in ended), None)
        if end is None:
            return None
        latest = max(latest, end)
    return latest


def idle_share(spans: Iterable[Span], n_ranks: int) -> float:
    """Return the part of the ranks' time, from the first span to the last, that none fills."""
    each = tuple(spans)
    if not each:
        return 0.0
    lasted = max(span.end for span in each) - min(span.start for span in each)
    busy = sum(span.end - span.start for span in each)
    return 1.0 - busy / (n_ranks * lasted) if lasted > 0 else 0.0


def times(
    spans: Sequence[Span], ideal: Sequence[Span], *, n_ranks: int, **more: Any
) -> PipelineTimes:
    """Measured spans beside the ideal ones, as a run records them."""
    is_few = len(spans) <= _MAX_SPANS
    return PipelineTimes(
        n_ranks=n_ranks,
        idle_share=idle_share(spans, n_ranks),
        ideal_idle_share=idle_share(ideal, n_ranks),
        spans=tuple(map(_recorded, spans)) if is_few else (),
        ideal=tuple(map(_recorded, ideal)) if is_few else (),
        **more,
    )


def _recorded(span: Span) -> PipelineSpan:
    stage, kind, microbatch = span.action
    return PipelineSpan(span.rank, stage, kind, microbatch, span.start, span.end)
