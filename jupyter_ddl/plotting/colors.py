"""Colours and shapes of plots; no two states differ by colour alone."""

from __future__ import annotations

from typing import Final

__all__ = ["MARKS", "SERIES", "STATES"]

SERIES: Final = ("#3b7dd8", "#c2571a", "#2a8f5b", "#8a5cc2", "#b0403f", "#6b7785")

STATES: Final = {
    "complete": "#3b7dd8",
    "pruned": "#a86a00",
    "running": "#2a8f5b",
    "failed": "#c03838",
    "cancelled": "#757575",
    "evicted": "#c2571a",
    "waiting": "#757575",
}

MARKS: Final = {"complete": "circle", "pruned": "cross", "running": "triangle-up"}
