"""Draws measured rows as Markdown, and as JSON with every single value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.harness import Line, Row, Series

__all__ = ["MeasuredRow", "to_json", "to_markdown"]

_HEAD = (
    "| what | median | IQR | min – max | n | goal | jupyter_ddl is |",
    "|---|---|---|---|---|---|---|",
)


@dataclass(frozen=True)
class MeasuredRow:
    """A row, its values, and how quiet the machine was before and after."""

    row: Row
    series: Mapping[Line, Series]
    before: Mapping[str, float]
    after: Mapping[str, float]


def to_markdown(
    command: str, when: str, machine: Mapping[str, Any], rows: Sequence[MeasuredRow]
) -> str:
    """The whole report."""
    facts = ", ".join(f"{name} {value}" for name, value in machine["host"].items())
    here = ", ".join(f"{name} {version}" for name, version in machine["versions"]["here"].items())
    peers = ", ".join(f"{name} {version}" for name, version in machine["versions"]["peers"].items())
    parts = [
        f"`{command}`, {when}",
        "",
        f"- Machine: {facts}",
        f"- Here: {here}",
        f"- Peers (an environment of their own): {peers or 'not installed'}",
        "",
    ]
    for measured in rows:
        parts += _row(measured)
    return "\n".join(parts).rstrip() + "\n"


def to_json(
    command: str, when: str, machine: Mapping[str, Any], rows: Sequence[MeasuredRow]
) -> dict[str, Any]:
    """Everything that was measured."""
    return {
        "command": command,
        "when": when,
        "machine": dict(machine),
        "rows": [
            {
                "name": measured.row.name,
                "title": measured.row.title,
                "before": dict(measured.before),
                "after": dict(measured.after),
                "lines": [
                    {
                        "label": line.label,
                        "unit": line.unit,
                        "goal": None if line.goal is None else str(line.goal),
                        "values": [float(f"{value:.6g}") for value in series.values],
                        "failures": list(series.failures),
                    }
                    for line, series in measured.series.items()
                ],
            }
            for measured in rows
        ],
    }


def _row(measured: MeasuredRow) -> list[str]:
    row, before, after = measured.row, measured.before, measured.after
    ours = next(iter(measured.series.values()))
    lines: list[str] = []
    told: set[object] = set()
    for line, series in measured.series.items():
        if not series.values and (line.probe, series.failures) in told:
            continue  # one reason per probe
        told.add((line.probe, series.failures))
        lines.append(_line(row, line, series, ours))
    noise = (
        f"Noise: load {before['load_1min']:g} → {after['load_1min']:g}, others' CPU "
        f"{before['others_cpu_percent']:g} % → {after['others_cpu_percent']:g} %, "
        f"a fixed loop took {min(before['spin_min_ms'], after['spin_min_ms']):g} to "
        f"{max(before['spin_max_ms'], after['spin_max_ms']):g} ms."
    )
    note = [row.note, ""] if row.note else []
    return [f"### {row.title}", "", *note, *_HEAD, *lines, "", noise, ""]


def _line(row: Row, line: Line, series: Series, ours: Series) -> str:
    if not series.values:
        return f"| {line.label} | not measured: {_reason(series)} | | | | | |"
    failed = f" ({len(series.failures)} failed: {_reason(series)})" if series.failures else ""
    low, high = series.quartiles
    return (
        f"| {line.label} | **{_number(series.median)}** {line.unit} "
        f"| {_number(low)} – {_number(high)} "
        f"| {_number(min(series.values))} – {_number(max(series.values))} "
        f"| {len(series.values)}{failed} "
        f"| {_goal(line, series)} | {_factor(row, line, series, ours)} |"
    )


def _goal(line: Line, series: Series) -> str:
    if line.goal is None:
        return ""
    return (
        f"{line.goal} {line.unit}".rstrip()
        + f": {'met' if line.goal.is_met(series.median) else '**missed**'}"
    )


def _factor(row: Row, line: Line, series: Series, ours: Series) -> str:
    if not line.compare or not ours.values:
        return ""
    ratio = ours.median / series.median
    better = ratio if row.better == "higher" else 1 / ratio
    return f"{better:.3g} × better" if better >= 1 else f"{1 / better:.3g} × worse"


def _reason(series: Series) -> str:
    return series.failures[-1].replace("|", "/")


def _number(value: float) -> str:
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
