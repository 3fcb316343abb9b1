"""A rank group as HTML: its ranks and their places, what they report, why rounds ended."""

from __future__ import annotations

from collections.abc import Callable

from jupyter_ddl.events.snapshot import RankRow, RunSnapshot
from jupyter_ddl.views.axes import count_axis, value_axis
from jupyter_ddl.views.escape import esc
from jupyter_ddl.views.format import format_count, format_number
from jupyter_ddl.views.group import (
    metrics_text,
    notices_of,
    place_text,
    rank_counts,
    restart_texts,
    round_text,
    series_shown,
    shows_hang,
    size_text,
)
from jupyter_ddl.views.palette import (
    ACCENT,
    AMBER,
    MUTED,
    RANK_COLORS,
    box,
    dot,
)
from jupyter_ddl.views.plot import draw_plot, draw_strokes, point_at
from jupyter_ddl.views.summary import times
from jupyter_ddl.views.trial_table import Column, draw_table

__all__ = ["group_caption", "group_notes", "hang_card", "rank_table", "series_plots"]

_N_PLOTS = 2


def group_caption(snapshot: RunSnapshot, now_s: float) -> str:
    """One line: how many ranks do what, the step, the round, the time."""
    words = [f'<b style="font-weight:600">{size_text(snapshot) or "no rank yet"}</b>']
    words += [
        f'<span style="white-space:nowrap">{dot(RANK_COLORS[state], 7)}'
        f"{format_count(n)} {state}</span>"
        for state, n in rank_counts(snapshot)
    ]
    step = snapshot.last_step
    if step is not None:
        words.append(f"step {step:,}")
    if snapshot.checkpoint_step is not None:
        words.append(f"checkpoint at step {snapshot.checkpoint_step:,}")
    if snapshot.round > 1:
        words.append(round_text(snapshot))
    left = "".join(f"<span>{word}</span>" for word in words)
    return (
        '<div style="display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 18px;'
        f'margin:7px 0 0;font-size:12px"><div style="display:flex;flex-wrap:wrap;gap:0 12px">'
        f'{left}</div><div style="{MUTED}">{" · ".join(times(snapshot, now_s))}</div></div>'
    )


def hang_card(snapshot: RunSnapshot, limit: int) -> str:
    """Who kept the others waiting, at which line, and where the stacks are."""
    hang = snapshot.hang
    if hang is None or not shows_hang(snapshot):
        return ""
    line = "" if hang.line is None else f' <span style="{MUTED}">cell line {hang.line}</span>'
    stacks = (
        f'<div style="font-size:12px;{MUTED}">Stacks of all ranks: '
        f"<code>{esc(hang.stacks_file, 120)}</code> in the run's directory</div>"
        if hang.stacks_file
        else ""
    )
    head = f'<b style="font-weight:600">Hang: rank {hang.rank}</b>{line}'
    return box(AMBER, f"<div>{head}</div><div>{esc(hang.text, limit)}</div>{stacks}")


def series_plots(snapshot: RunSnapshot, *, live: bool, n_points: int) -> str:
    """Rank 0's metrics over the steps, side by side where there is room."""
    shown = series_shown(snapshot, _N_PLOTS)
    if not shown:
        return ""
    plots = "".join(_plot(name, points, live=live, n_points=n_points) for name, points in shown)
    return f'<div style="display:flex;flex-wrap:wrap;gap:0 20px;max-width:860px">{plots}</div>'


def _plot(name: str, points: list[tuple[int, float]], *, live: bool, n_points: int) -> str:
    stride = -(-len(points) // n_points)
    points = [*points[:-1:stride], points[-1]]
    values = [value for _, value in points]
    x_axis = count_axis(max(1, points[-1][0]))
    y_axis = value_axis(min(values), max(values))
    first, *others = (point_at(x, y, x_axis, y_axis) for x, y in points)
    path = f"M{first}" + "".join(f"L{place}" for place in others)
    end = f"M{others[-1] if others else first}h0"
    strokes = [(path, "stroke-width='1.75' stroke-linejoin='round'"), (end, "stroke-width='7'")]
    label, last = esc(name, 40), format_number(values[-1])
    key = (
        '<div style="display:flex;flex-wrap:wrap;gap:0 10px;align-items:baseline;margin:0 0 6px;'
        f'font-size:12px"><b style="font-weight:600">{label}</b><span>{last}</span>'
        f'<span style="{MUTED}">rank 0, step {points[-1][0]:,}</span></div>'
    )
    plot = draw_plot(
        draw_strokes(strokes, ACCENT),
        x_axis,
        y_axis,
        key=key,
        alt=f"{label} of rank 0 per step, last {last} at step {points[-1][0]}",
        x_label="step",
        inline=live,
    )
    return f'<div style="flex:1 1 300px;min-width:0;margin:14px 0 0">{plot}</div>'


def rank_table(snapshot: RunSnapshot, n_rows: int, limit: int) -> str:
    """A lane per rank: where it runs, how far it is, what it said last."""
    rows = snapshot.ranks[:n_rows]
    if not rows:
        return ""
    wanted: tuple[tuple[str, Callable[[RankRow], str], bool], ...] = (
        ("rank", lambda row: str(row.rank), True),
        ("state", lambda row: f"{dot(RANK_COLORS[row.state], 7)}{row.state}", False),
        ("step", lambda row: "" if row.step is None else format_count(row.step), True),
        ("last metrics", lambda row: esc(metrics_text(row), limit * 3), False),
        ("host → worker → device", lambda row: esc(place_text(row), limit * 4), False),
        ("pid", lambda row: str(row.pid), True),
    )
    columns = []
    for heading, draw, right in wanted:
        cells = tuple(draw(row) for row in rows)
        if any(cells):
            columns.append(Column(heading, cells, "right" if right else "left"))
    n_hidden = max(0, snapshot.world_size - len(rows))
    hidden = f" · {format_count(n_hidden)} more not shown" if n_hidden else ""
    return draw_table(columns, caption=f"Ranks and their places{hidden}")


def group_notes(snapshot: RunSnapshot, limit: int) -> str:
    """Restarts, then notices."""
    texts = [esc(_sentence(text), limit) for text in restart_texts(snapshot)]
    texts += [esc(text, limit) for text in notices_of(snapshot)[-5:]]
    if not texts:
        return ""
    items = "".join(f'<li style="margin:0">{text}</li>' for text in texts)
    return (
        f'<ul aria-label="Restarts and notices" style="margin:10px 0 0;padding:0 0 0 16px;'
        f'font-size:12px;list-style-type:disc;overflow-wrap:break-word;{MUTED}">{items}</ul>'
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
