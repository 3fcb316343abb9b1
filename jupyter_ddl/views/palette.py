"""Colours that read on light and dark alike, and the styles that all HTML views share.

The sanitizer that JupyterLab applies to untrusted notebooks drops ``<style>``, ``<svg>``,
``role`` and ``aria-*``, and inline styles outside its own list, ``rgba()`` and hex colours
being on it.  So text keeps the colour that it inherits from the theme, quieter text has less
opacity, surfaces are translucent grey, and state colours are of middle lightness (at least
3:1 on white and on #111) and always stand beside a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jupyter_ddl.protocol.snapshot import RunStateName, TrialStateName

__all__ = [
    "ACCENT",
    "AMBER",
    "BLUE",
    "GREEN",
    "GREY",
    "MUTED",
    "ORANGE",
    "RANK_COLORS",
    "RED",
    "ROOT_STYLE",
    "RUN_COLORS",
    "TRIAL_COLORS",
    "box",
    "bullets",
    "dot",
    "pill",
    "tint",
]

GREEN: Final = "#2f9a5f"
BLUE: Final = "#3d82e0"
AMBER: Final = "#bf851c"
ORANGE: Final = "#d9742b"
RED: Final = "#d94a3d"
GREY: Final = "#858585"
ACCENT: Final = BLUE

RUN_COLORS: Final[dict[RunStateName, str]] = {
    "submitted": GREY,
    "starting": BLUE,
    "running": BLUE,
    "complete": GREEN,
    "failed": RED,
    "cancelled": GREY,
}
TRIAL_COLORS: Final[dict[TrialStateName, str]] = {
    "waiting": GREY,
    "running": BLUE,
    "complete": GREEN,
    "pruned": AMBER,
    "failed": RED,
    "cancelled": GREY,
}

RANK_COLORS: Final[dict[str, str]] = {
    "running": BLUE,
    "complete": GREEN,
    "pruned": AMBER,
    "failed": RED,
    "cancelled": GREY,
    "evicted": ORANGE,
    "moved": GREY,
}

ROOT_STYLE: Final = (
    "max-width:1040px;padding:2px 4px 4px;font-size:13px;line-height:1.45;"
    "text-align:left;font-variant-numeric:tabular-nums"
)
MUTED: Final = "opacity:0.68"


def tint(color: str, alpha: float) -> str:
    """A ``#rrggbb`` colour as ``rgba()`` with ``alpha`` between 0 and 1."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{alpha:g})"


def dot(color: str, size_px: int = 8) -> str:
    """A round mark in front of a word; the word says the same without colour."""
    return (
        f'<span aria-hidden="true" style="display:inline-block;width:{size_px}px;'
        f"height:{size_px}px;border-radius:50%;background:{color};"
        f'margin-right:6px;vertical-align:0"></span>'
    )


def pill(color: str, word: str) -> str:
    """A state as a word on a tinted ground; ``word`` is escaped already."""
    return (
        '<span style="display:inline-block;padding:1px 10px 1px 8px;border-radius:10px;'
        f'background:{tint(color, 0.16)};font-size:12px;font-weight:600;white-space:nowrap">'
        f"{dot(color)}{word}</span>"
    )


def box(color: str, content: str, *, role: str = "note") -> str:
    """A tinted block with a coloured edge, for what must not be missed."""
    return (
        f'<div role="{role}" style="margin:10px 0 0;padding:7px 12px;'
        f"border-left:3px solid {color};border-radius:3px;background:{tint(color, 0.1)};"
        f'overflow-wrap:break-word">{content}</div>'
    )


def bullets(label: str, texts: Sequence[str]) -> str:
    """A quiet list; its texts are escaped already.  Empty without any."""
    if not texts:
        return ""
    items = "".join(f'<li style="margin:0">{text}</li>' for text in texts)
    return (
        f'<ul aria-label="{label}" style="margin:10px 0 0;padding:0 0 0 16px;font-size:12px;'
        f'list-style-type:disc;overflow-wrap:break-word;{MUTED}">{items}</ul>'
    )
