"""What the programs came to, as the table of a page of the documentation.

``make test-real ARGS=--real-table=docs/coming-from/real-code.md`` writes the rows of the programs
that ran into the page and leaves the others as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.real.harness import Program

__all__ = ["Row", "write_rows"]

_ROW = re.compile(r"^\| `(\w+)` \|.*\n", re.MULTILINE)
_RULE = re.compile(r"^\|(?:-+:?\|)+\n", re.MULTILINE)


@dataclass
class Row:
    """One program; filled while it runs."""

    program: Program
    plain: Any = None
    away: float | None = None
    verbs: list[str] = field(default_factory=list)
    seconds: float | None = None
    """None until all ways to run it are through."""

    @property
    def is_told(self) -> bool:
        """Whether this says something of the program: not after an interrupt or a failure."""
        return self.seconds is not None or "broken" in self.program.settings

    def line(self) -> str:
        settings = self.program.settings
        cells = [f"`{self.program.name}`", self._plain(), self._away()]
        ran = ", ".join(f"`{verb} {settings[verb]}`".replace(" `", "`") for verb in self.verbs)
        cells += [ran.replace("|", r"\|") or "none", str(self.program.n_changed)]
        took = f"{self.seconds:.0f} s" if self.seconds is not None else "broken"
        return f"| {' | '.join([*cells, took, f'{datetime.now(UTC):%Y-%m-%d}'])} |\n"

    def _plain(self) -> str:
        value = self.plain
        shown = (
            f"{value:.6g}"
            if isinstance(value, float)
            else re.sub(r"(\.\d{4})\d+", r"\1", str(value))
        )
        return shown if self.plain is not None else ""

    def _away(self) -> str:
        return "" if self.away is None else f"{self.away:.2g} of {self.program.tolerance:g}"


def write_rows(page: Path, rows: dict[str, Row]) -> None:
    """Replace these programs' rows in the page's table."""
    text = page.read_text(encoding="utf-8")
    lines = {found[1]: found[0] for found in _ROW.finditer(text)}
    lines |= {name: row.line() for name, row in rows.items()}
    rule = _RULE.search(text)
    assert rule, f"{page} has no table"
    body = "".join(line for _, line in sorted(lines.items()))
    page.write_text(text[: rule.end()] + body + _ROW.sub("", text[rule.end() :]), encoding="utf-8")
