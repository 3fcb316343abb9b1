"""The folder that a cell works in, taken from the kernel's."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.cell.work_folder import notebook_folder, work_folder
from jupyter_ddl.errors import CellError


def test_it_is_where_the_kernel_is_also_behind_cd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert work_folder() == tmp_path
    assert notebook_folder(None) == tmp_path
    assert notebook_folder(Path("/elsewhere/a.ipynb")) == Path("/elsewhere")


def test_one_that_was_removed_is_refused_by_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(CellError, match="was removed; `%cd` to one that is there"):
        work_folder()


def test_one_that_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(CellError, match=f"{tmp_path}, can't be read"):
        work_folder()
