"""The costliest operations of each rank, and where its trace lies (``%runs profile``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from jupyter_ddl.formats import format_percent, format_score
from jupyter_ddl.views.drawing import (
    MUTED,
    ROOT_STYLE,
    Drawing,
    TextColumn,
    columns_text,
    esc,
    plain,
)
from jupyter_ddl.views.trial_table import Column, draw_table

__all__ = ["render_profile"]

_N_OPERATIONS = 10
_N_RANKS = 16
_LIMIT = 60
_HINT = "https://ui.perfetto.dev opens a trace."

_Rows = Sequence[Mapping[str, Any]]


def render_profile(rows: _Rows, *, width: int = 100) -> Drawing:
    """Of each rank the ten costliest operations.

    Parameters
    ----------
    rows : sequence of mapping
        As ``Run.profile`` has them: by trial and rank, the costliest first.
    width : int
        Of the text form in terminal cells.
    """
    groups = [(who, list(each)) for who, each in groupby(rows, key=_whose)]
    shown, n_more = groups[:_N_RANKS], max(0, len(groups) - _N_RANKS)
    return Drawing(html=lambda: _html(shown, n_more), text=lambda: _text(shown, n_more, width))


def _whose(row: Mapping[str, Any]) -> tuple[int, int]:
    return row["trial"], row["rank"]


def _title(who: tuple[int, int], rows: _Rows) -> str:
    return f"trial {who[0]}, rank {who[1]}: {rows[0]['trace']}"


def _cells(rows: _Rows) -> list[tuple[str, tuple[str, ...]]]:
    rows = rows[:_N_OPERATIONS]
    table = [
        ("operation", tuple(plain(row["operation"], _LIMIT) for row in rows)),
        ("share", tuple(format_percent(row["share"]) for row in rows)),
        ("CPU, ms a step", tuple(format_score(row["cpu_ms"]) for row in rows)),
        ("calls a step", tuple(format_score(row["calls"]) for row in rows)),
    ]
    if any(row["device_ms"] for row in rows):
        table.insert(2, ("GPU, ms a step", tuple(format_score(row["device_ms"]) for row in rows)))
    return table


def _html(groups: Sequence[tuple[tuple[int, int], _Rows]], n_more: int) -> str:
    parts = [
        draw_table(
            [Column(heading, tuple(esc(cell, _LIMIT) for cell in cells))
             for heading, cells in _cells(rows)],
            caption=esc(_title(who, rows), 400),
        )
        for who, rows in groups
    ]  # fmt: skip
    notes = " ".join(_notes(n_more))
    return (
        f'<div role="group" aria-label="Profile" style="{ROOT_STYLE}">{"".join(parts)}'
        f'<div style="margin:6px 0 0;font-size:12px;{MUTED}">{esc(notes, 400)}</div></div>'
    )


def _text(groups: Sequence[tuple[tuple[int, int], _Rows]], n_more: int, width: int) -> str:
    lines: list[str] = []
    for who, rows in groups:
        lines += [_title(who, rows)]
        lines += columns_text(
            [TextColumn(heading, cells, right=at > 0) for at, (heading, cells) in
             enumerate(_cells(rows))],
            width,
        )  # fmt: skip
        lines.append("")
    return "\n".join([*lines, *_notes(n_more)])


def _notes(n_more: int) -> list[str]:
    return [_HINT, *([f"{n_more} more ranks: `run.profile` has them."] if n_more else [])]
