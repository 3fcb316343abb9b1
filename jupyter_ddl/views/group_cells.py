"""A persistent group's record: its state in a line, and its last cells."""

from __future__ import annotations

import time

from jupyter_ddl.events.snapshot import CellRow, RunSnapshot
from jupyter_ddl.views.columns import TextColumn, columns_text
from jupyter_ddl.views.escape import esc, plain
from jupyter_ddl.views.format import format_duration
from jupyter_ddl.views.palette import MUTED
from jupyter_ddl.views.trial_table import Column, draw_table

__all__ = ["cells_html", "cells_text"]

_CODE = 60
_MESSAGE = 80


def cells_text(snapshot: RunSnapshot, width: int) -> str:
    """The group as text."""
    if not snapshot.cells:
        return f"{_head(snapshot)}\nNo cell has been executed."
    columns = [
        TextColumn(heading, tuple(values), heading == "time")
        for heading, values in _columns(snapshot.cells)
    ]
    return "\n".join([_head(snapshot), *columns_text(columns, width)])


def cells_html(snapshot: RunSnapshot) -> str:
    """The group as HTML."""
    head = f'<div style="font-size:12px;{MUTED}">{esc(_head(snapshot))}</div>'
    if not snapshot.cells:
        return f"{head}<div>No cell has been executed.</div>"
    columns = [
        Column(heading, tuple(esc(value) for value in values), wraps=heading == "code")
        for heading, values in _columns(snapshot.cells)
    ]
    return head + draw_table(columns, caption="The last cells")


def _head(snapshot: RunSnapshot) -> str:
    reason = f" ({plain(snapshot.reason, 200)})" if snapshot.reason else ""
    return f"group {snapshot.run_id} · {snapshot.state}{reason} · cluster {snapshot.cluster}"


def _columns(cells: tuple[CellRow, ...]) -> list[tuple[str, list[str]]]:
    return [
        ("cell", [str(cell.number) for cell in cells]),
        ("at", [time.strftime("%H:%M:%S", time.localtime(cell.at_s)) for cell in cells]),
        ("ranks", [",".join(map(str, cell.targets[:8])) for cell in cells]),
        ("outcome", [cell.outcome for cell in cells]),
        ("time", [format_duration(cell.duration_s) for cell in cells]),
        ("code", [plain(cell.source.strip().replace("\n", " ⏎ "), _CODE) for cell in cells]),
        ("failure", [plain(cell.failure, _MESSAGE) for cell in cells]),
    ]
