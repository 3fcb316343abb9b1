"""Programs as people paste them, run as they are: in the notebook, on two ranks, and as a search.

A program is a file below ``programs/``: a sentence, lines ``# key = value``, then its cells behind
``# %%``.  The cells that get a first line stand last, each behind ``# %% train``.  Keys:

- ``result``: an expression for the number (or numbers, or dict of them) that the program comes to
- ``ddp``, ``run``, ``search``, ``map``, ``fit``: options behind ``%%distribute VERB``; one that is
  not there makes no sense for the program
- ``tolerance``: how far the result on ranks may be from the plain one; 0 by default
- ``plain``: the command that runs it as a script, where it is none for a notebook, such as
  ``torchrun --nproc-per-node 2``
- ``needs``: packages without which it is skipped
- ``broken``: why it does not run yet; the test says when it does
- ``last``: what it leaves in the notebook's process; others run before

A line that had to be changed for a cluster, beyond the first one, ends in ``# changed``.  A line of
IPython stands behind ``#: ``.  Every way to run begins in an empty folder.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.live_kernel import CellOutput, LiveKernel

__all__ = ["PROGRAMS", "VERBS", "Program", "distance", "programs", "run_plainly", "run_under"]

VERBS = ("ddp", "run", "search", "map", "fit")
PROGRAMS = Path(__file__).with_name("programs")
_KEY = re.compile(r"^# (\w+) = ?(.*)$", re.MULTILINE)
_CELL = re.compile(r"^# %%[ \t]*(.*)\n", re.MULTILINE)
_LINE = re.compile(r"^#: ", re.MULTILINE)
_TIMEOUT_S = 240.0


@dataclass(frozen=True)
class Program:
    """One file of ``programs/``."""

    name: str
    settings: dict[str, str]
    before: tuple[str, ...]
    """Cells that run in the notebook, whoever executes the program."""
    cells: tuple[str, ...]
    """Those that get a first line."""

    @classmethod
    def read(cls, path: Path) -> Program:
        head, *rest = _CELL.split(path.read_text(encoding="utf-8"))
        titles, cells = rest[::2], [cell.strip("\n") + "\n" for cell in rest[1::2]]
        assert "train" in titles, f"{path.name} needs a cell behind '# %% train'"
        at = titles.index("train")
        assert set(titles[at:]) == {"train"}, f"{path.name} has other cells behind '# %% train'"
        return cls(path.stem, dict(_KEY.findall(head)), tuple(cells[:at]), tuple(cells[at:]))

    @property
    def n_changed(self) -> int:
        """Lines beyond the first one that are different on a cluster."""
        return sum(cell.count("# changed\n") for cell in (*self.before, *self.cells))

    @property
    def tolerance(self) -> float:
        return float(self.settings.get("tolerance", 0))

    def require(self) -> None:
        """Skip the test where a package is missing."""
        for name in self.settings.get("needs", "").replace(" ", "").split(","):
            if name and importlib.util.find_spec(name) is None:
                pytest.skip(f"{name} is not installed: make test-real installs it")


def programs() -> list[Program]:
    """All of them, in the order in which they run in one kernel."""
    found = [Program.read(path) for path in sorted(PROGRAMS.glob("*.py"))]
    return sorted(found, key=lambda program: "last" in program.settings)


def run_plainly(kernel: LiveKernel, program: Program, folder: Path) -> Any:
    """Run all cells as they stand; the result."""
    if "plain" in program.settings:
        return _run_script(program, folder)
    _begin(kernel, folder)
    for cell in (*program.before, *program.cells):
        kernel.run(_LINE.sub("", cell), _TIMEOUT_S).check()
    return _value(kernel, program.settings["result"])


def run_under(kernel: LiveKernel, program: Program, verb: str, folder: Path) -> CellOutput:
    """Run the program with a first line before its last cells; the run is bound to ``_run``."""
    _begin(kernel, folder)
    for cell in program.before:
        kernel.run(_LINE.sub("", cell), _TIMEOUT_S).check()
    lines = [f"%%distribute {verb} {program.settings[verb]}"] * len(program.cells)
    result = program.settings["result"]
    if verb in ("ddp", "run") and result.isidentifier():
        lines[-1] += f" --bring {result}"
    for line, cell in zip(lines, program.cells, strict=True):
        shown = kernel.run(f"{line}\n{_LINE.sub('', cell)}", _TIMEOUT_S).check()
    if verb == "run":  # a group would keep its slots from the next program
        kernel.run("import jupyter_ddl\njupyter_ddl.open_group().close()", _TIMEOUT_S).check()
    return shown


def _begin(kernel: LiveKernel, folder: Path) -> None:
    folder.mkdir()
    kernel.run(f"%reset -f\n%cd -q {folder}").check()


def _run_script(program: Program, folder: Path) -> Any:
    """The result of what the user would start from a terminal."""
    folder.mkdir()
    script, out = folder / "program.py", folder / "result.json"
    writes = (
        f"open({str(out)!r}, 'w').write(__import__('json').dumps({program.settings['result']}))"
    )
    lines = "".join((*program.before, *program.cells))
    first = "__import__('os').environ.get('RANK', '0') == '0'"
    script.write_text(f"{lines}\nif __name__ == '__main__' and {first}:\n    {writes}\n")
    command = program.settings["plain"].replace("torchrun", "-m torch.distributed.run --standalone")
    words = [sys.executable, *shlex.split(command.removeprefix("python")), script.name]
    with subprocess.Popen(words, cwd=folder, start_new_session=True) as script_process:
        try:
            assert script_process.wait(_TIMEOUT_S) == 0, f"{script} failed"
        except BaseException:
            os.killpg(script_process.pid, signal.SIGKILL)  # torchrun's ranks outlive it
            raise
    return json.loads(out.read_text())


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
