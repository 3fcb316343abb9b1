"""Where a trial works, what it is told when a file is not there, and who writes the same one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.protocol.events import Notice
from jupyter_ddl.protocol.folder import WorkFolder
from jupyter_ddl.ranks.work_folder import WriteWatch

SAVE = "from pathlib import Path\nPath('model.txt').write_text('x')\n"


@pytest.fixture
def folder(tmp_path: Path) -> WorkFolder:
    path = tmp_path / "notebook"
    path.mkdir()
    (path / "data.txt").write_text("5")
    return WorkFolder(str(path))


def test_a_trial_works_in_the_notebooks_folder_and_the_next_one_begins_there(
    host: Any, folder: WorkFolder
) -> None:
    source = "import os, pathlib\nv = float(pathlib.Path('data.txt').read_text())\nos.chdir('/')\n"
    rank = host.load(source, metric="v", folder=folder)
    before = Path.cwd()
    assert [rank.run(trial).value for trial in range(2)] == [5.0, 5.0]
    assert Path.cwd() == before


def test_imports_do_not_look_there(host: Any, folder: WorkFolder) -> None:
    Path(folder.path, "ddl_edited_meanwhile.py").write_text("")
    finished = host.load("__import__('ddl_edited_meanwhile')\n", folder=folder).run()
    assert finished.failure is not None
    assert finished.failure.type_name == "ModuleNotFoundError"


def test_a_folder_that_is_gone_fails_the_trial_with_its_name(host: Any, folder: WorkFolder) -> None:
    Path(folder.path, "data.txt").unlink()
    Path(folder.path).rmdir()
    failure = host.load(SAVE, folder=folder).run().failure
    assert failure is not None
    assert failure.message.startswith(f"the folder {folder.path}, which the cell was run from, can")
    assert "No such file or directory" in failure.message


def test_a_missing_file_is_told_with_where_it_was_looked_for(host: Any, folder: WorkFolder) -> None:
    source = "import os\nos.mkdir('below')\nos.chdir('below')\nopen('data.txt')\n"
    failure = host.load(source, folder=folder).run().failure
    assert failure is not None
    assert failure.line == 4
    assert f"looked for in {folder.path}/below, where this rank works" in failure.message
    failure = host.load("open('/not/there')\n", folder=folder).run().failure
    assert failure is not None
    assert "looked for" not in failure.message


def test_where_files_are_not_shared_the_way_out_is_another(host: Any, tmp_path: Path) -> None:
    own = WorkFolder(str(tmp_path / "made" / "here"), is_own=True)
    failure = host.load("open('data.txt')\n", folder=own).run().failure
    assert failure is not None
    assert f"looked for in {own.path} on host" in failure.message
    assert "by a plain string travel with it" in failure.message


def notices(rank: Any) -> list[str]:
    return [event.text for event in rank.of(Notice)]


def test_trials_that_write_the_same_file_are_told_once(host: Any, folder: WorkFolder) -> None:
    rank = host.load(SAVE, folder=folder)
    rank.run(0)
    rank.run(0, attempt=2)
    assert notices(rank) == []
    for trial in (1, 2):
        rank.run(trial)
    other = host.load(SAVE, folder=folder)  # as another process of the same run
    other.run(3)
    assert notices(other) == []
    (told,) = notices(rank)
    assert told.startswith(f"trials 0 and 1 have both written model.txt in {folder.path}")


@pytest.mark.parametrize(
    "source",
    [
        "from pathlib import Path\nPath('data.txt').read_text()\n",
        "import tempfile\nwith tempfile.NamedTemporaryFile() as f: f.write(b'x')\n",
        "from pathlib import Path\nPath(f'model-{x}.txt').write_text('x')\n",
        "from pathlib import Path\nPath('model.txt').absolute().write_text('x')\n",
    ],
    ids=["read", "temporary", "names of their own", "by its whole path"],
)
def test_other_trials_are_told_nothing(host: Any, folder: WorkFolder, source: str) -> None:
    rank = host.load(source, folder=folder)
    for trial in range(2):
        assert rank.run(trial, params={"x": trial}).failure is None
    assert notices(rank) == []


def test_what_torch_saves_counts(host: Any, folder: WorkFolder) -> None:
    """It opens its files in C++, as h5py and safetensors do: the folder is looked at."""
    Path(folder.path, "out").mkdir()
    names = {"file_names": ("data.txt", "model.pt", "out")}
    cell = "import os, torch\nos.stat('data.txt')\ntorch.save(x, os.path.join('out', 'model.pt'))"
    rank = host.load(cell, folder=folder, program=names)
    for trial in (0, 0, 1, 2):
        assert rank.run(trial, params={"x": trial}).failure is None
    (told,) = notices(rank)
    assert told.startswith(
        f"model.pt in {folder.path}/out, which the cell names, has changed during trials 0 and 1: "
        f"if both write it, what is there in the end is the last writer's"
    )


def test_one_change_that_trials_side_by_side_see_is_one_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    watches = [WriteWatch(tmp_path / "run", ("model.h5",)) for _ in range(2)]
    for n_writes in range(2):
        for watch in watches:
            watch.begin()
        (tmp_path / "model.h5").write_text("x" * n_writes)
        os.utime(tmp_path / "model.h5", (n_writes, n_writes))
        told = [watch.end(3 * n_writes + number) for number, watch in enumerate(watches)]
        assert [bool(text) for text in told] == [bool(n_writes), False]
    # It is said once, whoever sees it.


def test_what_others_write_between_trials_or_one_alone_writes_is_told_of_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    watch = WriteWatch(tmp_path / "run", ("model.h5", "log.txt"))
    for trial in range(3):
        (tmp_path / "model.h5").write_text("x" * trial)
        os.utime(tmp_path / "model.h5", (trial, trial))
        watch.begin()
        if trial == 0:
            Path("log.txt").write_text("by Python, which tells who")
        os.utime(tmp_path / "log.txt", (9 + trial, 9 + trial))
        assert watch.end(trial) == ""


def test_databases_are_shared(host: Any, folder: WorkFolder) -> None:
    cell = (
        "import sqlite3\nc = sqlite3.connect('study.db')\n"
        "c.execute(f'create table t{x} (a)')\nc.close()\n"
    )
    rank = host.load(cell, folder=folder, program={"file_names": ("study.db",)})
    for trial in range(3):
        assert rank.run(trial, params={"x": trial}).failure is None
    assert notices(rank) == []
