"""The folder of a run on a worker with files of its own: data in it, what ranks wrote, its end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jupyter_ddl.protocol.assignment import Assignment
from jupyter_ddl.protocol.folder import WorkFolder, home_path, matches
from jupyter_ddl.protocol.program import ModuleFile
from jupyter_ddl.ranks.work_folder import coming_back, enter_folder
from jupyter_ddl.store.blobs import put_blob
from jupyter_ddl.worker import files
from jupyter_ddl.worker.files import OwnFiles


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnFiles:
    monkeypatch.setenv("JUPYTER_DDL_HOME", str(tmp_path / "home"))
    return OwnFiles()


def folder_of(own: OwnFiles, run_id: str) -> WorkFolder:
    sent = Assignment(run_id, "a", "", (), "/far", (), "", folder=WorkFolder("/notebook"))
    return own.local(sent).folder


def data_file(tmp_path: Path, text: str) -> tuple[ModuleFile, list[Path]]:
    blobs = tmp_path / "blobs"
    blobs.mkdir(exist_ok=True)
    return ModuleFile("in/data.txt", put_blob(text.encode(), [blobs]), len(text)), [blobs]


def test_data_is_put_there_and_is_nothing_that_was_written(own: OwnFiles, tmp_path: Path) -> None:
    folder = folder_of(own, "run")
    file, blobs = data_file(tmp_path, "one")
    with coming_back():
        enter_folder(folder, [file], blobs)
        assert Path("in/data.txt").read_text() == "one"
        Path("model.pt").write_text("12345")
    assert [(each.path, each.size_bytes) for each in own.written("run")] == [("model.pt", 5)]


def test_other_data_takes_its_place_but_never_that_of_what_a_rank_wrote(
    own: OwnFiles, tmp_path: Path
) -> None:
    folder = folder_of(own, "run")
    with coming_back():
        for text in ("one", "two"):
            file, blobs = data_file(tmp_path, text)
            enter_folder(folder, [file], blobs)
            assert Path("in/data.txt").read_text() == text
        Path("in/data.txt").write_text("a rank's")
        enter_folder(folder, [file], blobs)
        assert Path("in/data.txt").read_text() == "a rank's"
    assert [each.path for each in own.written("run")] == ["in/data.txt"]


def test_a_run_that_is_over_keeps_what_was_written_and_nothing_else(own: OwnFiles) -> None:
    for run in ("empty", "full"):
        Path(folder_of(own, run).path).mkdir()
    written = Path(folder_of(own, "full").path) / "model.pt"
    written.write_text("x")
    for run in ("empty", "full"):
        own.forget(run)
    runs = written.parents[2]
    assert [path.name for path in runs.iterdir()] == ["full"]
    assert [path.name for path in (runs / "full").iterdir()] == ["files"]
    assert own.read("full", "files/model.pt", 0, 10) == (b"x", 1)


def test_the_oldest_runs_go_where_it_becomes_too_much(
    own: OwnFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "KEPT_FOLDER_BYTES", 25)
    for number, run in enumerate(("first", "second", "third")):
        folder = Path(folder_of(own, run).path)
        folder.mkdir()
        (folder / "model.pt").write_text("x" * 10)
        own.forget(run)
        os.utime(folder.parent, (number, number))
    working = Path(folder_of(own, "works").path)
    working.mkdir()
    (working / "model.pt").write_text("x" * 100)
    folder_of(own, "empty")
    own.forget("empty")  # it has written nothing
    kept = [run for run in ("first", "second", "third", "works") if own.written(run)]
    assert kept == ["second", "third", "works"]


def test_what_can_be_listed_is_bounded(own: OwnFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MAX_LISTED", 3)
    folder = Path(folder_of(own, "run").path)
    folder.mkdir()
    for number in range(5):
        path = folder / f"{number}"
        path.touch()
        os.utime(path, (2e9 + number, 2e9 + number))
    (folder / "link").symlink_to("/etc/hosts")
    assert [each.path for each in own.written("run")] == ["2", "3", "4"], "the latest"


@pytest.mark.parametrize(
    ("path", "pattern", "is_meant"),
    [
        ("model.pt", "*.pt", True),
        ("deep/model.pt", "*.pt", True),
        ("deep/model.pt", "deep/*", True),
        ("deep/model.pt", "model.pt", True),
        ("model.pt", "deep/*", False),
        ("model.ptx", "*.pt", False),
    ],
)
def test_patterns_mean_names_or_whole_paths(path: str, pattern: str, is_meant: bool) -> None:
    assert matches(path, [pattern]) is is_meant


def test_names_of_workers_become_no_paths() -> None:
    assert home_path("tcp://10.0.0.1:33", "a/b") == "files/tcp_10.0.0.1_33/a/b"
    assert home_path("../..", "a") == "files/_../a"


def test_a_budget_for_logs_that_is_no_size_is_told_once_and_the_logs_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("JUPYTER_DDL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("JUPYTER_DDL_LOG_BYTES", "much")
    own = OwnFiles()
    folder_of(own, "run")
    own.put_file("run", "logs/0.log", 0, b"printed", is_last=True)
    assert [own.read("run", "logs/0.log", at, 100) for at in (0, 5)] == [
        (b"printed", 7),
        (b"ed", 7),
    ]
    (told,) = caplog.messages
    assert told.startswith("JUPYTER_DDL_LOG_BYTES: 'much' is not a size")
    assert told.endswith("the logs of a run may take 1 GiB on this worker")
