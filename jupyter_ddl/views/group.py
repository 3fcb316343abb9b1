"""A rank group, as HTML and as text: its ranks, its progress, its restarts and its curves."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence

from jupyter_ddl.formats import (
    format_bytes,
    format_count,
    format_counted,
    format_duration,
    format_number,
    format_percent,
)
from jupyter_ddl.plotting.axes import count_axis, value_axis
from jupyter_ddl.protocol.snapshot import CellRow, RankRow, RestartRow, RunSnapshot
from jupyter_ddl.views.drawing import (
    ACCENT,
    AMBER,
    MUTED,
    RANK_COLORS,
    TextColumn,
    box,
    bullets,
    columns_text,
    dot,
    esc,
    plain,
)
from jupyter_ddl.views.plots import (
    draw_plot,
    draw_strokes,
    edge_ticks,
    line_path,
    outside_text,
    point_at,
    x_of,
    y_of,
)
from jupyter_ddl.views.summary import costs, is_final, times
from jupyter_ddl.views.trial_table import Column, draw_table

__all__ = [
    "cells_html",
    "cells_text",
    "group_caption",
    "group_lines",
    "group_notes",
    "group_progress",
    "group_words",
    "hang_card",
    "is_group",
    "metrics_text",
    "notices_of",
    "place_text",
    "progress_text",
    "rank_counts",
    "rank_table",
    "restart_texts",
    "round_text",
    "series_plots",
    "series_shown",
    "shows_hang",
    "size_text",
    "stacks_text",
]


# The sentences of a rank group that HTML and text share: ranks, rounds, restarts.

_MAX_METRICS = 3


def is_group(snapshot: RunSnapshot) -> bool:
    """Whether the run is one rank group, drawn by its ranks and not by its trials."""
    return snapshot.can.has_ranks


def size_text(snapshot: RunSnapshot) -> str:
    """How many ranks there are, of how many that there are to be; empty before the first round."""
    n = snapshot.world_size
    if snapshot.n_to_come:
        return f"{format_count(n - snapshot.n_to_come)} of {format_counted(n, 'rank')}"
    return format_counted(n, "rank") if n else ""


def _n_hidden(snapshot: RunSnapshot, n_rows: int) -> int:
    """Ranks that have begun and are not among the first rows."""
    return max(0, snapshot.world_size - snapshot.n_to_come - n_rows)


def round_text(snapshot: RunSnapshot, number: int | None = None) -> str:
    """``round 2 of 4``; without the total once losses of workers have gone beyond it."""
    number = snapshot.round if number is None else number
    if number <= 0:
        return ""
    return f"round {number}" + (
        f" of {snapshot.max_rounds}" if number <= snapshot.max_rounds and number > 1 else ""
    )


def progress_text(step: int | None, number: int) -> str:
    """How far a ddp run is where lists tell it: ``step 640, round 2``; empty before a report."""
    parts = ["" if step is None else f"step {format_count(step)}"]
    parts.append(f"round {number}" if number > 1 else "")
    return ", ".join(part for part in parts if part)


def rank_counts(snapshot: RunSnapshot) -> list[tuple[str, int]]:
    """Ranks per state, running ones first; only those that the snapshot lists."""
    counts: Counter[str] = Counter(row.state for row in snapshot.ranks)
    order = ("running", "complete", "failed", "evicted", "pruned", "moved", "cancelled")
    return [(state, counts[state]) for state in order if counts[state]]


def metrics_text(row: RankRow) -> str:
    """A rank's last metrics in one line, not cleaned."""
    shown = list(row.metrics.items())
    text = ", ".join(f"{name} {format_number(value)}" for name, value in shown[:_MAX_METRICS])
    return text + (f", +{len(shown) - _MAX_METRICS} more" if len(shown) > _MAX_METRICS else "")


def place_text(row: RankRow) -> str:
    """Where a rank runs, not cleaned."""
    return " → ".join(part for part in (row.host, row.worker, row.device) if part)


