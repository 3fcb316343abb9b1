"""A run as a fragment of HTML: live in a cell, and static in the saved notebook.

No script, no style sheet, no ids, no network: what is left of it in an untrusted notebook is
still readable (see :mod:`jupyter_ddl.views.drawing`).
"""

from __future__ import annotations

import html

import msgspec

from jupyter_ddl.formats import format_count, format_score
from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.views.drawing import (
    ACCENT,
    AMBER,
    GREY,
    MUTED,
    RED,
    ROOT_STYLE,
    RUN_COLORS,
    TRIAL_COLORS,
    box,
    bullets,
    dot,
    esc,
    format_param,
    pill,
    plain_lines,
    tint,
)
from jupyter_ddl.views.group import (
    group_caption,
    group_notes,
    hang_card,
    is_group,
    rank_table,
    series_plots,
    stacks_text,
)
from jupyter_ddl.views.plots import draw_curve, series_of
from jupyter_ddl.views.summary import (
    FailureNote,
    clock_text,
    costs,
    failure_message,
    failure_place,
    first_failure,
    is_final,
    noun,
    ordered_rows,
    recovery_text,
    segments,
    state_text,
    times,
)
from jupyter_ddl.views.trial_table import trial_table

__all__ = ["MAX_HTML_BYTES", "render_html"]

MAX_HTML_BYTES = 48_000
"""Of one drawing, so that a saved run cell stays below 64 kB."""


class _Detail(msgspec.Struct, frozen=True):
    """How much is drawn.  All but ``n_*`` are longest texts in characters."""

    n_rows: int
    n_points: int
    line: int
    cell: int
    message: int
    traceback: int


_DETAILS = (
    _Detail(n_rows=12, n_points=300, line=100, cell=24, message=500, traceback=4000),
    _Detail(n_rows=8, n_points=150, line=80, cell=16, message=300, traceback=1500),
    _Detail(n_rows=4, n_points=100, line=60, cell=12, message=160, traceback=500),
    _Detail(n_rows=0, n_points=60, line=40, cell=10, message=120, traceback=0),
)
"""The last one fits whatever the snapshot holds: its texts and points have a fixed bound."""


def render_html(snapshot: RunSnapshot, *, now_s: float, live: bool) -> str:
    """Draw a run.

    Parameters
    ----------
    snapshot : RunSnapshot
        Anything in it may come from users; all of it is escaped.
    now_s : float
        Unix seconds, for what is still going on.
    live : bool
        Whether this drawing will be replaced by newer ones.

    Returns
    -------
    str
        At most :data:`MAX_HTML_BYTES` bytes of UTF-8; with less detail when it must.
    """
    drawn = ""
    for detail in _DETAILS:
        drawn = _draw(snapshot, now_s, live=live, detail=detail)
        if len(drawn.encode()) <= MAX_HTML_BYTES:
            break
    return drawn


def _draw(snapshot: RunSnapshot, now_s: float, *, live: bool, detail: _Detail) -> str:
    failure = first_failure(snapshot)
    note = "" if failure is None else _failure(snapshot, failure, detail)
    if is_group(snapshot):
        parts = _group_parts(snapshot, note, now_s, live=live, detail=detail)
    else:
        parts = _trial_parts(snapshot, note, now_s, live=live, detail=detail)
    label = esc(f"Run {snapshot.name or snapshot.run_id}, {state_text(snapshot)}", detail.line)
    return f'<div role="group" aria-label="{label}" style="{ROOT_STYLE}">{"".join(parts)}</div>'


def _group_parts(
    snapshot: RunSnapshot, note: str, now_s: float, *, live: bool, detail: _Detail
) -> list[str]:
    return [
        _header(snapshot, detail),
        group_caption(snapshot, now_s),
        _trouble(snapshot, detail),
        note,
        hang_card(snapshot, detail.message),
        series_plots(snapshot, live=live, n_points=detail.n_points),
        rank_table(snapshot, 4 * detail.n_rows, detail.cell),
        group_notes(snapshot, detail.message),
        _footer(snapshot, now_s, live=live),
    ]


