"""The cell's body as plain Python with the notebook's line numbers."""

import pytest

from jupyter_ddl.cell.source import read_source
from jupyter_ddl.errors import CellError


def test_line_numbers_are_the_notebooks():
    source = read_source("x = 1\ny = x\n", 12)
    assert source.filename == "In [12]"
    assert source.text == "\nx = 1\ny = x\n"
    assert [statement.lineno for statement in source.tree.body] == [2, 3]


@pytest.mark.parametrize(("cell", "expected"), [("x = 1\nx", True), ("x\nx = 1", False)])
def test_a_final_expression_is_the_cells_value(cell, expected):
    assert read_source(cell).ends_in_expression is expected


def test_a_syntax_error_names_its_line_and_keeps_the_caret():
    with pytest.raises(CellError, match=r"In \[3\], line 3: syntax error") as caught:
        read_source("x = 1\ny = (2 +* 3)\n", 3)
    assert caught.value.line == 3
    shown, caret = caught.value.caret.split("\n")
    assert shown == "y = (2 +* 3)"
    assert shown[caret.index("^")] == "*"
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("x = 1\n%matplotlib inline\n", r"line 3: a magic \(%matplotlib inline\)|line 3: a magic"),
        ("!ls\n", "line 2: a shell command"),
        ("\n\nfiles = !ls\n", "line 4: a shell command"),
        ("get_ipython().run_line_magic('time', '1')", "line 2: a magic"),
    ],
)
def test_notebook_only_syntax_is_refused_with_its_line(cell, message):
    with pytest.raises(CellError, match=message):
        read_source(cell, 1)


def test_asking_for_the_shell_is_plain_python():
    assert read_source("in_notebook = get_ipython() is not None").text


def test_prompts_and_common_indent_are_removed_without_moving_lines():
    source = read_source("\n    x = 1\n    y = x\n")
    assert [statement.lineno for statement in source.tree.body] == [3, 4]


@pytest.mark.parametrize("cell", ["", "  \n", "# only a comment\n"])
def test_an_empty_cell_is_refused(cell):
    with pytest.raises(CellError, match="is empty"):
        read_source(cell)


@pytest.mark.parametrize("cell", ["x = 'a\0b'", "return 3", "x = '\ud800'"])
def test_what_no_module_may_hold_is_refused(cell):
    with pytest.raises(CellError, match=r"In \[ \]"):
        read_source(cell)


def test_a_cell_may_await_as_in_the_notebook():
    assert read_source("import asyncio\nawait asyncio.sleep(0)").text


def test_escapes_that_warn_do_not_stop_a_cell():
    assert read_source(r"x = '\d'").text


def test_what_an_earlier_cell_takes_from_the_future_holds_and_lines_stay():
    from tests.unit.cell.cell_makers import notebook

    here = notebook("from __future__ import annotations as a, division, generator_stop\n")
    found = read_source("x: Nowhere = 1", 3, here)
    assert found.text == "from __future__ import annotations\nx: Nowhere = 1"
    assert found.tree.body[-1].lineno == 2
    prompts = read_source(">>> x = 1\n>>> x", 3, here)
    assert prompts.text.splitlines() == ["from __future__ import annotations", "x = 1", "x"]
    with pytest.raises(CellError, match="is empty"):
        read_source("# nothing\n", 3, here)
    assert read_source("x = 1", 3, {"annotations": "none"}).text == "\nx = 1"