def parts_text(row: RankRow) -> str:
    """What a rank's steps are made of: ``52 ms: 37 % data, 3 % waiting, 60 % compute``."""
    parts = row.parts
    if parts is None or parts.step_s <= 0:
        return ""
    named = (
        ("data", parts.data_s),
        ("waiting", parts.waiting_s),
        ("exchange", parts.exchange_s),
        ("compute", parts.compute_s),
    )
    told = [f"{format_percent(s / parts.step_s)} {name}" for name, s in named if s is not None]
    return f"{format_duration(parts.step_s)}: {', '.join(told)}"


def cost_text(row: RankRow) -> str:
    """What a rank sends in a step, and the most memory it has held: ``8 KiB a step, 350 MiB``."""
    sent, peak = row.bytes_per_step, row.peak_memory_bytes
    told = (
        "" if sent is None else f"{format_bytes(sent)} a step",
        "" if peak is None else format_bytes(peak),
    )
    return ", ".join(each for each in told if each)


def verdict_text(snapshot: RunSnapshot) -> str:
    """What is known of the ranks' steps as a line of its own, not cleaned; empty: nothing is."""
    sent = snapshot.bytes_sent
    told = [snapshot.step_verdict, "" if sent is None else f"{format_bytes(sent)} sent"]
    text = "; ".join(each for each in told if each)
    return f"Steps: {text}" if text else ""


def restart_texts(snapshot: RunSnapshot) -> list[str]:
    """One sentence per restart, not cleaned: which rank, what it did, and where it went on."""
    return [_restart(snapshot, row) for row in snapshot.restarts]


def _restart(snapshot: RunSnapshot, row: RestartRow) -> str:
    who = "the group" if row.rank is None else f"rank {row.rank}"
    ended = f"round {row.round}: {who} {row.cause}"
    if row.is_over:
        went_on = (
            "started over" if row.step is None else f"resumed from step {format_count(row.step)}"
        )
        return f"{ended}; {round_text(snapshot, row.round + 1)} {went_on}"
    return ended if is_final(snapshot) else f"{ended}; the next round is being prepared"


def series_shown(snapshot: RunSnapshot, n_shown: int) -> list[tuple[str, list[tuple[int, float]]]]:
    """The metrics to draw, with finite points, the most important first."""
    shown = ((name, snapshot.series.get(name, ())) for name in snapshot.metrics)
    finite = ((name, [(x, y) for x, y in points if math.isfinite(y)]) for name, points in shown)
    return [(name, points) for name, points in finite if len(points) > 1][:n_shown]


def shows_hang(snapshot: RunSnapshot) -> bool:
    """Whether a hang is worth a card: not once the run has done its work, or failed by it."""
    return snapshot.hang is not None and snapshot.state != "complete" and not _failed_by(snapshot)


def stacks_text(snapshot: RunSnapshot) -> str:
    """Where the stacks of a run that failed by a hang are; empty of another one.  Not cleaned."""
    if snapshot.hang is None or not _failed_by(snapshot) or not snapshot.hang.stacks_file:
        return ""
    return f"Stacks of all ranks: {snapshot.hang.stacks_file} in the run's directory"


def _failed_by(snapshot: RunSnapshot) -> bool:
    """Whether the run's first cause is its hang, so that one of them is told."""
    return snapshot.failure is not None and snapshot.failure.kind == "hang"


def notices_of(snapshot: RunSnapshot) -> tuple[str, ...]:
    """Notices but for what the restarts and the hang card tell already."""
    told = {f"restarted from the checkpoint at step {row.step}" for row in snapshot.restarts}
    hang = snapshot.hang if shows_hang(snapshot) or _failed_by(snapshot) else None
    return tuple(
        text
        for text in snapshot.notices
        if text not in told and (hang is None or text[:80] != hang.text[:80])
    )


# A persistent group's record: its state in a line, and its last cells.

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


