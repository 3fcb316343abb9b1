"""The table of trials: which columns a run needs, and their HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from jupyter_ddl.formats import format_count, format_number, format_score
from jupyter_ddl.protocol.snapshot import RunSnapshot, TrialRow
from jupyter_ddl.views.drawing import (
    GREEN,
    GREY,
    MUTED,
    TRIAL_COLORS,
    dot,
    esc,
    format_param,
    format_params,
    tint,
)
from jupyter_ddl.views.summary import duration_text, noun, steps_text

__all__ = ["Column", "draw_table", "trial_table"]

_MAX_PARAM_COLUMNS = 6
_MAX_METRICS = 3

Align = Literal["left", "right"]


class Column(msgspec.Struct, frozen=True):
    """A heading and the escaped HTML of each cell below it."""

    heading: str
    cells: tuple[str, ...]
    align: Align = "left"
    wraps: bool = False
    """Whether long cells break into several lines instead of making the table scroll."""


def draw_table(
    columns: Sequence[Column], *, caption: str, marked: frozenset[int] = frozenset()
) -> str:
    """A real table that scrolls sideways when it is wider than the page.

    Parameters
    ----------
    columns : sequence of Column
        The first one heads its rows.
    caption : str
        Escaped HTML.
    marked : frozenset of int
        Rows (from 0) that stand out.
    """
    heads = "".join(
        f'<th scope="col" style="{_cell_style(c)};font-weight:600;{MUTED}">{c.heading}</th>'
        for c in columns
    )
    n_rows = len(columns[0].cells) if columns else 0
    body = "".join(_row(columns, at, marked=at in marked) for at in range(n_rows))
    return (
        '<div style="overflow-x:auto;margin:12px 0 0">'
        '<table style="border-collapse:collapse;table-layout:auto;width:auto;min-width:50%;'
        'margin:0;border:none;font-size:12px;line-height:1.4">'
        f'<caption style="caption-side:top;text-align:left;padding:0 0 4px;{MUTED}">'
        f"{caption}</caption>"
        f'<thead style="border:none"><tr style="background:none;border-bottom:1px solid '
        f'{tint(GREY, 0.45)}">{heads}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _row(columns: Sequence[Column], at: int, *, marked: bool) -> str:
    background = tint(GREEN, 0.13) if marked else "transparent"
    head, *others = columns
    cells = "".join(f'<td style="{_cell_style(c)}">{c.cells[at]}</td>' for c in others)
    return (
        f'<tr style="background:{background};border-bottom:1px solid {tint(GREY, 0.16)}">'
        f'<th scope="row" style="{_cell_style(head)};font-weight:400">{head.cells[at]}</th>'
        f"{cells}</tr>"
    )


def _cell_style(column: Column) -> str:
    breaks = "overflow-wrap:break-word" if column.wraps else "white-space:nowrap"
    return f"text-align:{column.align};padding:3px 9px;{breaks};vertical-align:baseline"


def trial_table(snapshot: RunSnapshot, rows: Sequence[TrialRow], limit: int, now_s: float) -> str:
    """The trials worth showing; columns without content are left out.

    Parameters
    ----------
    limit : int
        Longest text of one cell in characters.
    """
    one = noun(snapshot, 1)
    best_number = None if snapshot.best is None else snapshot.best.number
    columns = [
        Column(one, tuple(_number(row, best_number) for row in rows), "right"),
        Column("state", tuple(_state(row) for row in rows)),
    ]
    if snapshot.metric is not None:
        columns.append(
            Column(
                esc(snapshot.metric or "value", limit),
                tuple(_value(row, snapshot.metric, best_number) for row in rows),
                "right",
            )
        )
    columns += _param_columns(rows, limit)
    columns += _optional_columns(snapshot, rows, limit, now_s)
    n_hidden = max(0, snapshot.counts.finished + snapshot.counts.running - len(rows))
    hidden = f" · {format_count(n_hidden)} more not shown" if n_hidden else ""
    marked = frozenset(at for at, row in enumerate(rows) if row.number == best_number)
    title = f"{noun(snapshot).capitalize()}, {_order_text(snapshot)}{hidden}"
    return draw_table(columns, caption=title, marked=marked)


def _order_text(snapshot: RunSnapshot) -> str:
    groups = [
        *(["best"] if snapshot.metric is not None else []),
        *(["running"] if snapshot.counts.running else []),
        "latest",
    ]
    first, *others = groups
    return ", then ".join([f"{first} first", *others])


def _number(row: TrialRow, best_number: int | None) -> str:
    if row.number != best_number:
        return str(row.number)
    return f'<span title="best" style="color:{GREEN}">★</span> {row.number}'


def _state(row: TrialRow) -> str:
    return f"{dot(TRIAL_COLORS[row.state], 7)}{row.state}"


def _value(row: TrialRow, metric: str | None, best_number: int | None) -> str:
    """The objective, or quieter the last reported value of a trial that has none (yet)."""
    if row.value is None:
        reported = None if metric is None else row.metrics.get(metric)
        return "" if reported is None else f'<i style="{MUTED}">{format_score(reported)}</i>'
    text = format_score(row.value)
    return f'<b style="font-weight:600">{text}</b>' if row.number == best_number else text


def _param_columns(rows: Sequence[TrialRow], limit: int) -> list[Column]:
    names = list(dict.fromkeys(name for row in rows for name in row.params))
    if not names:
        return []
    if len(names) > _MAX_PARAM_COLUMNS:
        cells = tuple(esc(format_params(row.params, limit, 4), limit * 6) for row in rows)
        return [Column("parameters", cells)]
    return [_param_column(name, rows, limit) for name in names]


def _param_column(name: str, rows: Sequence[TrialRow], limit: int) -> Column:
    values = [row.params.get(name) for row in rows if name in row.params]
    numeric = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    cells = tuple(
        esc(format_param(row.params[name], limit), limit) if name in row.params else ""
        for row in rows
    )
    return Column(esc(name, limit), cells, "right" if numeric else "left")


def _optional_columns(
    snapshot: RunSnapshot, rows: Sequence[TrialRow], limit: int, now_s: float
) -> list[Column]:
    def metrics(row: TrialRow) -> str:
        others = [(k, v) for k, v in row.metrics.items() if k != snapshot.metric]
        shown = ", ".join(f"{k} {format_number(v)}" for k, v in others[:_MAX_METRICS])
        return esc(shown, limit * 2)

    def attempts(row: TrialRow) -> str:
        return "" if row.attempts <= 1 else format_count(row.attempts)

    def step(row: TrialRow) -> str:
        return steps_text(snapshot, row)

    def failure(row: TrialRow) -> str:
        return "" if row.failure is None else esc(row.failure.type_name, limit)

    wanted: tuple[tuple[str, Callable[[TrialRow], str], Align], ...] = (
        (snapshot.nouns.step, step, "right"),
        ("last metrics", metrics, "left"),
        ("time", lambda row: duration_text(row, now_s), "right"),
        ("attempts", attempts, "right"),
        ("failure", failure, "left"),
        ("worker", lambda row: esc(row.worker, limit), "left"),
    )
    columns = []
    for heading, draw, align in wanted:
        cells = tuple(draw(row) for row in rows)
        if any(cells):
            columns.append(Column(heading, cells, align))
    return columns
