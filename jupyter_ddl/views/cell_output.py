"""Says one line, or one line that grows, in the output of a cell."""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Mapping
from typing import Final

from jupyter_ddl.protocol.group import spans
from jupyter_ddl.store.printed import settled
from jupyter_ddl.views.display import in_notebook

__all__ = ["Phases", "render_rank_output", "say", "say_note"]


# Output of ranks in a cell, grouped by rank: equal ones are shown once.

_MAX_CHARS: Final = 1_000_000


def render_rank_output(
    outputs: Mapping[int, str],
    texts: Mapping[int, str | None],
    cell_number: int | None = None,
) -> str:
    """Blocks such as ``[0-3] hello`` and ``Out[1:12]: 3``; empty when there is nothing to show.

    Parameters
    ----------
    outputs : mapping of int to str
        What each rank has printed.
    texts : mapping of int to (str or None)
        ``repr`` of the cell's value on each rank.
    cell_number : int, optional
        The ``n`` of ``In [n]``.
    """
    lines: list[str] = []
    printed = {rank: settled(text).rstrip("\n") for rank, text in outputs.items()}
    for ranks, text in _grouped(printed):
        lines += _block(f"[{spans(ranks, ',')}] ", text)
    suffix = "" if cell_number is None else f":{cell_number}"
    for ranks, text in _grouped(texts):
        label = f"Out[{spans(ranks, ',')}{suffix}]: "
        lines += [label, *text.split("\n")] if "\n" in text else [label + text]
    return "\n".join(lines)[:_MAX_CHARS]


def _grouped(texts: Mapping[int, str | None]) -> list[tuple[list[int], str]]:
    """Ranks by equal text, in the order of the first rank."""
    found: dict[str, list[int]] = {}
    for rank in sorted(texts):
        text = texts[rank]
        if text:
            found.setdefault(text, []).append(rank)
    return [(ranks, text) for text, ranks in found.items()]


def _block(label: str, text: str) -> list[str]:
    indent = " " * len(label)
    first, *others = text.split("\n")
    return [label + first, *(indent + line if line else "" for line in others)]


def say(text: str) -> None:
    """Write a line to standard output, whatever that is for the cell that runs."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def say_note(text: str) -> None:
    """Write a sentence that is worth knowing."""
    say(f"Note: {text.rstrip('.')}.")


class Phases:
    """The steps of a start on one line, each appended when it begins.

    In a notebook the line is one output that is redrawn: what is written in pieces to standard
    output is saved in pieces, each on a line of its own.  Elsewhere the line grows.
    """

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._line = ""
        self._display_id = f"ddl-{uuid.uuid4().hex}" if in_notebook() else None

    def __call__(self, text: str) -> None:
        """Append a step."""
        self._append(f" · {text}" if self._line else text[:1].upper() + text[1:])

    def done(self, text: str) -> None:
        """Append the last step with the time that all took, and end the line."""
        if self._line:
            self._append(f" · {text} ({time.monotonic() - self._began_s:.1f} s)")
            self._end()

    def __enter__(self) -> Phases:
        return self

    def __exit__(self, *_error: object) -> None:
        self._end()  # an error comes below, on a line of its own

    def _append(self, piece: str) -> None:
        first = not self._line
        self._line += piece
        if self._display_id is None:
            sys.stdout.write(piece)
            sys.stdout.flush()
            return
        from IPython.display import display, update_display

        show = display if first else update_display
        show({"text/plain": self._line}, raw=True, display_id=self._display_id)

    def _end(self) -> None:
        if self._line and self._display_id is None:
            say("")
        self._line = ""