# A rank group as HTML: its ranks and their places, what they report, why rounds ended.

_N_PLOTS = 6


def group_caption(snapshot: RunSnapshot, now_s: float) -> str:
    """One line: how many ranks do what, the step, the round, the time."""
    words = [f'<b style="font-weight:600">{size_text(snapshot) or "no rank yet"}</b>']
    words += [
        f'<span style="white-space:nowrap">{dot(RANK_COLORS[state], 7)}'
        f"{format_count(n)} {state}</span>"
        for state, n in rank_counts(snapshot)
    ]
    words += _progress_words(snapshot)
    left = "".join(f"<span>{word}</span>" for word in words)
    right = " · ".join((*times(snapshot, now_s), *map(esc, costs(snapshot, now_s))))
    return (
        '<div style="display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 18px;'
        f'margin:7px 0 0;font-size:12px"><div style="display:flex;flex-wrap:wrap;gap:0 12px">'
        f'{left}</div><div style="{MUTED}">{right}</div></div>'
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
    n_each = max(20, n_points * 2 // max(2, len(shown)))
    begins = [row.step or 0 for row in snapshot.restarts if row.is_over]
    plots = "".join(
        _plot(name, points, begins, live=live, n_points=n_each) for name, points in shown
    )
    n_hidden = max(snapshot.n_metrics, len(snapshot.metrics)) - len(shown)
    hidden = f"{format_counted(n_hidden, 'more metric')} without a curve here" if n_hidden else ""
    note = f'<div style="font-size:12px;{MUTED}">{hidden}</div>' if hidden else ""
    return (
        f'<div style="display:flex;flex-wrap:wrap;gap:0 20px;max-width:860px">{plots}</div>{note}'
    )


def _plot(
    name: str,
    points: list[tuple[int, float]],
    begins: Sequence[int],
    *,
    live: bool,
    n_points: int,
) -> str:
    stride = -(-len(points) // n_points)
    points = [*points[:-1:stride], points[-1]]
    values = [value for _, value in points]
    x_axis = count_axis(max(1, points[-1][0]))
    y_axis = value_axis(min(values), max(values))
    end = f"M{point_at(*points[-1], x_axis, y_axis)}h0" if y_axis.holds(values[-1]) else ""
    rules = "".join(f"M{x_of(x_axis.place(step)):g},{y_of(1):g}V{y_of(0):g}" for step in begins)
    strokes = [
        (rules, "stroke-width='1' stroke-opacity='.5'"),
        (line_path(points, x_axis, y_axis), "stroke-width='1.75' stroke-linejoin='round'"),
        (end, "stroke-width='7'"),
        (edge_ticks(points, x_axis, y_axis), "stroke-width='2'"),
    ]
    where = [f"rank 0, step {points[-1][0]:,}", outside_text(points, y_axis)]
    label, last = esc(name, 40), format_number(values[-1])
    key = (
        '<div style="display:flex;flex-wrap:wrap;gap:0 10px;align-items:baseline;margin:0 0 6px;'
        f'font-size:12px"><b style="font-weight:600">{label}</b><span>{last}</span>'
        f'<span style="{MUTED}">{" · ".join(filter(None, where))}</span></div>'
    )
    plot = draw_plot(
        draw_strokes([stroke for stroke in strokes if stroke[0]], ACCENT),
        x_axis,
        y_axis,
        key=key,
        alt=f"{label} of rank 0 per step, last {last} at step {points[-1][0]}{_restarted(begins)}",
        x_label="step",
        inline=live,
    )
    return f'<div style="flex:1 1 300px;min-width:0;margin:14px 0 0">{plot}</div>'


def _restarted(begins: Sequence[int]) -> str:
    return f"; went on from step {', '.join(map(str, begins))}" if begins else ""


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
        ("one step", lambda row: esc(parts_text(row), limit * 3), False),
        ("host → worker → device", lambda row: esc(place_text(row), limit * 4), False),
        ("sent, peak memory", cost_text, False),
        ("pid", lambda row: str(row.pid), True),
    )
    columns = []
    for heading, draw, right in wanted:
        cells = tuple(draw(row) for row in rows)
        if any(cells):
            columns.append(Column(heading, cells, "right" if right else "left"))
    n_hidden = _n_hidden(snapshot, len(rows))
    hidden = f" · {format_count(n_hidden)} more not shown" if n_hidden else ""
    return draw_table(columns, caption=f"Ranks and their places{hidden}")


def group_notes(snapshot: RunSnapshot, limit: int) -> str:
    """Restarts, then notices."""
    verdict = verdict_text(snapshot)
    texts = [esc(verdict, limit)] if verdict else []
    texts += [esc(_sentence(text), limit) for text in restart_texts(snapshot)]
    texts += [esc(text, limit) for text in notices_of(snapshot)[-5:]]
    return bullets("Restarts and notices", texts)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


_N_ROWS = 12
_LINE_LIMIT = 400


def group_progress(snapshot: RunSnapshot) -> str:
    """How many ranks do what, the step, the checkpoint, the round."""
    parts = [size_text(snapshot) or "no rank yet"]
    parts += [f"{format_count(n)} {state}" for state, n in rank_counts(snapshot)]
    return " · ".join((*parts, *_progress_words(snapshot)))


def _progress_words(snapshot: RunSnapshot) -> list[str]:
    step, saved = snapshot.last_step, snapshot.checkpoint_step
    words = [
        "" if step is None else f"step {format_count(step)}",
        "" if saved is None else f"checkpoint at step {format_count(saved)}",
        round_text(snapshot) if snapshot.round > 1 else "",
    ]
    return [word for word in words if word]


def group_words(snapshot: RunSnapshot) -> list[str]:
    """The same for one line, what matters most first."""
    step = snapshot.last_step
    metrics = metrics_text(snapshot.ranks[0]) if snapshot.ranks else ""
    return [
        size_text(snapshot),
        "" if step is None else f"step {format_count(step)}",
        plain(metrics, 40) if metrics else "",
        round_text(snapshot) if snapshot.round > 1 else "",
    ]


def group_lines(snapshot: RunSnapshot, width: int) -> list[str]:
    """The hang verdict, a line per rank, restarts and notices."""
    lines = []
    if snapshot.hang is not None and shows_hang(snapshot):
        lines.append(f"Hang: {plain(snapshot.hang.text, _LINE_LIMIT)}")
    if snapshot.ranks:
        lines += ["", *columns_text(_text_columns(snapshot), width)]
    n_hidden = _n_hidden(snapshot, min(len(snapshot.ranks), _N_ROWS))
    if snapshot.ranks and n_hidden > 0:
        lines.append(f"… {format_count(n_hidden)} more ranks")
    texts = [verdict_text(snapshot), *restart_texts(snapshot), *notices_of(snapshot)[-5:]]
    return [*lines, *(f"• {plain(text, _LINE_LIMIT)}" for text in texts if text)]


def _text_columns(snapshot: RunSnapshot) -> list[TextColumn]:
    rows = snapshot.ranks[:_N_ROWS]
    steps = tuple("" if row.step is None else format_count(row.step) for row in rows)
    columns = [
        TextColumn("rank", tuple(str(row.rank) for row in rows), right=True),
        TextColumn("state", tuple(row.state for row in rows)),
        TextColumn("step", steps, right=True),
        TextColumn("last metrics", tuple(plain(metrics_text(row), 60) for row in rows)),
        TextColumn("one step", tuple(parts_text(row) for row in rows)),
        TextColumn("host → worker → device", tuple(plain(place_text(row), 60) for row in rows)),
        TextColumn("sent, peak memory", tuple(cost_text(row) for row in rows)),
    ]
    return [column for column in columns if any(column.cells)]
