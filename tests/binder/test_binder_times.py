"""The tool that times notebooks in a container like Binder's; the container itself takes root."""

from __future__ import annotations

import re
from pathlib import Path

import binder_times
import nbformat
import pytest


def test_without_control_groups_it_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(binder_times, "_GROUPS", tmp_path)
    monkeypatch.setattr("sys.argv", ["binder_times.py"])
    assert binder_times.main() == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"no container can be made: cpu below {tmp_path} can't be written; "
        "expected control groups of version 1 and root's rights\n"
    )


_MAGICS = """
import time
from IPython.core.magic import register_cell_magic, register_line_magic

@register_line_magic
def cluster(line):
    time.sleep(0.2)

@register_cell_magic
def distribute(line, cell):
    time.sleep(0.4)
"""


def test_times_are_those_of_the_cells_that_they_name(tmp_path: Path) -> None:
    new = nbformat.v4
    cells = [
        new.new_code_cell(_MAGICS),
        new.new_markdown_cell("%cluster start is no code here"),
        new.new_code_cell("%cluster start"),
        new.new_code_cell("%%distribute search\n1"),
        new.new_code_cell("assert False, 'left off before'"),
    ]
    path = tmp_path / "notebooks" / "short.ipynb"
    path.parent.mkdir()
    nbformat.write(new.new_notebook(cells=cells), path)
    found = binder_times.times(path, "%%distribute")
    assert found["start"] >= 0.2
    assert found["cell"] >= 0.4
    assert found["all"] >= found["kernel"] + found["first"] + found["start"] + found["cell"]


def test_a_row_has_every_time_and_says_what_was_not_there() -> None:
    found = {"kernel": 1.0, "first": 2.25, "start": None, "cell": 0.5, "all": 12.0}
    row = binder_times.row("01_quickstart", found, 300 << 20, killed=True)
    assert re.sub(r"\s+", " ", row) == "01_quickstart 1.00 2.25 -- 0.50 12.00 300 MB KILLED"