def _trial_parts(
    snapshot: RunSnapshot, note: str, now_s: float, *, live: bool, detail: _Detail
) -> list[str]:
    return [
        _header(snapshot, detail),
        _bar(snapshot),
        _caption(snapshot, now_s),
        _trouble(snapshot, detail),
        note if snapshot.state == "failed" else "",
        _best(snapshot, detail),
        _curve(snapshot, live=live, detail=detail),
        "" if snapshot.state == "failed" else note,
        _table(snapshot, now_s, detail),
        _notices(snapshot, detail),
        _footer(snapshot, now_s, live=live),
    ]


def _header(snapshot: RunSnapshot, detail: _Detail) -> str:
    color = AMBER if snapshot.paused and not is_final(snapshot) else RUN_COLORS[snapshot.state]
    facts = [snapshot.verb, f"cluster {esc(snapshot.cluster, detail.line)}"]
    if snapshot.name:
        facts.insert(0, esc(snapshot.run_id, detail.line))
    if snapshot.sampler:
        facts.append(f"{esc(snapshot.sampler, detail.cell)} sampler")
    if snapshot.pruner and snapshot.pruner != "none":
        facts.append(f"{esc(snapshot.pruner, detail.cell)} pruner")
    title = esc(snapshot.name or snapshot.run_id, detail.line)
    return (
        '<div style="display:flex;flex-wrap:wrap;align-items:baseline;gap:2px 10px;'
        'overflow-wrap:break-word">'
        f"{pill(color, state_text(snapshot))}"
        f'<bdi style="font-size:15px;font-weight:600;max-width:100%">{title}</bdi>'
        f'<span style="font-size:12px;{MUTED}">{" · ".join(facts)}</span></div>'
    )


def _bar(snapshot: RunSnapshot) -> str:
    finished = snapshot.counts.finished
    parts = "".join(
        f'<div style="width:{part.share:.3%};min-width:2px;background:'
        f'{_segment_fill(part.state)}"></div>'
        for part in segments(snapshot)
    )
    return (
        f'<div role="progressbar" aria-valuemin="0" aria-valuemax="{snapshot.n_trials}" '
        f'aria-valuenow="{finished}" aria-label="{finished} of {snapshot.n_trials} '
        f'{noun(snapshot)} finished" style="display:flex;height:8px;margin:9px 0 0;'
        f'border-radius:4px;overflow:hidden;background:{tint(GREY, 0.22)}">{parts}</div>'
    )


def _segment_fill(state: str) -> str:
    color = TRIAL_COLORS[state]  # type: ignore[index]
    return tint(color, 0.55) if state == "running" else color


def _caption(snapshot: RunSnapshot, now_s: float) -> str:
    done = f"{format_count(snapshot.counts.finished)} of {format_count(snapshot.n_trials)}"
    words = [f'<b style="font-weight:600">{done}</b> {noun(snapshot, snapshot.n_trials)}']
    words += [
        f'<span style="white-space:nowrap">{dot(_segment_fill(part.state), 7)}'
        f"{format_count(part.n_trials)} {part.state}</span>"
        for part in segments(snapshot)
    ]
    left = "".join(f"<span>{word}</span>" for word in words)
    right = " · ".join(
        f'<span style="white-space:nowrap">{esc(text)}</span>'
        for text in (*times(snapshot, now_s), *costs(snapshot, now_s))
    )
    return (
        '<div style="display:flex;flex-wrap:wrap;justify-content:space-between;gap:0 18px;'
        f'margin:5px 0 0;font-size:12px"><div style="display:flex;flex-wrap:wrap;gap:0 12px">'
        f'{left}</div><div style="{MUTED}">{right}</div></div>'
    )


def _trouble(snapshot: RunSnapshot, detail: _Detail) -> str:
    parts = ""
    if snapshot.paused and not is_final(snapshot):
        parts += box(AMBER, f"<b>Waiting.</b> {esc(snapshot.paused, detail.message)}", role="alert")
    if snapshot.reason and snapshot.failure is None:
        color = RED if snapshot.state == "failed" else GREY
        parts += box(color, esc(snapshot.reason, detail.message))
    return parts


