"""Programs as people paste them, run as they are: in the notebook, on two ranks, and as a search.

A program is a file below ``programs/``: a sentence, lines ``# key = value``, then its cells behind
``# %%``.  The cell that gets a first line stands behind ``# %% train``.  Keys:

- ``result``: the name of the number (or numbers, or dict of them) that the program comes to
- ``ddp``, ``search``, ``map``, ``fit``: options behind ``%%distribute VERB``; one that is
  not there makes no sense for the program
- ``tolerance``: how far the result on ranks may be from the plain one; 0 by default
- ``needs``: packages without which it is skipped

A line that had to be changed for a cluster, beyond the first one, ends in ``# changed``.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.live_kernel import CellOutput, LiveKernel

__all__ = ["PROGRAMS", "VERBS", "Program", "distance", "run_plainly", "run_under"]

VERBS = ("ddp", "search", "map", "fit")
PROGRAMS = Path(__file__).with_name("programs")
_KEY = re.compile(r"^# (\w+) = ?(.*)$", re.MULTILINE)
_CELL = re.compile(r"^# %%[ \t]*(.*)\n", re.MULTILINE)
_TIMEOUT_S = 240.0


@dataclass(frozen=True)
class Program:
    """One file of ``programs/``."""

    name: str
    settings: dict[str, str]
    before: tuple[str, ...]
    """Cells that run in the notebook, whoever executes the program."""
    cell: str
    """The one that gets a first line."""

    @classmethod
    def read(cls, path: Path) -> Program:
        head, *rest = _CELL.split(path.read_text(encoding="utf-8"))
        titles, cells = rest[::2], [cell.strip("\n") + "\n" for cell in rest[1::2]]
        assert titles.count("train") == 1, f"{path.name} needs one cell behind '# %% train'"
        at = titles.index("train")
        assert at == len(cells) - 1, f"{path.name} has cells behind the one that is distributed"
        return cls(path.stem, dict(_KEY.findall(head)), tuple(cells[:at]), cells[at])

    @property
    def n_changed(self) -> int:
        """Lines beyond the first one that are different on a cluster."""
        return sum(cell.count("# changed\n") for cell in (*self.before, self.cell))

    @property
    def tolerance(self) -> float:
        return float(self.settings.get("tolerance", 0))

    def require(self) -> None:
        """Skip the test where a package is missing."""
        for name in self.settings.get("needs", "").replace(" ", "").split(","):
            if name and importlib.util.find_spec(name) is None:
                pytest.skip(f"{name} is not installed: make test-real installs it")


def run_plainly(kernel: LiveKernel, program: Program) -> Any:
    """Run all cells as they stand; the result."""
    kernel.run("%reset -f")
    for cell in (*program.before, program.cell):
        kernel.run(cell, _TIMEOUT_S).check()
    return _value(kernel, program.settings["result"])


def run_under(kernel: LiveKernel, program: Program, verb: str) -> CellOutput:
    """Run the program with a first line before its last cell; the run is bound to ``_run``."""
    kernel.run("%reset -f")
    for cell in program.before:
        kernel.run(cell, _TIMEOUT_S).check()
    line = f"%%distribute {verb} {program.settings[verb]}"
    if verb == "ddp":
        line += f" --bring {program.settings['result']}"
    return kernel.run(f"{line}\n{program.cell}", _TIMEOUT_S).check()


def distance(kernel: LiveKernel, program: Program, plain: Any) -> float:
    """How far the result that is in the notebook now is from the plain one."""
    seen = _value(kernel, program.settings["result"])
    return max((abs(a - b) for a, b in zip(_flat(seen), _flat(plain), strict=True)), default=0.0)


def _value(kernel: LiveKernel, expression: str) -> Any:
    printed = kernel.value(
        f"__import__('json').dumps({expression}, default=lambda value: value.tolist())"
    )
    return json.loads(ast.literal_eval(printed))


def _flat(value: Any) -> list[float]:
    if isinstance(value, dict):
        value = list(value.values())
    return [x for each in value for x in _flat(each)] if isinstance(value, list) else [value]
