"""The suite of real programs: how they are read, and the table that it writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.real.harness import PROGRAMS, VERBS, Program, programs
from tests.real.table import Row, write_rows

_ROOT = Path(__file__).resolve().parents[2]
_PAGE = _ROOT / "docs" / "coming-from" / "real-code.md"
_TEXT = """# Title

Before.

| program | result |
|---|---:|
| `alpha` | old |
| `gamma` | kept |

Behind.
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    path = tmp_path / "alpha.py"
    path.write_text(
        "# A sentence.\n# result = loss\n# ddp = -n 2\n# search = --grid kind=a|b\n"
        "# tolerance = 0.5\n# %%\nx = 1\n# %%\n#: %cd -q .\n# %% train\n"
        "import torch\nloss = x  # changed\n"
    )
    return Program.read(path)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(_TEXT)
    return path


def _row(program: Program, **fields: object) -> Row:
    return Row(program, **{"plain": 1.0, "away": 0.25, "verbs": ["ddp"], "seconds": 61.6} | fields)  # type: ignore[arg-type]


def test_a_file_is_settings_cells_before_and_cells_with_a_first_line(program: Program) -> None:
    assert program.settings == {
        "result": "loss",
        "ddp": "-n 2",
        "search": "--grid kind=a|b",
        "tolerance": "0.5",
    }
    assert program.before == ("x = 1\n", "#: %cd -q .\n")
    assert program.cells == ("import torch\nloss = x  # changed\n",)
    assert (program.tolerance, program.n_changed) == (0.5, 1)


@pytest.mark.parametrize("tail", ["", "# %% train\ny = 1\n# %%\nz = 1\n"])
def test_cells_with_a_first_line_stand_last(tmp_path: Path, tail: str) -> None:
    path = tmp_path / "odd.py"
    path.write_text(f"# Odd.\n# %%\nx = 1\n{tail}")
    with pytest.raises(AssertionError, match=r"odd\.py"):
        Program.read(path)


def test_a_row_says_what_was_seen(program: Program) -> None:
    line = _row(program, plain=0.123456789, verbs=["ddp", "search"]).line()
    name, result, away, first_lines, changed, took, day = line.strip("|\n").split(" | ")
    assert (name.strip(), result, away) == ("`alpha`", "0.123457", "0.25 of 0.5")
    assert first_lines == r"`ddp -n 2`, `search --grid kind=a\|b`"
    assert (changed, took) == ("1", "62 s")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d ", day)


@pytest.mark.parametrize(
    ("plain", "shown"),
    [(3, "3"), ([1.23456789, 2], "[1.2345, 2]"), ({"a": 0.0}, "{'a': 0.0}"), (None, "")],
)
def test_results_of_all_kinds_are_short(program: Program, plain: object, shown: str) -> None:
    assert _row(program, plain=plain).line().split(" | ")[1] == shown


def test_what_was_run_under_no_line_says_so(program: Program) -> None:
    cells = _row(program, verbs=[], away=None).line().split(" | ")
    assert cells[2:4] == ["", "none"]


def test_a_row_of_a_program_that_failed_or_was_interrupted_tells_nothing(program: Program) -> None:
    assert _row(program).is_told
    assert not _row(program, seconds=None).is_told
    program.settings["broken"] = "why"
    known = _row(program, seconds=None)
    assert known.is_told
    assert " | broken | " in known.line()


def test_rows_are_replaced_and_added_in_order_and_all_else_stays(
    program: Program, page: Path
) -> None:
    write_rows(page, {"alpha": _row(program)})
    write_rows(page, {"beta": _row(Program("beta", {}, (), ()), verbs=[], plain=2)})
    text = page.read_text()
    before, rows, behind = re.split(r"^(?:\|[-:|]+\|\n)|\n(?=\nBehind)", text, flags=re.MULTILINE)
    assert before.endswith("| program | result |\n")
    names = [row.split("`")[1] for row in rows.strip().splitlines()]
    assert names == ["alpha", "beta", "gamma"]
    assert "old" not in rows
    assert "| `gamma` | kept |" in rows
    assert behind == "\nBehind.\n"
    once = page.read_text()
    write_rows(page, {})
    assert page.read_text() == once


def test_a_page_without_a_table_is_refused(tmp_path: Path, program: Program) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Nothing\n")
    with pytest.raises(AssertionError, match="has no table"):
        write_rows(page, {"alpha": _row(program)})


def test_the_page_has_every_program_and_no_other() -> None:
    told = re.findall(r"^\| `(\w+)` \|", _PAGE.read_text(), re.MULTILINE)
    assert told == sorted(path.stem for path in PROGRAMS.glob("*.py"))
    assert f"[{len(told)} programs as people paste them]" in (_ROOT / "README.md").read_text()


def test_the_page_says_what_its_rows_say() -> None:
    text = _PAGE.read_text()
    assert "All programs below run, and none has a changed line." in text
    rows = re.findall(r"^\| `\w+` \|.*", text, re.MULTILINE)
    assert [row for row in rows if row.split(" | ")[4] != "0" or "broken" in row] == []


def test_programs_run_under_verbs_that_the_suite_knows_and_have_a_result() -> None:
    known = {"result", "tolerance", "plain", "needs", "broken", "last", *VERBS}
    found = programs()
    assert len(found) == len(list(PROGRAMS.glob("*.py")))
    for program in found:
        assert "result" in program.settings, program.name
        assert not program.settings.keys() - known, program.name
        assert program.settings.keys() & set(VERBS), program.name
    lasting = ["last" in program.settings for program in found]
    assert lasting == sorted(lasting)
