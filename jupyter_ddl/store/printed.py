"""Printed text as a terminal shows it: a bar that redraws itself is one line, and not hundreds."""

from __future__ import annotations

import re

__all__ = ["bars_of", "settled"]

_MOVES = re.compile(r"\r\n|\n|\r|\x1b\[([0-9;]*)([A-HJKST])")
"""Ends of lines, and what moves the cursor or erases."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Taken out of text that is written over: they have no width."""
_MAX_ROWS_UP = 50
_N_BARS = 4


class _Screen:
    """Lines without an end, and a cursor."""

    def __init__(self) -> None:
        self.lines = [""]
        self.redrawn: set[int] = set()
        """Rows that have been written over."""
        self._row = self._column = 0

    def write(self, text: str) -> None:
        if not text:
            return
        line = self.lines[self._row]
        end = self._column + len(text)
        self.lines[self._row] = line[: self._column].ljust(self._column) + text + line[end:]
        if self._column < len(line):
            self.redrawn.add(self._row)
        self._column = end

    def move(self, token: str, number: str, letter: str) -> None:
        if letter == "A":
            self._row = max(0, self._row - min(int(number or 1), _MAX_ROWS_UP))
        elif letter == "K":
            self.lines[self._row] = self.lines[self._row][: self._column]
        elif token == "\r":
            self._column = 0
        elif not letter:
            self._row, self._column = self._row + 1, 0
            if self._row == len(self.lines):
                self.lines.append("")


def _shown(text: str) -> _Screen:
    screen, at = _Screen(), 0
    text = _COLOURS.sub("", text)
    for found in _MOVES.finditer(text):
        screen.write(text[at : found.start()])
        screen.move(found[0], (found[1] or "").partition(";")[0], found[2] or "")
        at = found.end()
    screen.write(text[at:])
    return screen


def settled(text: str) -> str:
    """The text once all that was written over is gone."""
    if "\r" not in text and "\x1b[A" not in text:
        return text
    screen = _shown(text)
    lines = screen.lines
    return "\n".join(
        line.rstrip(" ") if row in screen.redrawn else line for row, line in enumerate(lines)
    )


def bars_of(text: str) -> str:
    """The last lines of a text that redraw themselves, if it ends in such; else nothing."""
    if "\r" not in text:
        return ""
    screen = _shown(text)
    lines, found = screen.lines, []
    while lines and not lines[-1].strip():
        lines.pop()
    for row in range(len(lines) - 1, max(-1, len(lines) - 1 - _N_BARS), -1):
        if row not in screen.redrawn:
            break
        found.append(lines[row].rstrip())
    return "\n".join(reversed(found))
