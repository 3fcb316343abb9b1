"""Two runs side by side: results, search spaces, code and curves."""

from __future__ import annotations

import difflib
import html
from collections.abc import Iterable

import msgspec

from jupyter_ddl.formats import format_count, format_duration, format_score
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.views.drawing import (
    BLUE,
    GREEN,
    GREY,
    MUTED,
    ORANGE,
    RED,
    ROOT_STYLE,
    Drawing,
    TextColumn,
    columns_text,
    dot,
    esc,
    format_distribution,
    format_params,
    plain,
    tint,
)
from jupyter_ddl.views.group import is_group, progress_text
from jupyter_ddl.views.plots import Series, draw_curve, series_of
from jupyter_ddl.views.summary import elapsed_s, state_text
from jupyter_ddl.views.trial_table import Column, draw_table

__all__ = ["ComparedRun", "render_compare"]

_MAX_CODE_LINES = 2000
_MAX_DIFF_LINES = 120
_MAX_ROWS = 40
_LINE = 160
_CELL = 90
_WIDTH = 100
_N_POINTS = 150
_NO_SPACE = "–"


class ComparedRun(msgspec.Struct, frozen=True):
    """One of the two runs."""

    snapshot: RunSnapshot
    spec: RunSpec


class _Fact(msgspec.Struct, frozen=True):
    """One row of the comparison, as clean text."""

    label: str
    first: str
    second: str

    @property
    def differs(self) -> bool:
        return self.first != self.second


def render_compare(a: ComparedRun, b: ComparedRun, *, now_s: float) -> Drawing:
    """What is the same and what is not, as HTML and as text.

    Parameters
    ----------
    now_s : float
        Unix seconds, for a run that has not ended.
    """
    return Drawing(html=lambda: _html(a, b, now_s), text=lambda: _text(a, b, now_s))


def _facts(a: ComparedRun, b: ComparedRun, now_s: float) -> list[_Fact]:
    pairs = [
        *zip(_results(a, now_s), _results(b, now_s), strict=True),
        *zip(_settings(a.spec), _settings(b.spec), strict=True),
    ]
    facts = [_Fact(label, plain(x, _CELL), plain(y, _CELL)) for (label, x), (_, y) in pairs]
    return [fact for fact in facts if fact.first or fact.second]


def _results(run: ComparedRun, now_s: float) -> list[tuple[str, str]]:
    shot = run.snapshot
    best = shot.best
    counts = shot.counts
    return [
        ("state", state_text(shot)),
        ("metric", f"{shot.metric} ({shot.mode})" if shot.metric else ""),
        ("best", "" if best is None else format_score(best.value)),
        ("best trial", "" if best is None else str(best.number)),
        ("best parameters", "" if best is None else format_params(best.params)),
        ("progress", _progress(shot)),
        ("pruned", format_count(counts.pruned) if counts.pruned else ""),
        ("failed", format_count(counts.failed) if counts.failed else ""),
        ("time", format_duration(elapsed_s(shot, now_s))),
    ]


def _progress(shot: RunSnapshot) -> str:
    if is_group(shot):
        return progress_text(shot.last_step, shot.round)
    return f"{format_count(shot.counts.finished)} of {format_count(shot.n_trials)}"


def _settings(spec: RunSpec) -> list[tuple[str, str]]:
    study = spec.verb.study
    origin = spec.provenance
    revision = plain(origin.git_revision or "", 64)[:10]
    return [
        ("sampler", study.sampler.name if study else ""),
        ("pruner", study.pruner.name if study else ""),
        ("seed", str(spec.seed)),
        ("cluster", spec.cluster),
        ("python", origin.python),
        ("image", plain(origin.image, 200)),
        ("git revision", f"{revision} (changed)" if revision and origin.git_dirty else revision),
        ("first line", origin.line),
    ]


def _packages(a: RunSpec, b: RunSpec) -> list[_Fact]:
    """Packages whose versions differ."""
    ours, theirs = a.provenance.packages, b.provenance.packages
    facts = [
        _Fact(
            plain(name, 40),
            plain(ours.get(name, _NO_SPACE), 24),
            plain(theirs.get(name, _NO_SPACE), 24),
        )
        for name in sorted({*ours, *theirs})
    ]
    return [fact for fact in facts if fact.differs]


def _space(a: RunSpec, b: RunSpec) -> list[_Fact]:
    ours, theirs = _distributions(a), _distributions(b)
    return [
        _Fact(plain(name, 40), ours.get(name, _NO_SPACE), theirs.get(name, _NO_SPACE))
        for name in dict.fromkeys([*ours, *theirs])
    ]


def _distributions(spec: RunSpec) -> dict[str, str]:
    study = spec.verb.study
    if study is None:
        return {}
    return {name: plain(format_distribution(dist), _CELL) for name, dist in study.space.items()}


def _code_diff(a: RunSpec, b: RunSpec) -> list[str]:
    """Unified diff of the cells without its file headers; empty when they are the same."""
    diff = difflib.unified_diff(_code_lines(a), _code_lines(b), n=2, lineterm="")
    lines = list(diff)[2:]
    if len(lines) > _MAX_DIFF_LINES:
        n_cut = len(lines) - _MAX_DIFF_LINES
        lines = [*lines[:_MAX_DIFF_LINES], f"… {format_count(n_cut)} lines left out …"]
    return lines


