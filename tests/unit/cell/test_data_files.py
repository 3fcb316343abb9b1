"""Data files that a cell names: which they are, and which are refused."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.cell.data_files import named_files, possible_names, read_files, texts_of
from jupyter_ddl.errors import CaptureError, CellError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notebook" / "deep").mkdir(parents=True)
    (tmp_path / "above.csv").write_text("0")
    for name in ("a.csv", "deep/b.csv", "c.csv", "d.csv"):
        (tmp_path / "notebook" / name).write_text(name)
    return tmp_path / "notebook"


def paths(folder: Path, source: str, **values: Any) -> list[str]:
    texts = texts_of(ast.parse(source), (), values)
    return [file.path for file in named_files(texts, folder)]


def test_files_of_the_folder_are_found_by_plain_strings(folder: Path) -> None:
    source = "pd.read_csv('a.csv'); f = open('./deep/b.csv'); x = ['c.csv', 'missing.csv']"
    assert paths(folder, source) == ["a.csv", "c.csv", "deep/b.csv"]
    assert paths(folder, "use(p)", p=Path("d.csv"), q="c.csv", n=3) == ["c.csv", "d.csv"]


def test_functions_of_the_notebook_name_files_too(folder: Path) -> None:
    def load() -> Any:
        def inner() -> str:
            return "d.csv"

        return inner, "c.csv"

    found = named_files(texts_of(ast.parse(""), (load,), {}), folder)
    assert [file.path for file in found] == ["c.csv", "d.csv"]


@pytest.mark.parametrize(
    "text",
    ["", ".", "deep", "../above.csv", "a.csv\\n", "\\0", "x" * 5_000, "a.csv/b", "~/a.csv"],
)
def test_other_texts_are_no_files(folder: Path, text: str) -> None:
    assert named_files([text], folder) == ()
    assert named_files([str(folder / "a.csv")], folder) == (), "nor is a whole path"


def test_what_may_be_a_file_that_is_written_and_where_it_may_be() -> None:
    texts = ["relu", "out/", "model.h5", "a sentence: no", "/whole/path.pt", "x" * 300, "out/b.pt"]
    assert possible_names([*texts, "model.h5"]) == ("model.h5", "out/b.pt", "relu", "out/")
    assert possible_names(["relu", "out"]) == (), "where no file is named, nothing is looked at"
    assert len(possible_names(f"{n}.pt" for n in range(99))) == 32


def test_they_are_read_with_their_content(folder: Path) -> None:
    ((file, data),) = read_files(named_files(["a.csv"], folder), folder, 100)
    assert data == b"a.csv"
    assert (file.path, file.size_bytes) == ("a.csv", 5)
    assert file.digest


def test_too_much_is_refused_by_the_name_of_the_largest(folder: Path) -> None:
    (folder / "a.csv").write_text("x" * 90)
    files = named_files(["a.csv", "c.csv"], folder)
    with pytest.raises(CaptureError, match=r"'a.csv', which the cell names, is 90 B of 2 files"):
        read_files(files, folder, 94)
    assert len(read_files(files, folder, 95)) == 2


def test_one_that_vanished_meanwhile_is_told(folder: Path) -> None:
    files = named_files(["a.csv"], folder)
    (folder / "a.csv").unlink()
    with pytest.raises(CellError, match=r"'a.csv' in .* can't be read \(No such file"):
        read_files(files, folder, 100)
