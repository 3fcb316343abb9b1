"""All about one run: its view, what it was told, where it comes from, how to run it again."""

from __future__ import annotations

import html
import time
from pathlib import Path

from jupyter_ddl.formats import format_bytes, format_counted, format_duration, format_held
from jupyter_ddl.protocol.facts import EnvironmentStatus
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.views.drawing import (
    GREY,
    MUTED,
    ROOT_STYLE,
    Drawing,
    TextColumn,
    columns_text,
    esc,
    format_distribution,
    plain,
    plain_lines,
    tint,
)
from jupyter_ddl.views.group import cells_html, cells_text
from jupyter_ddl.views.html import render_html
from jupyter_ddl.views.summary import costs
from jupyter_ddl.views.text import render_text
from jupyter_ddl.views.trial_table import Column, draw_table

__all__ = ["again_line", "render_details"]

_CELL = 400
_CODE = 20_000
_WIDTH = 100


def render_details(
    snapshot: RunSnapshot, spec: RunSpec, *, directory: Path, now_s: float
) -> Drawing:
    """One run in full, as HTML and as text.

    Parameters
    ----------
    directory : Path
        Where its ledger, logs, checkpoints and values lie.
    now_s : float
        Unix seconds, for a run that has not ended.
    """
    return Drawing(
        html=lambda: _html(snapshot, spec, directory, now_s),
        text=lambda: _text(snapshot, spec, directory, now_s),
    )


def again_line(spec: RunSpec) -> str:
    """The first line that runs the cell again with the same trials; empty where it is not known."""
    line = spec.provenance.line.strip()
    if not line or "--seed" in line or spec.verb.can.has_cells:
        return line
    return f"{line} --seed {spec.seed}"


def _settings(spec: RunSpec, directory: Path) -> list[tuple[str, str]]:
    study = spec.verb.study
    origin = spec.provenance
    limits = spec.limits
    created = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(spec.created_at_s))
    at = "@".join(part for part in (origin.user, origin.host) if part)
    revision = (origin.git_revision or "")[:10]
    facts = [
        ("metric", f"{study.metric} ({study.mode})" if study else ""),
        ("sampler", study.sampler.name if study else ""),
        ("pruner", study.pruner.name if study else ""),
        ("ranks", spec.verb.group_text),
        ("seed", str(spec.seed)),
        ("timeout", format_duration(limits.timeout_s) if limits.timeout_s else ""),
        ("brings", ", ".join(spec.bring)),
        ("captured", _captures(spec)),
        ("started", f"{created} by {at}" if at else created),
        ("notebook", origin.notebook or ""),
        ("git revision", f"{revision} (changed)" if revision and origin.git_dirty else revision),
        ("python", origin.python),
        ("packages", ", ".join(f"{name} {v}" for name, v in origin.packages.items())),
        ("environment", _environment(origin.environment)),
        ("image", origin.image),
        ("directory", str(directory)),
    ]
    return [(label, plain(value, _CELL)) for label, value in facts if value]


def _environment(verdict: EnvironmentStatus | None) -> str:
    """Whether the workers had the kernel's environment when the run began."""
    if verdict is None:
        return ""
    return f"{verdict.word}: {verdict.text}" if verdict.text else verdict.word


def _held(snapshot: RunSnapshot) -> list[tuple[str, str]]:
    """What a run that is over has held."""
    usage = snapshot.usage
    if usage is None:
        return []
    held = format_held(usage.cpu_hours, "CPU")
    if usage.gpu_hours:
        held += f", {format_held(usage.gpu_hours, 'GPU')}"
    peaks = [peak for peak in usage.peak_memory_bytes if peak is not None]
    facts = [("held", held)]
    facts += [("spent", text) for text in costs(snapshot, 0.0)]
    if peaks:
        most = max(peaks)
        rank = f" (rank {usage.peak_memory_bytes.index(most)})" if len(peaks) > 1 else ""
        facts.append(("peak memory", f"{format_bytes(most)}{rank}"))
    return facts


def _captures(spec: RunSpec) -> str:
    names = [each.name for each in spec.program.captures]
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(names[:12]) + more


def _space(spec: RunSpec) -> list[tuple[str, str]]:
    study = spec.verb.study
    if study is None:
        return []
    return [
        (plain(name, 60), plain(format_distribution(found), _CELL))
        for name, found in study.space.items()
    ]


def _code(spec: RunSpec) -> str:
    return plain_lines(spec.provenance.cell or spec.program.source.lstrip("\n"), _CODE)


def _html(snapshot: RunSnapshot, spec: RunSpec, directory: Path, now_s: float) -> str:
    is_cells = spec.verb.can.has_cells
    parts = [cells_html(snapshot) if is_cells else render_html(snapshot, now_s=now_s, live=False)]
    space = _space(spec)
    if space:
        parts.append(_table(space, "Search space"))
    parts.append(_table([*_held(snapshot), *_settings(spec, directory)], "Settings"))
    again = again_line(spec)
    if again:
        parts.append(_heading("The line that runs it again") + _pre(again))
    n_lines = _code(spec).count("\n") + 1
    size = format_counted(n_lines, "line")
    parts.append(
        f'<details style="margin:12px 0 0;font-size:12px"><summary style="{MUTED}">'
        f"The cell ({size})</summary>{_pre(_code(spec))}</details>"
    )
    return f'<div style="{ROOT_STYLE}">{"".join(parts)}</div>'


def _table(facts: list[tuple[str, str]], caption: str) -> str:
    labels = tuple(f'<span style="{MUTED}">{esc(label)}</span>' for label, _ in facts)
    values = tuple(esc(value, _CELL) for _, value in facts)
    return draw_table([Column("", labels), Column("", values, wraps=True)], caption=caption)


def _heading(text: str) -> str:
    return f'<div style="margin:12px 0 4px;font-size:12px;{MUTED}">{text}</div>'


def _pre(text: str) -> str:
    return (
        f'<pre style="margin:0;padding:6px 9px;border:1px solid {tint(GREY, 0.25)};'
        f"border-radius:3px;background:none;font-size:12px;line-height:1.45;overflow-x:auto"
        f'">{html.escape(text)}</pre>'
    )


def _text(snapshot: RunSnapshot, spec: RunSpec, directory: Path, now_s: float) -> str:
    is_cells = spec.verb.can.has_cells
    lines = [cells_text(snapshot, _WIDTH) if is_cells else render_text(snapshot, now_s, _WIDTH)]
    settings = [*_held(snapshot), *_settings(spec, directory)]
    for title, facts in (("Search space", _space(spec)), ("Settings", settings)):
        if facts:
            lines += ["", title, *_facts_text(facts)]
    again = again_line(spec)
    if again:
        lines += ["", "The line that runs it again", f"  {again}"]
    if is_cells:
        return "\n".join(lines)
    code = _code(spec).split("\n")
    return "\n".join([*lines, "", "The cell", *(f"  {line}" for line in code)])


def _facts_text(facts: list[tuple[str, str]]) -> list[str]:
    labels = TextColumn("", tuple(f"  {label}" for label, _ in facts))
    values = TextColumn("", tuple(value for _, value in facts))
    return columns_text([labels, values], 10_000)[1:]
