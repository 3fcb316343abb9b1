"""Folders are their owner's alone, whatever the umask, and what others have planted is not used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_ddl.errors import ClusterError, RunNotFoundError
from jupyter_ddl.store import paths


@pytest.fixture(params=[0o000, 0o027, 0o777])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_a_folder_is_its_owners_alone_under_any_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_DDL_HOME", str(tmp_path / "home"))
    found = [paths.home_dir(), paths.runs_dir(), paths.private_dir(paths.run_dir("r1"))]
    assert [path.stat().st_mode & 0o777 for path in found] == [0o700] * 3


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        paths.private_dir(tmp_path / "file")


def test_a_link_that_was_planted_in_shared_memory_is_not_followed(tmp_path: Path) -> None:
    own = paths.private_dir(tmp_path / "own")
    assert paths._own_dir(own) == own
    (tmp_path / "link").symlink_to(own)
    assert paths._own_dir(tmp_path / "link") is None
    own.chmod(0o755)
    assert paths._own_dir(own) is None


def test_the_home_of_another_user_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_DDL_HOME", str(tmp_path))
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with pytest.raises(ClusterError, match=rf"another user \(uid {owner}, this is {owner + 1}\)"):
        paths.home_dir()
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert paths.home_dir() == tmp_path, "root may look after others"


@pytest.mark.parametrize("run_id", ["../x", "/etc", "..", "", "a/b", "x" * 300])
def test_the_id_of_a_run_leads_nowhere_else(run_id: str) -> None:
    with pytest.raises(RunNotFoundError, match="is not the id of a run"):
        paths.run_dir(run_id)