def _failure(snapshot: RunSnapshot, note: FailureNote, detail: _Detail) -> str:
    failure = note.failure
    where = failure_place(snapshot, note)
    line = "" if failure.line is None else f' <span style="{MUTED}">cell line {failure.line}</span>'
    content = (
        f'<div><b style="font-weight:600">{where}{esc(failure.type_name, detail.line)}</b>{line}'
        f"</div><div>{esc(failure_message(failure), detail.message)}</div>"
    )
    traceback = plain_lines(failure.traceback, detail.traceback) if detail.traceback else ""
    if traceback:
        content += (
            '<details style="margin:4px 0 0"><summary style="cursor:pointer;font-size:12px">'
            'Traceback</summary><pre style="margin:4px 0 0;padding:0;background:none;border:none;'
            f'font-size:11px;line-height:1.4;white-space:pre;overflow-x:auto">'
            f"{html.escape(traceback)}</pre></details>"
        )
    notes = [stacks_text(snapshot), "" if snapshot.failure is None else snapshot.reason]
    if note.n_more:
        notes.append(f"{format_count(note.n_more)} more {noun(snapshot, note.n_more)} failed")
    for text in filter(None, notes):
        content += f'<div style="font-size:12px;{MUTED}">{esc(text, detail.message)}</div>'
    return box(RED, content)


def _best(snapshot: RunSnapshot, detail: _Detail) -> str:
    best = snapshot.best
    if best is None:
        return ""
    shown = list(best.params.items())[:12]
    params = "".join(
        f'<span style="white-space:nowrap"><span style="{MUTED}">{esc(name, detail.cell)}</span> '
        f"{esc(format_param(value, detail.cell), detail.cell)}</span>"
        for name, value in shown
    )
    if len(best.params) > len(shown):
        params += f'<span style="{MUTED}">+{len(best.params) - len(shown)} more</span>'
    so_far = "Best" if is_final(snapshot) else "Best so far"
    return (
        '<div style="display:flex;flex-wrap:wrap;align-items:baseline;gap:0 16px;margin:12px 0 0">'
        f'<span style="font-size:12px;{MUTED}">{so_far}, trial {best.number}</span>'
        f'<span style="white-space:nowrap"><span style="font-size:12px;{MUTED}">'
        f"{esc(snapshot.metric or 'value', detail.line)}</span> "
        f'<b style="font-size:20px;line-height:1.2;font-weight:600">{format_score(best.value)}</b>'
        f"</span>{params}</div>"
    )


def _curve(snapshot: RunSnapshot, *, live: bool, detail: _Detail) -> str:
    if snapshot.metric is None:
        return ""
    series = series_of(snapshot, color=ACCENT, n_points=detail.n_points)
    if series is None or len(series.points) < 2:
        return ""
    metric = snapshot.metric or "value"
    return draw_curve([series], metric=metric, mode=snapshot.mode, inline=live)


def _table(snapshot: RunSnapshot, now_s: float, detail: _Detail) -> str:
    rows = ordered_rows(snapshot, detail.n_rows)
    return trial_table(snapshot, rows, detail.cell, now_s) if rows else ""


def _notices(snapshot: RunSnapshot, detail: _Detail) -> str:
    texts = [esc(text, detail.message) for text in snapshot.notices[-5:]]
    recovered = recovery_text(snapshot)
    texts += [recovered] if recovered else []
    return bullets("Notices", texts)


def _footer(snapshot: RunSnapshot, now_s: float, *, live: bool) -> str:
    if is_final(snapshot):
        return ""
    if live:
        text = (
            "Stopping after the next report; interrupt again to stop now."
            if snapshot.stopping
            else "Interrupt the kernel to stop after the next report, twice to stop now."
        )
    else:
        text = f"<code>%runs attach {esc(snapshot.run_id, 60)}</code> follows it."
    # A live one is saved as well, and may be read much later.
    text = f"As of {clock_text(now_s)}. {text}"
    return f'<div style="margin:10px 0 0;font-size:12px;{MUTED}">{text}</div>'
