"""Text from users, cells and machines made safe to draw: plain text first, then HTML.

Everything that a view draws and that this package did not write itself goes through here.
"""

from __future__ import annotations

import html
import re
import unicodedata

__all__ = ["esc", "plain", "plain_lines"]

_ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor moves
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC and other strings: titles, links
    r"|\x1b[ -/]*[0-~]"
)
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
