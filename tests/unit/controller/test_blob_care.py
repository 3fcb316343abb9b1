"""Captured values do not pile up, and no resumable run loses any."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from jupyter_ddl.controller.blob_care import care_for_blobs
from jupyter_ddl.ledger.file import LedgerWriter
from jupyter_ddl.protocol.events import RunFinished, RunSubmitted
from jupyter_ddl.protocol.program import Program, Settings
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.blobs import find_blob, put_blob
from jupyter_ddl.store.paths import (
    blob_dirs,
    home_of_memory,
    ledger_path,
    memory_blob_dir,
    run_dir,
)
from jupyter_ddl.verbs.map import Map
from tests.leaks import Home


def _run(
    run_id: str, payload: str | None, *, finished: bool, settings: Settings | None = None
) -> None:
    run_dir(run_id).mkdir(parents=True)
    spec = RunSpec(
        run_id=run_id,
        verb=Map(over="items", element="item", n_items=1),
        program=Program(source="", filename="In [1]", payload=payload, settings=settings),
        seed=0,
        cluster="local",
        created_at_s=time.time(),
    )
    with LedgerWriter.open(ledger_path(run_id), create=True) as ledger:
        ledger.append([RunSubmitted(spec=spec, at_s=0.0)])
        if finished:
            ledger.append([RunFinished(at_s=1.0, state="complete")])


def _age(digest: str, seconds: float) -> Path:
    path = find_blob(digest, blob_dirs())
    assert path is not None
    os.utime(path, (time.time() - seconds,) * 2)
    return path


@pytest.mark.usefixtures("home")
def test_settings_that_an_unfinished_run_needs_stay() -> None:
    needed, done = (put_blob(text, blob_dirs()) for text in (b"needed", b"done"))
    _run("r1", None, finished=False, settings=Settings(needed, ()))
    _run("r2", None, finished=True, settings=Settings(done, ()))
    paths = [_age(needed, 4000), _age(done, 4000)]
    care_for_blobs()
    assert [path.exists() for path in paths] == [True, False]


@pytest.mark.usefixtures("home")
def test_only_what_an_unfinished_run_needs_outlives_its_hour_in_memory() -> None:
    done, open_run, recent = (put_blob(text, blob_dirs()) for text in (b"done", b"open", b"new"))
    _run("r1", done, finished=True)
    _run("r2", open_run, finished=False)
    paths = [_age(done, 4000), _age(open_run, 4000), _age(recent, 60)]
    care_for_blobs()
    assert [path.exists() for path in paths] == [False, True, True]


@pytest.mark.usefixtures("home")
def test_the_last_controller_leaves_no_memory_taken() -> None:
    memory = memory_blob_dir()
    if memory is None:
        pytest.skip("this host has no shared memory directory")
    old, new, open_run = (put_blob(text, blob_dirs()) for text in (b"old", b"new", b"open"))
    _run("r2", open_run, finished=False)
    _age(old, 60), _age(open_run, 60)
    care_for_blobs(leaving=True)
    assert {path.name for path in memory.iterdir()} == {open_run, new}
    assert find_blob(old, blob_dirs()) is None


def test_homes_of_one_user_leave_each_others_memory_alone(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUPYTER_DDL_MEMORY_DIR")  # the user's real one, below /dev/shm
    memory = memory_blob_dir()
    if memory is None:
        pytest.skip("this host has no shared memory directory")
    try:
        put_blob(b"of the first home", blob_dirs())
        for path in memory.iterdir():
            os.utime(path, (time.time() - 60,) * 2)
        monkeypatch.setenv("JUPYTER_DDL_HOME", str(home.root / "second"))
        care_for_blobs(leaving=True)
        assert [path.read_bytes() for path in memory.iterdir()] == [b"of the first home"]
        shutil.rmtree(home.data)
        care_for_blobs()
        assert not memory.exists()
    finally:
        shutil.rmtree(memory, ignore_errors=True)
        second = memory_blob_dir()
        assert second is not None
        assert second.parent == memory.parent
        second.rmdir()


def test_a_home_with_a_long_path_has_memory_of_its_own_too(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUPYTER_DDL_MEMORY_DIR")
    if memory_blob_dir() is None:
        pytest.skip("this host has no shared memory directory")
    found = [memory_blob_dir()]
    for name in ("a", "b"):
        monkeypatch.setenv("JUPYTER_DDL_HOME", str(home.root / ("x" * 150) / ("y" * 150) / name))
        found.append(memory_blob_dir())
    assert len(set(found)) == 3
    assert [None if each is None else home_of_memory(each) for each in found] == [
        home.data, None, None,
    ]  # fmt: skip
    for each in found:
        assert each is not None
        each.rmdir()
