"""The sentences of a rank group that HTML and text share: ranks, rounds, restarts."""

from __future__ import annotations

import math
from collections import Counter

from jupyter_ddl.events.snapshot import RankRow, RestartRow, RunSnapshot
from jupyter_ddl.views.format import format_count, format_counted, format_number
from jupyter_ddl.views.summary import is_final

__all__ = [
    "is_group",
    "metrics_text",
    "notices_of",
    "place_text",
    "progress_text",
    "rank_counts",
    "restart_texts",
    "round_text",
    "series_shown",
    "shows_hang",
    "size_text",
    "stacks_text",
]

_MAX_METRICS = 3


def is_group(snapshot: RunSnapshot) -> bool:
    """Whether the run is one rank group, drawn by its ranks and not by its trials."""
    return snapshot.verb == "ddp"


def size_text(snapshot: RunSnapshot) -> str:
    """How many ranks there are; empty before the first round."""
    n = snapshot.world_size
    return format_counted(n, "rank") if n else ""


def round_text(snapshot: RunSnapshot, number: int | None = None) -> str:
    """``round 2 of 4``; without the total once losses of workers have gone beyond it."""
    number = snapshot.round if number is None else number
    if number <= 0:
        return ""
    return f"round {number}" + (
        f" of {snapshot.max_rounds}" if number <= snapshot.max_rounds and number > 1 else ""
    )


def progress_text(step: int | None, number: int) -> str:
    """How far a ddp run is where lists tell it: ``step 640, round 2``; empty before a report."""
    parts = ["" if step is None else f"step {format_count(step)}"]
    parts.append(f"round {number}" if number > 1 else "")
    return ", ".join(part for part in parts if part)


def rank_counts(snapshot: RunSnapshot) -> list[tuple[str, int]]:
    """Ranks per state, running ones first; only those that the snapshot lists."""
    counts: Counter[str] = Counter(row.state for row in snapshot.ranks)
    order = ("running", "complete", "failed", "evicted", "pruned", "moved", "cancelled")
    return [(state, counts[state]) for state in order if counts[state]]


def metrics_text(row: RankRow) -> str:
    """A rank's last metrics in one line, not cleaned."""
    shown = list(row.metrics.items())
    text = ", ".join(f"{name} {format_number(value)}" for name, value in shown[:_MAX_METRICS])
    return text + (f", +{len(shown) - _MAX_METRICS} more" if len(shown) > _MAX_METRICS else "")


def place_text(row: RankRow) -> str:
    """Where a rank runs, not cleaned."""
    return " → ".join(part for part in (row.host, row.worker, row.device) if part)


def restart_texts(snapshot: RunSnapshot) -> list[str]:
    """One sentence per restart, not cleaned: which rank, what it did, and where it went on."""
    return [_restart(snapshot, row) for row in snapshot.restarts]


def _restart(snapshot: RunSnapshot, row: RestartRow) -> str:
    who = "the group" if row.rank is None else f"rank {row.rank}"
    ended = f"round {row.round}: {who} {row.cause}"
    if row.is_over:
        went_on = "began anew" if row.step is None else f"resumed from step {row.step:,}"
        return f"{ended}; {round_text(snapshot, row.round + 1)} {went_on}"
    return ended if is_final(snapshot) else f"{ended}; the next round is being prepared"


def series_shown(snapshot: RunSnapshot, n_shown: int) -> list[tuple[str, list[tuple[int, float]]]]:
    """The metrics to draw, with finite points: a loss first, else in the order of reporting."""
    finite = {
        name: [(step, value) for step, value in points if math.isfinite(value)]
        for name, points in snapshot.series.items()
    }
    shown = [(name, points) for name, points in finite.items() if len(points) > 1]
    shown.sort(key=lambda one: "loss" not in one[0].lower())
    return shown[:n_shown]


def shows_hang(snapshot: RunSnapshot) -> bool:
    """Whether a hang is worth a card: not once the run has done its work, or failed by it."""
    return snapshot.hang is not None and snapshot.state != "complete" and not _failed_by(snapshot)


def stacks_text(snapshot: RunSnapshot) -> str:
    """Where the stacks of a run that failed by a hang are; empty of another one.  Not cleaned."""
    if snapshot.hang is None or not _failed_by(snapshot) or not snapshot.hang.stacks_file:
        return ""
    return f"Stacks of all ranks: {snapshot.hang.stacks_file} in the run's directory"


def _failed_by(snapshot: RunSnapshot) -> bool:
    """Whether the run's first cause is its hang, so that one of them is told."""
    return snapshot.failure is not None and snapshot.failure.kind == "hang"


def notices_of(snapshot: RunSnapshot) -> tuple[str, ...]:
    """Notices but for what the restarts and the hang card tell already."""
    told = {f"restarted from the checkpoint at step {row.step}" for row in snapshot.restarts}
    hang = snapshot.hang if shows_hang(snapshot) or _failed_by(snapshot) else None
    return tuple(
        text
        for text in snapshot.notices
        if text not in told and (hang is None or text[:80] != hang.text[:80])
    )
