"""A run as text: several lines for ``text/plain`` and terminals, or one line of progress."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_ddl.formats import format_count, format_score
from jupyter_ddl.protocol.snapshot import RunSnapshot, TrialRow
from jupyter_ddl.views.drawing import (
    TextColumn,
    bar,
    cell_width,
    columns_text,
    cut,
    format_params,
    plain,
    plain_lines,
    to_ascii,
)
from jupyter_ddl.views.group import group_lines, group_progress, group_words, is_group, stacks_text
from jupyter_ddl.views.summary import (
    costs,
    duration_text,
    failure_message,
    failure_place,
    first_failure,
    is_final,
    noun,
    ordered_rows,
    recovery_text,
    segments,
    state_text,
    steps_text,
    times,
)

__all__ = ["MIN_WIDTH", "render_line", "render_text"]

MIN_WIDTH = 20
"""Narrower widths are taken as this one."""

_N_ROWS = 6
_LINE_LIMIT = 400
_TRACEBACK_LIMIT = 2000
_TRACEBACK_LINES = 20
"""The innermost ones; all are with the trial."""


def render_text(
    snapshot: RunSnapshot, now_s: float, width: int = 80, *, ascii_only: bool = False
) -> str:
    """Several lines, none wider than ``width`` terminal cells, without a line break at the end."""
    width = max(MIN_WIDTH, width)
    grouped = is_group(snapshot)
    progress = f"{_bar(snapshot, min(30, width - 2))}  {_progress(snapshot)}"
    lines = [
        _header(snapshot),
        group_progress(snapshot) if grouped else progress,
        " · ".join((*times(snapshot, now_s), *costs(snapshot, now_s))),
    ]
    if snapshot.paused and not is_final(snapshot):
        lines.append(f"Waiting: {plain(snapshot.paused, _LINE_LIMIT)}")
    if snapshot.best is not None:
        lines.append(_best(snapshot))
    if snapshot.reason:
        lines.append(plain(snapshot.reason, _LINE_LIMIT))
    lines += _failure(snapshot)
    lines += group_lines(snapshot, width) if grouped else _trial_lines(snapshot, now_s, width)
    wrapped = [piece for line in lines for piece in _wrap(line, width)]
    text = "\n".join(wrapped)
    return to_ascii(text) if ascii_only else text


def _trial_lines(snapshot: RunSnapshot, now_s: float, width: int) -> list[str]:
    rows = ordered_rows(snapshot, _N_ROWS)
    lines = ["", *columns_text(_columns(snapshot, rows, now_s), width)] if rows else []
    lines += [f"• {plain(text, _LINE_LIMIT)}" for text in snapshot.notices[-5:]]
    recovered = recovery_text(snapshot)
    return [*lines, f"• {recovered}"] if recovered else lines


def render_line(
    snapshot: RunSnapshot, now_s: float, width: int = 80, *, ascii_only: bool = False
) -> str:
    """One line of at most ``width`` cells; what matters least is left out first."""
    width = max(MIN_WIDTH, width)
    done = f"{format_count(snapshot.counts.finished)}/{format_count(snapshot.n_trials)}"
    best = snapshot.best
    n_failed = snapshot.counts.failed
    picture = f"{_bar(snapshot, 12)} " if width >= 50 else ""
    parts = [
        f"{plain(snapshot.name or snapshot.run_id, 24)} {state_text(snapshot)}",
        f"{picture}{done}",
        "" if best is None else f"best {format_score(best.value)}",
        f"{format_count(n_failed)} failed" if n_failed else "",
        times(snapshot, now_s)[-1].removeprefix("about "),
    ]
    if is_group(snapshot):
        parts[1:4] = group_words(snapshot)
    shown = [part for part in parts if part]
    while len(shown) > 2 and cell_width(" · ".join(shown)) > width:
        shown.pop()
    line = cut(" · ".join(shown), width)
    return to_ascii(line) if ascii_only else line


def _header(snapshot: RunSnapshot) -> str:
    name = plain(snapshot.name, 80)
    run = plain(snapshot.run_id, 60)
    title = f"{name} ({run})" if name else run
    cluster = plain(snapshot.cluster, 60)
    return f"{title} · {state_text(snapshot)} · {snapshot.verb} · cluster {cluster}"


def _bar(snapshot: RunSnapshot, width: int) -> str:
    parts = segments(snapshot)
    running = sum(part.share for part in parts if part.state == "running")
    finished = sum(part.share for part in parts if part.state != "running")
    return bar(finished, running, width)


def _progress(snapshot: RunSnapshot) -> str:
    n = snapshot.n_trials
    parts = [f"{format_count(snapshot.counts.finished)} of {format_count(n)} {noun(snapshot, n)}"]
    parts += [
        f"{format_count(part.n_trials)} {part.state}"
        for part in segments(snapshot)
        if part.state != "complete"
    ]
    return " · ".join(parts)


def _best(snapshot: RunSnapshot) -> str:
    best = snapshot.best
    if best is None:
        return ""
    metric = plain(snapshot.metric or "value", 60)
    params = format_params(best.params)
    return f"Best {metric} {format_score(best.value)} at trial {best.number}: {params}".rstrip(": ")


def _failure(snapshot: RunSnapshot) -> list[str]:
    note = first_failure(snapshot)
    if note is None:
        return []
    failure = note.failure
    where = failure_place(snapshot, note)
    line = "" if failure.line is None else f" (cell line {failure.line})"
    type_name, message = plain(failure.type_name, 80), plain(failure_message(failure), _LINE_LIMIT)
    lines = [f"{where}{type_name}: {message}{line}"]
    if stacks := stacks_text(snapshot):
        lines.append(plain(stacks, _LINE_LIMIT))
    if snapshot.state == "failed" and failure.traceback:
        shown = plain_lines(failure.traceback, _TRACEBACK_LIMIT).split("\n")
        cut_off = ["…"] if len(shown) > _TRACEBACK_LINES else []
        lines += [f"  {one}" for one in (*cut_off, *shown[-_TRACEBACK_LINES:])]
    if note.n_more:
        lines.append(f"{format_count(note.n_more)} more {noun(snapshot, note.n_more)} failed")
    return lines


def _columns(snapshot: RunSnapshot, rows: Sequence[TrialRow], now_s: float) -> list[TextColumn]:
    best_number = None if snapshot.best is None else snapshot.best.number
    numbers = tuple(f"{'★ ' if row.number == best_number else ''}{row.number}" for row in rows)
    columns = [
        TextColumn(noun(snapshot, 1), numbers, right=True),
        TextColumn("state", tuple(row.state for row in rows)),
    ]
    if snapshot.metric is not None:
        values = tuple("" if row.value is None else format_score(row.value) for row in rows)
        columns.append(TextColumn(plain(snapshot.metric or "value", 20), values, right=True))
    if any(snapshot.nouns.total in row.metrics for row in rows):
        done = tuple(steps_text(snapshot, row) for row in rows)
        columns.append(TextColumn(snapshot.nouns.step, done, right=True))
    durations = tuple(duration_text(row, now_s) for row in rows)
    columns.append(TextColumn("time", durations, right=True))
    if any(row.params for row in rows):
        params = tuple(cut(format_params(row.params, 16, 5), 60) for row in rows)
        columns.append(TextColumn("parameters", params))
    return columns


def _wrap(line: str, width: int) -> list[str]:
    """Break at spaces, inside a word only where it is wider than a line."""
    pieces: list[str] = []
    rest = line
    while cell_width(rest) > width:
        head = _head(rest, width)
        at = head.rfind(" ")
        if at > width // 3 and head[:at].strip():
            head = head[:at]
        pieces.append(head.rstrip())
        rest = "  " + rest[len(head) :].lstrip()
    return [*pieces, rest]


def _head(text: str, width: int) -> str:
    """The longest beginning that fits, at least one character."""
    used = 0
    for at, char in enumerate(text):
        used += cell_width(char)
        if used > width:
            return text[: max(1, at)]
    return text
