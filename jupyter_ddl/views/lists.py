"""Rows of the list of runs from ledgers, and several clusters in one table."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_ddl.formats import format_count, format_duration
from jupyter_ddl.ledger.reader import RunSummary
from jupyter_ddl.views.columns import TextColumn, columns_text
from jupyter_ddl.views.drawing import Drawing
from jupyter_ddl.views.escape import esc, plain
from jupyter_ddl.views.palette import ROOT_STYLE
from jupyter_ddl.views.tables import ClusterRow, RunRow
from jupyter_ddl.views.trial_table import Column, draw_table

__all__ = ["render_clusters", "run_row"]


def run_row(summary: RunSummary, *, live: bool, now_s: float) -> RunRow:
    """One run of the list.

    Parameters
    ----------
    live : bool
        Whether a controller drives it now.
    now_s : float
        Unix seconds: how long a live run has taken so far.
    """
    end_s = summary.finished_at_s or (now_s if live else None)
    return RunRow(
        run_id=summary.run_id,
        name=summary.name,
        verb=summary.verb,
        state=summary.state,
        progress=(summary.counts.finished if summary.counts else 0, summary.n_trials),
        step=summary.step,
        round=summary.round,
        best=summary.best_value,
        metric=summary.metric,
        created_at_s=summary.created_at_s,
        duration_s=None if end_s is None else max(0.0, end_s - summary.created_at_s),
        cluster=summary.cluster,
        live=live,
    )


def render_clusters(
    rows: Sequence[ClusterRow], *, current: str | None, width: int = 100
) -> Drawing:
    """All running clusters; the one that is in use is marked.

    Parameters
    ----------
    current : str or None
        Name of the cluster that the next cell would use.
    width : int
        Of the text form in terminal cells.
    """
    columns = _columns(tuple(rows), current)
    return Drawing(html=lambda: _html(columns), text=lambda: _text(columns, width))


def _columns(
    rows: tuple[ClusterRow, ...], current: str | None
) -> list[tuple[str, tuple[str, ...], bool]]:
    """(heading, cells, right-aligned)."""
    if not rows:
        return []
    gpus = tuple("" if row.gpus.startswith("n/a") else plain(row.gpus, 40) for row in rows)
    return [
        ("cluster", tuple(plain(row.name, 40) for row in rows), False),
        ("state", tuple(row.state for row in rows), False),
        ("workers", tuple(format_count(row.n_workers) for row in rows), True),
        ("slots", tuple(format_count(row.n_slots) for row in rows), True),
        *([("GPUs", gpus, False)] if any(gpus) else []),
        ("runs", tuple(format_count(row.n_runs) for row in rows), True),
        ("ends if idle in", tuple(format_duration(row.idle_left_s) for row in rows), True),
        ("at the latest in", tuple(format_duration(row.age_left_s) for row in rows), True),
        ("backend", tuple(plain(row.backend, 24) for row in rows), False),
        ("", tuple("in use" if row.name == current else "" for row in rows), False),
    ]


_NONE = "No cluster is running."


def _html(columns: Sequence[tuple[str, tuple[str, ...], bool]]) -> str:
    if not columns:
        return f'<div style="{ROOT_STYLE}">{_NONE}</div>'
    drawn = [
        Column(heading, tuple(esc(cell) for cell in cells), "right" if right else "left")
        for heading, cells, right in columns
    ]
    return f'<div style="{ROOT_STYLE}">{draw_table(drawn, caption="Clusters")}</div>'


def _text(columns: Sequence[tuple[str, tuple[str, ...], bool]], width: int) -> str:
    if not columns:
        return _NONE
    return "\n".join(columns_text([TextColumn(*column) for column in columns], width))
