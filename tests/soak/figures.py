"""The table of a soak: how soon each kind of kill was survived."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.soak.records import Record, Worked

__all__ = ["Kill", "nearly_all", "rows_of"]


@dataclass
class Kill:
    """One process that was killed, and what came of it."""

    kind: str
    pid: int
    at_s: float
    works: list[Worked]
    """What was under way."""
    runs: list[Record]
    """What had not ended."""
    lost: frozenset[int]
    """The process and everything below it."""
    took_s: float = 0.0
    cpu_s: float = math.nan
    """CPU time of all processes meanwhile; known of a kill by itself."""


def rows_of(kills: Iterable[Kill], kinds: Sequence[str]) -> list[str]:
    """A line for each kind, and one for all, in Markdown."""
    lines = [
        "| killed | kills | back after (median) | 95th percentile | longest "
        "| CPU time of a kill by itself (median, 95th percentile) |",
        "|---|---|---|---|---|---|",
    ]
    took_s: dict[str, list[float]] = defaultdict(list)
    cpu_s: dict[str, list[float]] = defaultdict(list)
    for kill in kills:
        for kind in (kill.kind, "all"):
            took_s[kind].append(kill.took_s)
            if not math.isnan(kill.cpu_s):
                cpu_s[kind].append(kill.cpu_s)
    for kind in (*kinds, "all"):
        if took := took_s[kind]:
            used = f"{_middle(cpu_s[kind]):.1f}, {nearly_all(cpu_s[kind]):.1f} s"
            lines.append(
                f"| {kind} | {len(took)} | {_middle(took):.2f} s "
                f"| {nearly_all(took):.2f} s | {max(took):.2f} s | {used} |"
            )
    return lines


def _middle(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def nearly_all(values: Sequence[float]) -> float:
    """What 95 % are not above; nan of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))] if ordered else math.nan
