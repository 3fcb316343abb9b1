"""Cells for persistent groups."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.cell.group_cell import compile_group_cell, question_cell, transfer_cell
from jupyter_ddl.errors import CellError


def test_only_what_is_named_is_pushed(tmp_path: Path) -> None:
    names = {"a": 1, "b": 2}
    made = compile_group_cell("a + b\n", names, notebook_dir=tmp_path, push=("b",))
    assert [each.name for each in made.cell.pushed] == ["b"]


def test_names_that_the_notebook_lacks_are_the_ranks_own_business(tmp_path: Path) -> None:
    made = compile_group_cell("model.train()\n", {}, cell_number=7, notebook_dir=tmp_path)
    assert (made.cell.filename, made.blobs) == ("In [7]", ())


def test_a_name_to_push_that_does_not_exist_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(CellError, match=r"--push modle: the notebook has no such name.*model"):
        compile_group_cell("1\n", {"model": 1}, notebook_dir=tmp_path, push=("modle",))


def test_modules_beside_the_notebook_travel(tmp_path: Path) -> None:
    (tmp_path / "helper_of_mine.py").write_text("x = 1\n")
    made = compile_group_cell("import helper_of_mine\n", {}, notebook_dir=tmp_path)
    assert [each.path for each in made.cell.modules] == ["helper_of_mine.py"]
    assert [digest for digest, _ in made.blobs] == [made.cell.modules[0].digest]


def test_modules_that_pushed_values_need_travel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("kind_of_mine", "later_of_mine"):
        (tmp_path / f"{name}.py").write_text("class K: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("import kind_of_mine\nobj = kind_of_mine.K()", namespace)
    exec("def f():\n    import later_of_mine\n    return later_of_mine.K()", namespace)
    made = compile_group_cell("f(), obj\n", namespace, notebook_dir=tmp_path, push=("f", "obj"))
    alone = transfer_cell({"f": namespace["f"], "obj": namespace["obj"]}, namespace)
    for cell in (made.cell, alone.cell):
        assert [each.path for each in cell.modules] == ["kind_of_mine.py", "later_of_mine.py"]
    assert {each.digest for each in made.cell.modules} <= {digest for digest, _ in made.blobs}
    del sys.modules["kind_of_mine"]


def test_a_transfer_has_no_code() -> None:
    made = transfer_cell({"a": 1}, {}, bring=("b",))
    assert (made.cell.source, made.cell.bring, len(made.blobs)) == ("", ("b",), 1)


def test_ranks_are_asked_for_names_that_the_cell_reads_and_the_notebook_has() -> None:
    namespace = {"a": 1, "b": 2, "c": 3, "unread": 4, "rank": 5}
    asking = question_cell(
        "def f():\n    return b + ours\nc = 1\nf() + a + c + rank()\n", namespace
    )
    assert asking is not None
    assert asking.cell.asked == ("a", "b", "rank")
    assert (asking.cell.source, asking.cell.pushed) == ("", ())


def test_ranks_are_not_asked_when_they_can_lack_nothing() -> None:
    assert question_cell("ours + 1\n", {"other": 1}) is None


def test_a_syntax_error_is_refused_before_ranks_are_asked() -> None:
    with pytest.raises(CellError):
        question_cell("a +\n", {"a": 1})
