"""Output of ranks in a cell, grouped by rank: equal ones are shown once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jupyter_ddl.protocol.group import spans

__all__ = ["render_rank_output"]

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
    for ranks, text in _grouped({rank: _settled(text) for rank, text in outputs.items()}):
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


def _settled(text: str) -> str:
    """As a terminal shows it: what follows a carriage return overwrites its line."""
    if "\r" not in text:
        return text.rstrip("\n")
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    return "\n".join(_overwritten(line) for line in lines)


def _overwritten(line: str) -> str:
    shown = ""
    for part in line.split("\r"):
        shown = part + shown[len(part) :]
    return shown
