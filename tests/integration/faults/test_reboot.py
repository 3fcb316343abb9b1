"""A restart of the host empties shared memory: a run has copies, or says what brings it back."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jupyter_ddl.client.api import search
from jupyter_ddl.client.clusters import start_cluster
from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import OptionError
from jupyter_ddl.protocol.events import Notice
from jupyter_ddl.store.paths import memory_blob_dir
from tests.leaks import Home
from tests.run_tools import assert_clean, kill_controller, outcomes, wait_for
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

CELL = """
import os, time
from jupyter_ddl import uniform
x = uniform(0.0, 1.0)
while x >= 0 and len(os.listdir(begun)) >= 2 and not os.path.exists(gate):
    time.sleep(0.02)
open(os.path.join(begun, str(x)), "w").close()
score = float(X.sum()) + small["bias"]
"""


def _begin(home: Home, monkeypatch: pytest.MonkeyPatch, budget: str) -> tuple[Run, dict[str, Any]]:
    """A run of which two trials are through, and what its cell took from the notebook."""
    if memory_blob_dir() is None:
        pytest.skip("this host has no shared memory directory")
    monkeypatch.setenv("JUPYTER_DDL_DISK_COPIES", budget)
    begun = home.work / "begun"
    begun.mkdir()
    namespace = {
        "X": np.arange(1 << 18, dtype=np.float64),
        "small": {"bias": 0.5},
        "begun": str(begun),
        "gate": str(home.work / "gate"),
    }
    start_cluster(n_workers=2, name="test")
    run = _search(namespace)
    wait_for(run, lambda seen: seen.counts.complete >= 2)
    return run, namespace


def _search(namespace: dict[str, Any], **options: Any) -> Run:
    return search(
        CELL, namespace=namespace, metric="score", trials=6, seed=3, wait=False, **options
    )


def _restart_host(home: Home) -> None:
    """What is left of a restart: no process, and nothing in shared memory."""
    kill_controller()
    memory = memory_blob_dir()
    assert memory is not None
    assert any(memory.iterdir())
    shutil.rmtree(memory)
    Path(home.work / "gate").touch()
    start_cluster(n_workers=2, name="test")


def _notices(run: Run) -> list[str]:
    return [event.text for event in run.events() if isinstance(event, Notice)]


def _burnt(run: Run) -> list[int]:
    return [e.trial for e in outcomes(run) if e.failure is not None and e.failure.kind == "blob"]


def test_a_run_goes_on_from_its_copies_on_disk(
    stopping: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = _begin(stopping, monkeypatch, "1GB")
    (digest,) = run.spec.program.buffers
    copy = stopping.data / "blobs" / digest
    until(copy.exists, 30.0, "the copy on disk")
    _restart_host(stopping)
    run.wait(PATIENCE_S)
    assert_clean(run, 6)
    assert _burnt(run) == []
    assert _notices(run) == []


def test_a_run_without_copies_says_so_waits_and_goes_on_with_its_cell(
    stopping: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, namespace = _begin(stopping, monkeypatch, "0")
    (told,) = _notices(run)
    assert told.startswith("2 MiB of captured values lie in shared memory only")
    _restart_host(stopping)
    until(lambda: len(_notices(run)) == 2, 30.0, "why it waits")
    assert "no longer has `X` of the run (a restart" in _notices(run)[1]
    assert f"with --resume {run.id}, and the run goes on" in _notices(run)[1]
    other = {**namespace, "X": namespace["X"] + 1}
    with pytest.raises(OptionError, match=r"no longer has `X` of that run, and"):
        _search(other, resume=run.id)
    assert run.state == "running"
    _search(namespace, resume=run.id).wait(PATIENCE_S)
    assert_clean(run, 6)
    assert _burnt(run) == []
    assert _notices(run)[2].startswith("all that the run is made of is there again")
