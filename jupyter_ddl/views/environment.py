"""What an environment asks for, and how kernel and workers differ (``%cluster env``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jupyter_ddl.environment.compare import unmet
from jupyter_ddl.environment.requirements import Configuration, Declared
from jupyter_ddl.formats import format_count
from jupyter_ddl.protocol.facts import EnvironmentVerdict, Facts, VerdictWord
from jupyter_ddl.views.drawing import (
    AMBER,
    GREEN,
    MUTED,
    RED,
    ROOT_STYLE,
    Drawing,
    TextColumn,
    columns_text,
    esc,
    pill,
    plain,
)
from jupyter_ddl.views.trial_table import Column, draw_table

__all__ = ["render_environment", "render_verdict"]

_LIMIT = 120
_CELL = 32
_MAX_ROWS = 40
_COLORS: Final[dict[VerdictWord, str]] = {"same": GREEN, "drift": AMBER, "broken": RED}
_SENTENCES: Final[dict[VerdictWord, str]] = {
    "same": "Workers have the kernel's environment.",
    "drift": "Workers differ in what may change results.",
    "broken": "Workers differ in what breaks cells.",
}
_SAME_AS_USED: Final = "Workers have what is used here as the kernel has it."
_ONLY_FILES: Final = "Files beside the notebook ask for other packages than the kernel has."

_Table = list[tuple[str, tuple[str, ...]]]
"""(heading, cells), cleaned but not escaped."""


def render_environment(
    asked: Configuration | None, kernel: Facts, used: Sequence[str], *, width: int = 100
) -> Drawing:
    """What the notebook's folder asks for, beside what the kernel has.

    Parameters
    ----------
    asked : Configuration or None
        None where the folder has no files that repo2docker builds from.
    used : sequence of str
        Packages that the notebook uses; shown where no file asks for any.
    width : int
        Of the text form in terminal cells.
    """
    facts = _facts(asked, kernel)
    table, n_more = _packages(asked, kernel, used)
    return Drawing(
        html=lambda: _html(facts, table, n_more), text=lambda: _text(facts, table, n_more, width)
    )


def render_verdict(
    verdict: EnvironmentVerdict, notes: Sequence[str] = (), *, width: int = 100
) -> Drawing:
    """The verdict with its table of differences and what fixes them."""
    every = (*verdict.differences, *verdict.others)
    shown = every[:_MAX_ROWS]
    table: _Table = [
        ("differs", tuple(plain(each.what, 40) for each in shown)),
        ("here", tuple(plain(each.kernel, _CELL) for each in shown)),
        ("there", tuple(plain(each.other, _CELL) for each in shown)),
        ("where", tuple(plain(each.where, _CELL) for each in shown)),
        ("", tuple(_effect(verdict, at) for at in range(len(shown)))),
    ]
    table = [column for column in table if any(column[1])]
    lines = _fixes(verdict) + _more(verdict, len(every) - len(shown), notes)
    sentence = _SENTENCES[verdict.word]
    if verdict.word == "same" and verdict.others:
        sentence = _SAME_AS_USED
    if verdict.differences and not any("worker" in each.where for each in verdict.differences):
        sentence = _ONLY_FILES
    return Drawing(
        html=lambda: _verdict_html(verdict.word, sentence, table, lines),
        text=lambda: _verdict_text(verdict.word, sentence, table, lines, width),
    )


def _effect(verdict: EnvironmentVerdict, at: int) -> str:
    if at >= len(verdict.differences):
        return "not used here"
    return "breaks cells" if verdict.differences[at].breaks else ""


def _fixes(verdict: EnvironmentVerdict) -> list[str]:
    """Each command once, with what it fixes."""
    grouped: dict[str, list[str]] = {}
    for each in verdict.differences:
        if each.fix:
            grouped.setdefault(each.fix.replace("`", ""), []).append(plain(each.what, 40))
    return [
        f"To fix {', '.join(dict.fromkeys(whats))}: {plain(fix, 200)}"
        for fix, whats in grouped.items()
    ]


def _more(verdict: EnvironmentVerdict, n_hidden: int, notes: Sequence[str]) -> list[str]:
    lines = [f"{format_count(n_hidden)} more differences are not shown."] if n_hidden else []
    if verdict.others:
        n = len({each.what for each in verdict.others})
        noun = "difference is" if n == 1 else "differences are"
        lines.append(
            f"{format_count(n)} other {noun} in what nothing here imports; %cluster env sync --all "
            f"installs those packages, too."
        )
    return [*lines, *(f"Note: {plain(note, 300)}." for note in notes)]


def _facts(asked: Configuration | None, kernel: Facts) -> list[tuple[str, str]]:
    if asked is None:
        found = [("source", "this kernel's own packages: no binder files beside the notebook")]
    else:
        found = [
            ("source", f"{asked.title} ({asked.buildpack} of repo2docker)"),
            ("digest", asked.digest[:12]),
            ("not read", ", ".join(asked.ignored)),
            ("asks for", f"Python {asked.python}" if asked.python else ""),
        ]
    found += [
        ("kernel", f"{kernel.implementation} {kernel.python} on {kernel.machine}"),
        ("numerical", ", ".join(part for part in (kernel.blas, _torch(kernel)) if part)),
        ("installed", f"{format_count(len(kernel.packages))} packages"),
    ]
    if kernel.held:
        names = ", ".join(sorted(kernel.held))
        found.append(("replaced", f"{names}: restart the kernel to load what is installed"))
    return [(label, plain(value, 300)) for label, value in found if value]


def _torch(kernel: Facts) -> str:
    version = kernel.packages.get("torch")
    if not version or kernel.torch_build in version:
        return f"torch {version}" if version else ""
    return f"torch {version} for {kernel.torch_build}"


def _packages(
    asked: Configuration | None, kernel: Facts, used: Sequence[str]
) -> tuple[_Table, int]:
    if asked is not None and asked.packages:
        differing = {each.what for each in unmet(kernel, asked)}
        rows = [
            (
                each.name,
                each.specifier or "any",
                _here(each, kernel),
                f"{each.file}:{each.line}",
                "differs" if each.name in differing else "",
            )
            for each in asked.packages
        ]
        headings = ["package", "asked for", "here", "where", ""]
    else:
        rows = [(name, kernel.packages.get(name, "none"), "", "", "") for name in used]
        headings = ["package", "here"]
    shown = rows[:_MAX_ROWS]
    table = [
        (heading, tuple(plain(row[at], _LIMIT) for row in shown))
        for at, heading in enumerate(headings)
    ]
    return [column for column in table if any(column[1])], len(rows) - len(shown)


def _here(each: Declared, kernel: Facts) -> str:
    if each.name == "python":
        return kernel.python
    version = kernel.packages.get(each.name, "")
    return version or ("none" if each.installer == "pip" else "no Python package")


def _html(facts: list[tuple[str, str]], table: _Table, n_more: int) -> str:
    rows = "".join(
        f'<tr style="background:none"><th scope="row" style="text-align:left;font-weight:400;'
        f'padding:1px 16px 1px 0;white-space:nowrap;{MUTED}">{label}</th>'
        f'<td style="text-align:left;padding:1px 0;overflow-wrap:break-word">{esc(value, 300)}'
        f"</td></tr>"
        for label, value in facts
    )
    head = (
        '<table style="border-collapse:collapse;width:auto;margin:0;border:none;font-size:12px">'
        f"<tbody>{rows}</tbody></table>"
    )
    caption = f"Packages, {format_count(n_more)} more not shown" if n_more else "Packages"
    return f'<div style="{ROOT_STYLE}">{head}{_draw(table, caption)}</div>'


def _draw(table: _Table, caption: str) -> str:
    if not table:
        return ""
    columns = [
        Column(heading, tuple(esc(cell, _LIMIT) for cell in cells)) for heading, cells in table
    ]
    return draw_table(columns, caption=caption)


def _text(facts: list[tuple[str, str]], table: _Table, n_more: int, width: int) -> str:
    label_width = max(len(label) for label, _ in facts)
    lines = ["environment", *(f"  {label:<{label_width}}  {value}" for label, value in facts)]
    if table:
        lines += ["", *columns_text([TextColumn(*column) for column in table], width)]
    if n_more:
        lines.append(f"{format_count(n_more)} more not shown")
    return "\n".join(lines)


def _verdict_html(word: VerdictWord, said: str, table: _Table, lines: list[str]) -> str:
    sentence = f'<span style="font-size:12px">{said}</span>'
    notes = "".join(
        f'<div style="margin:6px 0 0;font-size:12px;{MUTED}">{esc(line, 400)}</div>'
        for line in lines
    )
    return (
        f'<div role="group" aria-label="Environment" style="{ROOT_STYLE}">'
        '<div style="display:flex;flex-wrap:wrap;align-items:baseline;gap:2px 10px">'
        f"{pill(_COLORS[word], word)}{sentence}</div>{_draw(table, 'Differences')}{notes}</div>"
    )


def _verdict_text(word: VerdictWord, said: str, table: _Table, lines: list[str], width: int) -> str:
    drawn = [f"environment · {word}: {said}"]
    if table:
        drawn += columns_text([TextColumn(*column) for column in table], width)
    return "\n".join([*drawn, *lines])
