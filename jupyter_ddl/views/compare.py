"""Runs side by side: results, search spaces and curves; of two, the code as well."""

from __future__ import annotations

import difflib
import html
from collections.abc import Iterable, Sequence
from typing import TypeAlias

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

__all__ = ["MAX_COMPARED", "ComparedRun", "render_compare"]

_COLORS = (BLUE, ORANGE, GREEN, RED, "#8e63d8", GREY)
MAX_COMPARED = len(_COLORS)

_MAX_CODE_LINES = 2000
_MAX_DIFF_LINES = 120
_MAX_ROWS = 40
_LINE = 160
_CELL = 90
_WIDTH = 100
_N_POINTS = 150
_NO_SPACE = "–"
_SAME_CODE = "The code is the same."


class ComparedRun(msgspec.Struct, frozen=True):
    """One of the runs."""

    snapshot: RunSnapshot
    spec: RunSpec


_Runs: TypeAlias = Sequence[ComparedRun]


class _Fact(msgspec.Struct, frozen=True):
    """One row of the comparison, as clean text."""

    label: str
    sides: tuple[str, ...]

    @property
    def differs(self) -> bool:
        return len(set(self.sides)) > 1


def render_compare(*runs: ComparedRun, now_s: float, has_curves: bool = True) -> Drawing:
    """What is the same and what is not, as HTML and as text.

    Parameters
    ----------
    runs
        From two to ``MAX_COMPARED``.
    now_s : float
        Unix seconds, for a run that has not ended.
    has_curves : bool
        Whether the picture has them, or says why it has none.
    """
    return Drawing(
        html=lambda: _html(runs, now_s, has_curves=has_curves), text=lambda: _text(runs, now_s)
    )


def _facts(runs: _Runs, now_s: float) -> list[_Fact]:
    told = [[*_results(run, now_s), *_settings(run.spec)] for run in runs]
    facts = [
        _Fact(row[0][0], tuple(plain(text, _CELL) for _, text in row))
        for row in zip(*told, strict=True)
    ]
    return [fact for fact in facts if any(fact.sides)]


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


def _packages(runs: _Runs) -> list[_Fact]:
    """Packages whose versions differ."""
    of_runs = [run.spec.provenance.packages for run in runs]
    facts = [
        _Fact(plain(name, 40), tuple(plain(each.get(name, _NO_SPACE), 24) for each in of_runs))
        for name in sorted({name for each in of_runs for name in each})
    ]
    return [fact for fact in facts if fact.differs]


def _space(runs: _Runs) -> list[_Fact]:
    of_runs = [_distributions(run.spec) for run in runs]
    return [
        _Fact(plain(name, 40), tuple(each.get(name, _NO_SPACE) for each in of_runs))
        for name in dict.fromkeys(name for each in of_runs for name in each)
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


def _code_text(runs: _Runs) -> str:
    """Of more than two runs: a difference is one of two."""
    codes = {tuple(_code_lines(run.spec)) for run in runs}
    return "The code differs; compare two of them to see how." if len(codes) > 1 else _SAME_CODE


def _series(runs: _Runs) -> list[Series]:
    """All curves, or none where they cannot share an axis."""
    shots = [run.snapshot for run in runs]
    if len({(shot.metric, shot.mode) for shot in shots}) > 1:
        return []
    drawn = [
        series_of(shot, color=color, label=_title(shot), n_points=_N_POINTS)
        for shot, color in zip(shots, _COLORS, strict=False)
    ]
    return [one for one in drawn if one is not None]


def _title(snapshot: RunSnapshot) -> str:
    return plain(snapshot.name or snapshot.run_id, 40)


def _html(runs: _Runs, now_s: float, *, has_curves: bool) -> str:
    titles = [_title(run.snapshot) for run in runs]
    heads = [f"{dot(color)}{esc(title, 40)}" for title, color in zip(titles, _COLORS, strict=False)]
    parts = [_facts_table(_facts(runs, now_s), heads, "Results and settings")]
    if has_curves:
        parts += _curves_html(runs)
    parts += [
        _facts_table(_space(runs), heads, "Search space"),
        _facts_table(_packages(runs), heads, "Packages that differ"),
        _remark(_code_text(runs)) if len(runs) > 2 else _diff_html(_code_diff(*_specs(runs))),
    ]
    label = esc(f"Runs {', '.join(titles[:-1])} and {titles[-1]} compared", 120)
    return f'<div role="group" aria-label="{label}" style="{ROOT_STYLE}">{"".join(parts)}</div>'


def _curves_html(runs: _Runs) -> list[str]:
    series = _series(runs)
    first = runs[0].snapshot
    if len(series) > 1:
        metric = first.metric or "value"
        return [draw_curve(series, metric=metric, mode=first.mode, inline=False)]
    if any(run.snapshot.metric != first.metric for run in runs):
        return [_remark("The runs have different metrics; their curves share no axis.")]
    return []


def _remark(text: str) -> str:
    return f'<div style="margin:12px 0 0;font-size:12px;{MUTED}">{text}</div>'


def _facts_table(facts: list[_Fact], heads: list[str], caption: str) -> str:
    if not facts:
        return ""
    shown = facts[:_MAX_ROWS]
    columns = [
        Column("", tuple(_label(fact) for fact in shown)),
        *(
            Column(head, tuple(_side(fact.sides[n], fact) for fact in shown), wraps=True)
            for n, head in enumerate(heads)
        ),
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
        return _remark(_SAME_CODE)
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


def _text(runs: _Runs, now_s: float) -> str:
    heads = [_title(run.snapshot) for run in runs]
    lines = [*_facts_text(_facts(runs, now_s), heads)]
    for title, facts in (
        ("Search space", _space(runs)),
        ("Packages that differ", _packages(runs)),
    ):
        if facts:
            lines += ["", title, *_facts_text(facts, heads)]
    if len(runs) > 2:
        return "\n".join([*lines, "", _code_text(runs)])
    diff = _code_diff(*_specs(runs))
    lines += ["", *(("Code", *diff) if diff else (_SAME_CODE,))]
    return "\n".join(lines)


def _specs(runs: _Runs) -> list[RunSpec]:
    return [run.spec for run in runs]


def _facts_text(facts: Iterable[_Fact], heads: Sequence[str]) -> list[str]:
    shown = list(facts)[:_MAX_ROWS]
    columns = [
        TextColumn("", tuple(f"{'≠' if f.differs else ' '} {f.label}" for f in shown)),
        *(TextColumn(head, tuple(f.sides[n][:36] for f in shown)) for n, head in enumerate(heads)),
    ]
    return columns_text(columns, _WIDTH)
