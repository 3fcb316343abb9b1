"""A rank group as text: the same facts as its HTML, without the curves."""

from __future__ import annotations

from jupyter_ddl.events.snapshot import RunSnapshot
from jupyter_ddl.views.columns import TextColumn, columns_text
from jupyter_ddl.views.escape import plain
from jupyter_ddl.views.format import format_count
from jupyter_ddl.views.group import (
    metrics_text,
    notices_of,
    place_text,
    rank_counts,
    restart_texts,
    round_text,
    shows_hang,
    size_text,
)

__all__ = ["group_lines", "group_progress", "group_words"]

_N_ROWS = 12
_LINE_LIMIT = 400


def group_progress(snapshot: RunSnapshot) -> str:
    """How many ranks do what, the step, the checkpoint, the round."""
    parts = [size_text(snapshot) or "no rank yet"]
    parts += [f"{format_count(n)} {state}" for state, n in rank_counts(snapshot)]
    step = snapshot.last_step
    if step is not None:
        parts.append(f"step {step:,}")
    if snapshot.checkpoint_step is not None:
        parts.append(f"checkpoint at step {snapshot.checkpoint_step:,}")
    if snapshot.round > 1:
        parts.append(round_text(snapshot))
    return " · ".join(parts)


def group_words(snapshot: RunSnapshot) -> list[str]:
    """The same for one line, what matters most first."""
    step = snapshot.last_step
    metrics = metrics_text(snapshot.ranks[0]) if snapshot.ranks else ""
    return [
        size_text(snapshot),
        "" if step is None else f"step {step:,}",
        plain(metrics, 40) if metrics else "",
        round_text(snapshot) if snapshot.round > 1 else "",
    ]


def group_lines(snapshot: RunSnapshot, width: int) -> list[str]:
    """The hang verdict, a line per rank, restarts and notices."""
    lines = []
    if snapshot.hang is not None and shows_hang(snapshot):
        lines.append(f"Hang: {plain(snapshot.hang.text, _LINE_LIMIT)}")
    if snapshot.ranks:
        lines += ["", *columns_text(_columns(snapshot), width)]
    n_hidden = snapshot.world_size - min(len(snapshot.ranks), _N_ROWS)
    if snapshot.ranks and n_hidden > 0:
        lines.append(f"… {format_count(n_hidden)} more ranks")
    texts = [*restart_texts(snapshot), *notices_of(snapshot)[-5:]]
    return [*lines, *(f"• {plain(text, _LINE_LIMIT)}" for text in texts)]


def _columns(snapshot: RunSnapshot) -> list[TextColumn]:
    rows = snapshot.ranks[:_N_ROWS]
    steps = tuple("" if row.step is None else format_count(row.step) for row in rows)
    columns = [
        TextColumn("rank", tuple(str(row.rank) for row in rows), right=True),
        TextColumn("state", tuple(row.state for row in rows)),
        TextColumn("step", steps, right=True),
        TextColumn("last metrics", tuple(plain(metrics_text(row), 60) for row in rows)),
        TextColumn("host → worker → device", tuple(plain(place_text(row), 60) for row in rows)),
    ]
    return [column for column in columns if any(column.cells)]
