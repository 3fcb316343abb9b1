"""Into how many micro-batches a pipeline cuts a batch, where the line does not say.  Pure.

More of them leave stages idle for less of the time, and each of them has less to compute by what
it costs to begin: which is better depends on the model, so it is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jupyter_ddl.formats import format_bytes, format_duration
from jupyter_ddl.ranks.metrics import ReportError
from jupyter_ddl.ranks.strategies.pipeline.schedules import check_microbatches

__all__ = [
    "Look",
    "batch_s",
    "choice_text",
    "chosen",
    "cut_text",
    "held_bytes",
    "possible",
    "stage_limits",
]

_PER_RANK = (1, 2, 4, 8)
_GAIN = 0.05
"""More micro-batches must save so much of a batch's time: every message costs, and is not seen."""
_USABLE = 0.8
"""Of the memory that is free; the optimizer's state and gradients are not counted."""
_BACKWARD = 2.0
"""Forward passes that a backward pass takes."""


class Look(NamedTuple):
    """What was measured of one micro-batch, where there are so many of them."""

    n_microbatches: int
    starts: tuple[int, ...]
    """Of all stages, in parts."""
    costs: tuple[float, ...]
    """Seconds of each part, forward."""
    kept_bytes: tuple[int, ...]
    """What each part keeps for the backward pass."""


def possible(
    n_asked: int | None, schedule: str, n_ranks: int, n_samples: int, n_least: int = 1
) -> tuple[int, ...]:
    """Return the numbers of micro-batches to choose from: what was asked for, or several.

    Parameters
    ----------
    n_ranks : int
        Of one pipeline.
    n_least : int
        Samples that a micro-batch should have; where no number gives as many, the lowest is left.

    Raises
    ------
    ReportError
        The batch, or the schedule, has no room for as many.
    """
    if n_asked is not None:
        check_microbatches(n_asked, schedule, n_ranks)
        if n_samples < n_asked:
            raise ReportError(
                f"--microbatches {n_asked} can't be made of a batch of {n_samples} samples; "
                f"expected at most {n_samples}, or a larger batch_size"
            )
        return (n_asked,)
    if n_samples < n_ranks:
        raise ReportError(
            f"--strategy pipeline makes at least one micro-batch for each rank, and the batch has "
            f"{n_samples} samples for {n_ranks} ranks; expected a batch_size of at least {n_ranks}"
        )
    most = n_samples // n_ranks
    found = sorted({n_ranks * min(each, most) for each in _PER_RANK})
    return tuple(each for each in found if -(-n_samples // each) >= n_least) or (found[0],)


def batch_s(look: Look, n_ranks: int) -> float:
    """Seconds of a batch, by the slowest rank, if ranks need not wait for what they send."""
    by_stage = _sums(look.costs, look.starts)
    slowest_s = max(sum(by_stage[rank::n_ranks]) for rank in range(n_ranks))
    stages_each = len(by_stage) / n_ranks
    n_slots = look.n_microbatches + (n_ranks - 1) / stages_each
    return (1 + _BACKWARD) * slowest_s * n_slots


def stage_limits(
    schedule: str, n_ranks: int, n_stages: int, n_microbatches: int, free_bytes: float
) -> tuple[float, ...]:
    """What each stage may keep of one micro-batch, so that all fit into the memory at once."""
    usable = _USABLE * free_bytes
    if schedule == "1f1b":
        return tuple(usable / min(n_microbatches, n_ranks - at) for at in range(n_stages))
    return (usable / (n_microbatches * (n_stages // n_ranks)),) * n_stages


def held_bytes(look: Look, schedule: str, n_ranks: int) -> int:
    """What the fullest rank keeps for backward passes at once; at most, with several stages."""
    by_stage = _sums(look.kept_bytes, look.starts)
    n_all = look.n_microbatches
    if schedule == "1f1b":
        return int(max(min(n_all, n_ranks - at) * kept for at, kept in enumerate(by_stage)))
    return int(max(n_all * sum(by_stage[rank::n_ranks]) for rank in range(n_ranks)))


def chosen(looks: Sequence[Look], schedule: str, n_ranks: int, free_bytes: float) -> Look:
    """The fewest micro-batches that are nearly as fast as any that fit into the memory."""
    held = {look: held_bytes(look, schedule, n_ranks) for look in looks}
    fitting = [look for look in looks if held[look] <= _USABLE * free_bytes]
    if not fitting:
        least = min(held.values())
        fitting = [look for look in looks if held[look] == least]
    limit_s = (1 + _GAIN) * min(batch_s(look, n_ranks) for look in fitting)
    fast = [look for look in fitting if batch_s(look, n_ranks) <= limit_s]
    return min(fast, key=lambda look: look.n_microbatches)


def cut_text(look: Look, fastest: Look, schedule: str, n_ranks: int, free_bytes: float) -> str:
    """One sentence for the record, of a cut that is not the fastest one; empty: it is."""
    if look.starts == fastest.starts:
        return ""
    first, held = (format_bytes(held_bytes(each, schedule, n_ranks)) for each in (fastest, look))
    return (
        f"stages are cut to keep less in memory: with the fastest cut a rank would keep up to "
        f"{first} for backward passes, with this one {held}, of {format_bytes(int(free_bytes))} "
        f"that are free"
    )


def choice_text(
    looks: Sequence[Look], look: Look, schedule: str, n_ranks: int, free_bytes: float
) -> str:
    """One sentence for the record: the number, and what was measured."""
    times = ", ".join(
        f"{format_duration(batch_s(each, n_ranks))} with {each.n_microbatches}" for each in looks
    )
    held = format_bytes(held_bytes(look, schedule, n_ranks))
    return (
        f"--microbatches {look.n_microbatches} is chosen: by forward passes that were timed, a "
        f"batch takes {times}, without what ranks wait for messages; a rank keeps up to {held} for "
        f"backward passes, of {format_bytes(int(free_bytes))} that are free"
    )


def _sums(values: Sequence[float], starts: Sequence[int]) -> list[float]:
    ends = (*starts[1:], len(values))
    return [sum(values[start:end]) for start, end in zip(starts, ends, strict=True)]