def _code_lines(spec: RunSpec) -> list[str]:
    code = (spec.provenance.cell or spec.program.source).rstrip("\n")
    return [_plain_code(line) for line in code.split("\n")[:_MAX_CODE_LINES]]


def _plain_code(line: str) -> str:
    """A line of code, cleaned, with its indentation."""
    expanded = line.expandtabs(4)
    indent = len(expanded) - len(expanded.lstrip(" "))
    return " " * min(indent, 60) + plain(expanded, _LINE)


def _series(a: ComparedRun, b: ComparedRun) -> list[Series]:
    """Both curves, or none where they cannot share an axis."""
    shots = (a.snapshot, b.snapshot)
    if shots[0].metric != shots[1].metric or shots[0].mode != shots[1].mode:
        return []
    drawn = [
        series_of(shot, color=color, label=_title(shot), n_points=_N_POINTS)
        for shot, color in zip(shots, (BLUE, ORANGE), strict=True)
    ]
    return [one for one in drawn if one is not None]


def _title(snapshot: RunSnapshot) -> str:
    return plain(snapshot.name or snapshot.run_id, 40)


def _html(a: ComparedRun, b: ComparedRun, now_s: float) -> str:
    heads = [
        f"{dot(color)}{esc(_title(run.snapshot), 40)}" for run, color in ((a, BLUE), (b, ORANGE))
    ]
    parts = [_facts_table(_facts(a, b, now_s), heads, "Results and settings")]
    series = _series(a, b)
    if len(series) == 2:
        metric, mode = a.snapshot.metric or "value", a.snapshot.mode
        parts.append(draw_curve(series, metric=metric, mode=mode, inline=False))
    elif a.snapshot.metric != b.snapshot.metric:
        parts.append(_remark("The runs have different metrics; their curves share no axis."))
    parts += [
        _facts_table(_space(a.spec, b.spec), heads, "Search space"),
        _facts_table(_packages(a.spec, b.spec), heads, "Packages that differ"),
        _diff_html(_code_diff(a.spec, b.spec)),
    ]
    label = esc(f"Runs {_title(a.snapshot)} and {_title(b.snapshot)} compared", 120)
    return f'<div role="group" aria-label="{label}" style="{ROOT_STYLE}">{"".join(parts)}</div>'


def _remark(text: str) -> str:
    return f'<div style="margin:12px 0 0;font-size:12px;{MUTED}">{text}</div>'


def _facts_table(facts: list[_Fact], heads: list[str], caption: str) -> str:
    if not facts:
        return ""
    shown = facts[:_MAX_ROWS]
    columns = [
        Column("", tuple(_label(fact) for fact in shown)),
        Column(heads[0], tuple(_side(fact.first, fact) for fact in shown), wraps=True),
        Column(heads[1], tuple(_side(fact.second, fact) for fact in shown), wraps=True),
    ]
    more = f", {len(facts) - len(shown)} more not shown" if len(facts) > len(shown) else ""
    return draw_table(columns, caption=f"{caption}{more}")


def _label(fact: _Fact) -> str:
    return f'<span style="{MUTED}">{esc(fact.label)}</span>'


def _side(text: str, fact: _Fact) -> str:
    """Bold where the runs differ, so that it shows without colour."""
    drawn = esc(text)
    return f'<b style="font-weight:600">{drawn}</b>' if fact.differs else drawn


def _diff_html(lines: list[str]) -> str:
    if not lines:
        return _remark("The code is the same.")
    drawn = "".join(_diff_line(line) for line in lines)
    return (
        f'<div style="margin:12px 0 4px;font-size:12px;{MUTED}">Code</div>'
        f'<pre style="margin:0;padding:6px 0;border:1px solid {tint(GREY, 0.25)};'
        f'border-radius:3px;background:none;font-size:12px;line-height:1.45;overflow-x:auto">{drawn}</pre>'
    )


def _diff_line(line: str) -> str:
    background = ""
    if line.startswith("+"):
        background = f"background:{tint(GREEN, 0.16)};"
    elif line.startswith("-"):
        background = f"background:{tint(RED, 0.14)};"
    elif line.startswith(("@@", "…")):
        background = f"{MUTED};"
    return (
        f'<span style="display:block;padding:0 9px;{background}">{html.escape(line) or " "}</span>'
    )


def _text(a: ComparedRun, b: ComparedRun, now_s: float) -> str:
    heads = (_title(a.snapshot), _title(b.snapshot))
    lines = [*_facts_text(_facts(a, b, now_s), heads)]
    for title, facts in (
        ("Search space", _space(a.spec, b.spec)),
        ("Packages that differ", _packages(a.spec, b.spec)),
    ):
        if facts:
            lines += ["", title, *_facts_text(facts, heads)]
    diff = _code_diff(a.spec, b.spec)
    lines += ["", *(("Code", *diff) if diff else ("The code is the same.",))]
    return "\n".join(lines)


def _facts_text(facts: Iterable[_Fact], heads: tuple[str, str]) -> list[str]:
    shown = list(facts)[:_MAX_ROWS]
    columns = [
        TextColumn("", tuple(f"{'≠' if f.differs else ' '} {f.label}" for f in shown)),
        TextColumn(heads[0], tuple(f.first[:36] for f in shown)),
        TextColumn(heads[1], tuple(f.second[:36] for f in shown)),
    ]
    return columns_text(columns, _WIDTH)
