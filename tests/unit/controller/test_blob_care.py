"""Captured values do not pile up, and no resumable run loses any."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jupyter_ddl.controller.blob_care import care_for_blobs, use_memory
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import RunFinished, RunSubmitted
from jupyter_ddl.protocol.program import Program, Settings
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.blobs import find_blob, put_blob
from jupyter_ddl.store.locks import lock_directory
from jupyter_ddl.store.paths import (
    blob_dirs,
    forget_memory,
    home_id,
    ledger_path,
    memory_blob_dir,
    run_dir,
)
from jupyter_ddl.verbs.map import Map
from tests.leaks import Home
from tests.namespaces import PID, apart, python


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


@pytest.mark.usefixtures("home")
def test_a_controller_that_leaves_others_leaves_them_their_values() -> None:
    digest = put_blob(b"of a persistent group", blob_dirs())
    if (path := _age(digest, 60)).parent != memory_blob_dir():
        pytest.skip("this host has no shared memory directory")
    other = use_memory()
    assert other is not None
    care_for_blobs(leaving=True)
    assert path.exists()
    os.close(other)
    care_for_blobs(leaving=True)
    assert not path.exists()


@pytest.fixture
def memory(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's real one, below /dev/shm, of this home alone."""
    monkeypatch.delenv("JUPYTER_DDL_MEMORY_DIR")
    found = memory_blob_dir()
    if found is None:
        pytest.skip("this host has no shared memory directory")
    yield found
    forget_memory(found)


def test_homes_of_one_user_leave_each_others_memory_alone(
    home: Home, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_blob(b"of the first home", blob_dirs())
    for path in memory.iterdir():
        os.utime(path, (time.time() - 60,) * 2)
    monkeypatch.setenv("JUPYTER_DDL_HOME", str(home.root / "second"))
    second = memory_blob_dir()
    assert second is not None
    try:
        care_for_blobs(leaving=True)
        assert [path.read_bytes() for path in memory.iterdir()] == [b"of the first home"]
        shutil.rmtree(home.data)
        used = lock_directory(memory, shared=True)
        assert used is not None
        care_for_blobs()
        assert memory.exists(), "a controller uses it"
        os.close(used)
        care_for_blobs()
        assert not memory.exists()
    finally:
        forget_memory(second)


_CARE_IN_A_CONTAINER = """
import time
from jupyter_ddl.controller.blob_care import care_for_blobs
from jupyter_ddl.store.paths import home_dir, memory_blob_dir
care_for_blobs(leaving=True)
print(home_dir(), memory_blob_dir().name)
"""


def test_two_containers_with_homes_at_one_path_leave_each_other_their_values(
    home: Home, memory: Path
) -> None:
    """As with ``--ipc=host``: one user, one shared memory, one path, two homes."""
    path = memory / put_blob(b"needed by a run there", blob_dirs())
    os.utime(path, (time.time() - 8000,) * 2)
    command = apart("--mount", *PID)
    hidden = ["sh", "-c", 'mount -t tmpfs none "$1" && shift && exec "$@"', "sh", str(home.data)]
    told = subprocess.check_output(
        [*command, *hidden, *python(_CARE_IN_A_CONTAINER)],
        text=True,
    )
    there, other = told.split()
    try:
        assert there == str(home.data)
        assert other != memory.name
        assert path.exists()
        care_for_blobs()
        assert (memory.parent / other).exists(), "its home is not seen here, and may be there"
    finally:
        forget_memory(memory.parent / other)


def test_a_home_is_the_same_wherever_it_lies_and_a_damaged_name_is_replaced(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = home_id()
    assert home_id() == first
    home.data.rename(home.root / "moved")
    assert home_id() != first
    monkeypatch.setenv("JUPYTER_DDL_HOME", str(home.root / "moved"))
    assert home_id() == first
    for damaged in (b"", b"../../etc", b"\xff"):
        (home.root / "moved" / "id").write_bytes(damaged)
        assert len(home_id()) == 16
    assert [path.name for path in (home.root / "moved").iterdir()] == ["id"]


def test_processes_that_come_at_once_agree_on_the_name_of_a_home(home: Home) -> None:
    del home
    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(lambda _: home_id(), range(64)))) == 1
