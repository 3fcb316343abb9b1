"""What every view is drawn with: escaped text, colours, columns, and the pair of HTML and text."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from jupyter_ddl.formats import format_number
from jupyter_ddl.protocol.snapshot import RunStateName, TrialStateName
from jupyter_ddl.protocol.space import (
    Choice,
    Distribution,
    ParamValue,
    RandInt,
    Uniform,
    when_text,
)

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
    "Drawing",
    "TextColumn",
    "bar",
    "box",
    "bullets",
    "cell_width",
    "columns_text",
    "cut",
    "dot",
    "esc",
    "fits_encoding",
    "format_distribution",
    "format_param",
    "format_params",
    "pill",
    "plain",
    "plain_lines",
    "tint",
    "to_ascii",
]


# Text from users, cells and machines made safe to draw: plain text first, then HTML.
#
# Everything that a view draws and that this package did not write itself goes through here.

_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC and other strings: titles, links
    r"|\x1b[ -/]*[0-~]"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_CONTROLS = re.compile(r"\x1b(?!\[[0-9;:]*m)|[\x00-\x08\x0b-\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
"""Not tabs, line ends, and beginnings of colours."""
_LINE_BREAKS = re.compile(r"\r\n|[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")
_COMBINING_RUN = re.compile(r"([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u20d0-\u20ff]{3})"
                            r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u20d0-\u20ff]+")  # fmt: skip
_JOINERS = "\u200c\u200d"
"""Invisible, but Persian, Indic scripts and emoji need them."""


def plain(text: str, limit: int) -> str:
    """One line without control, bidi-override or invisible characters.

    Parameters
    ----------
    text : str
        Anything; line breaks and tabs become spaces, lone surrogates U+FFFD.
    limit : int
        Longest result in characters, at least 1; a longer text ends in ``…``.
    """
    head = _LINE_BREAKS.sub(" ", _ANSI.sub("", text[: limit * 4 + 64]))
    cleaned = _drop_unprintable(head.replace("\t", " ")).strip()
    if len(cleaned) <= limit and len(text) <= limit * 4 + 64:
        return cleaned
    return cleaned[: limit - 1].rstrip() + "…"


def for_terminal(text: str) -> str:
    """What a run has printed, as it was but for what would act on a terminal.

    Colours stay.  Titles, links, the clipboard, cursor moves and answers to queries do not.
    """
    kept = _ANSI.sub(lambda found: found[0] if _COLOUR.fullmatch(found[0]) else "", text)
    return _CONTROLS.sub("", kept)


def plain_lines(text: str, limit: int) -> str:
    """Several lines, cleaned like :func:`plain`; a long text loses its middle.

    A traceback says most at its end, so two thirds of ``limit`` go to the end.
    """
    room = limit * 4 + 64
    if len(text) > 2 * room:
        text = text[:room] + text[-room:]
    broken = _LINE_BREAKS.sub("\n", _ANSI.sub("", text)).replace("\t", "    ")
    cleaned = "\n".join(_drop_unprintable(line).rstrip() for line in broken.split("\n")).strip("\n")
    if len(cleaned) <= limit:
        return cleaned
    n_head = limit // 3
    n_tail = limit - n_head
    n_cut = len(cleaned) - limit
    return f"{cleaned[:n_head]}\n… {n_cut} characters left out …\n{cleaned[-n_tail:]}"


def esc(text: str, limit: int = 200) -> str:
    """Clean and escape one line for an HTML text node or a quoted attribute."""
    return html.escape(plain(text, limit), quote=True)


def _drop_unprintable(line: str) -> str:
    if line.isascii() and line.isprintable():
        return line
    kept = "".join(_kept(char) for char in line)
    return _COMBINING_RUN.sub(r"\1", kept)


def _kept(char: str) -> str:
    if char.isprintable() or char in _JOINERS:
        return char
    category = unicodedata.category(char)
    if category == "Zs":
        return " "
    return "\ufffd" if category == "Cs" else ""


# Colours that read on light and dark alike, and the styles that all HTML views share.
#
# The sanitizer that JupyterLab applies to untrusted notebooks drops ``<style>``, ``<svg>``,
# ``role`` and ``aria-*``, and inline styles outside its own list, ``rgba()`` and hex colours
# being on it.  So text keeps the colour that it inherits from the theme, quieter text has less
# opacity, surfaces are translucent grey, and state colours are of middle lightness (at least
# 3:1 on white and on #111) and always stand beside a word.

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


# Parameters and search spaces as people read them; numbers are written by ``formats``.

_EXACT = 2**53
"""A browser knows whole numbers below this one exactly."""


def format_param(value: ParamValue, limit: int = 24) -> str:
    """A parameter: whole numbers in full, others to four digits, text cleaned and cut."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, str):
        return plain(value, limit)
    if abs(value) < _EXACT and value == int(value):
        return str(int(value))
    return format_number(value).replace(",", "")


def format_params(params: Mapping[str, ParamValue], limit: int = 24, n_shown: int = 8) -> str:
    """Parameters in one line, ``lr=0.01, width=128``; those past ``n_shown`` as a count."""
    parts = [
        f"{plain(name, limit)}={format_param(value, limit)}"
        for name, value in list(params.items())[:n_shown]
    ]
    if len(params) > n_shown:
        parts.append(f"+{len(params) - n_shown} more")
    return ", ".join(parts)


def format_distribution(dist: Distribution) -> str:
    """A distribution as the cell declares it, ``loguniform(0.0001, 0.1)``, and its branch."""
    branch = f" if {plain(when_text(dist.when), 80)}" if dist.when else ""
    return _format_call(dist) + branch


def _format_call(dist: Distribution) -> str:
    if isinstance(dist, Choice):
        shown = ", ".join(format_param(value, 16) for value in dist.values[:8])
        return f"choice({shown}{', …' if len(dist.values) > 8 else ''})"
    if isinstance(dist, Uniform):
        bounds = f"{format_param(dist.low)}, {format_param(dist.high)}"
        name = "loguniform" if dist.log else "uniform"
        return f"{name}({bounds}{'' if dist.step is None else f', step={format_param(dist.step)}'})"
    return _format_randint(dist)


def _format_randint(dist: RandInt) -> str:
    step = "" if dist.step == 1 else f", step={dist.step}"
    return f"randint({dist.low}, {dist.high}{step}{', log=True' if dist.log else ''})"


# Text in cells of a terminal: display width, cutting, bars and aligned columns.

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


class Drawing:
    """HTML for notebooks and text for terminals; a value at the end of a cell shows itself.

    Parameters
    ----------
    html : callable
        Returns the HTML; called when a front end asks for it.
    text : callable
        Returns the text.
    """

    def __init__(self, html: Callable[[], str], text: Callable[[], str]) -> None:
        self._html = html
        self._text = text

    def _repr_html_(self) -> str:
        return self._html()

    def _repr_mimebundle_(
        self,
        include: object = None,
        exclude: object = None,
    ) -> dict[str, str]:
        return {"text/html": self._html(), "text/plain": self._text()}

    def __repr__(self) -> str:
        return self._text()
