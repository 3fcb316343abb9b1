"""Captured values do not pile up, and no resumable run loses any."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from jupyter_ddl.controller.blob_care import care_for_blobs
from jupyter_ddl.events.ledger import LedgerWriter
from jupyter_ddl.events.messages import RunFinished, RunSubmitted
from jupyter_ddl.spec.program import Program
from jupyter_ddl.spec.run import MapSpec, RunSpec
from jupyter_ddl.store.blobs import find_blob, put_blob
from jupyter_ddl.store.paths import blob_dirs, ledger_path, memory_blob_dir, run_dir


def _run(run_id: str, payload: str, *, finished: bool) -> None:
    run_dir(run_id).mkdir(parents=True)
    spec = RunSpec(
        run_id=run_id,
        verb=MapSpec(over="items", element="item", n_items=1),
        program=Program(source="", filename="In [1]", payload=payload),
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
