"""Text in cells of a terminal: display width, cutting, bars and aligned columns."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import msgspec

__all__ = ["TextColumn", "bar", "cell_width", "columns_text", "cut", "fits_encoding", "to_ascii"]

_ASCII = str.maketrans({
    "·": "|", "…": "~", "–": "-", "—": "-", "★": "*", "•": "*", "█": "#", "▒": ">", "░": ".",
    "✓": "+", "✗": "x",
})  # fmt: skip

_LEAST_WIDTH = 12
"""A column with less room than this is not worth cutting."""


class TextColumn(msgspec.Struct, frozen=True):
    """A heading and the cleaned text of each cell below it."""

    heading: str
    cells: tuple[str, ...]
    right: bool = False


def cell_width(text: str) -> int:
    """Terminal cells that ``text`` takes: East Asian wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def cut(text: str, width: int) -> str:
    """``text``, or its beginning and ``…``, in at most ``width`` cells."""
    if cell_width(text) <= width:
        return text
    if width <= 0:
        return ""
    used = 0
    for at, char in enumerate(text):
        used += _char_width(char)
        if used > width - 1:
            return text[:at].rstrip() + "…"
    return text


def bar(finished: float, running: float, width: int) -> str:
    """A progress bar of ``width`` cells; the shares are 0 to 1 and add up to at most 1.

    It is full only when everything has finished.
    """
    n_done = width if finished >= 1 else min(width - 1, int(finished * width))
    n_running = min(width - n_done, round(running * width))
    return "█" * n_done + "▒" * n_running + "░" * (width - n_done - n_running)


def columns_text(columns: Sequence[TextColumn], width: int) -> list[str]:
    """Aligned lines, the heading first.

    Columns that do not fit are left out from the end, but the first of them is cut where there
    is some room for it.
    """
    widths = [max(cell_width(text) for text in (c.heading, *c.cells)) for c in columns]
    n_fit = 0
    used = 0
    for column_width in widths:
        used += column_width + (2 if n_fit else 0)
        if used > width and n_fit:
            n_fit += used - column_width + _LEAST_WIDTH <= width
            break
        n_fit += 1
    fitting = list(zip(columns[:n_fit], widths, strict=False))
    n_rows = len(columns[0].cells) if columns else 0
    lines = [_line([(c.heading, w, c.right) for c, w in fitting], width)]
    lines += [_line([(c.cells[at], w, c.right) for c, w in fitting], width) for at in range(n_rows)]
    return lines


def _line(cells: Sequence[tuple[str, int, bool]], width: int) -> str:
    parts = []
    for text, column_width, right in cells:
        gap = " " * (column_width - cell_width(text))
        parts.append(gap + text if right else text + gap)
    return cut("  ".join(parts).rstrip(), width)


def to_ascii(text: str) -> str:
    """Our own marks as ASCII, anything else as ``?`` per cell, so that the width stays."""
    translated = text.translate(_ASCII)
    if translated.isascii():
        return translated
    return "".join(c if c.isascii() else "?" * _char_width(c) for c in translated)


def fits_encoding(encoding: str | None) -> bool:
    """Whether a stream of this encoding can show the marks that the views use."""
    try:
        "█▒░·…–★".encode(encoding or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True
