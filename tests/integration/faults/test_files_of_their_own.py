"""Workers that share no file with the controller, as pods do: files travel, and nothing is missing.

The workers are this host's, with a tree of files of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from jupyter_ddl.backends.local import LocalBackend
from jupyter_ddl.cell.draft import CellContext, RunDraft
from jupyter_ddl.client.run import Run
from jupyter_ddl.controller.service import ClusterService
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.run import Provenance
from jupyter_ddl.store.blobs import put_blob
from jupyter_ddl.store.paths import blob_dirs
from jupyter_ddl.verbs.search import Search
from tests.leaks import Home
from tests.run_tools import assert_clean, outcomes
from tests.until import PATIENCE_S

pytestmark = pytest.mark.integration

CELL = """
import os, time
from jupyter_ddl import checkpoint, report, resume, uniform
x = uniform(0.0, 1.0)
log = os.readlink("/proc/self/fd/1")
state = resume()
begin = 0 if state is None else state["step"] + 1
print("begins at", begin, "sum", data.sum())
for step in range(begin, 6):
    while step == 4 and not os.path.exists(gate):
        time.sleep(0.02)
    report(step=step, score=x)
    checkpoint(step=step, weights=data[:1000])
"""


@pytest.fixture(scope="module", autouse=True)
def tracker() -> None:
    """Multiprocessing's own helper of this process belongs to no test's home."""
    resource_tracker.ensure_running()


class ApartBackend(LocalBackend):
    """Local workers that are treated as if they were far away."""

    @property
    def shared_filesystem(self) -> bool:
        return False


def compiled(n_trials: int, gate: Path) -> RunDraft:
    """Trials that go beyond their fourth step once ``gate`` is there."""
    given = {"metric": "score", "trials": n_trials, "seed": 1, "bring": ("log",)}
    verb, options = Search.from_python(given)
    context = CellContext(cell_number=None, notebook_dir=Path.cwd(), main_globals={})
    namespace = {"data": np.arange(100_000, dtype=float), "gate": str(gate)}
    return verb.compile(CELL, namespace, context, options)


async def run_apart(
    cell: RunDraft, meanwhile: Callable[[ClusterService], Any] | None = None
) -> None:
    service = ClusterService(ClusterSpec(name="apart", n_workers=2), token="1:0.0")
    await service.open(lambda _: None)
    try:
        spec = cell.submitted("apart", "apart", Provenance())
        await service.runs.submit(spec)
        async with asyncio.timeout(PATIENCE_S):
            while service.runs.active:
                await asyncio.sleep(0.02)
                if meanwhile is not None and meanwhile(service):
                    meanwhile = None
    finally:
        await service.close()


@pytest.fixture
def apart(home: Home, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the workers' files lie."""
    monkeypatch.setattr("jupyter_ddl.controller.service.make_backend", ApartBackend)
    return home.data / "away"


def store(cell: RunDraft) -> RunDraft:
    for digest, data in cell.blobs:
        put_blob(data, blob_dirs(), digest)
    return cell


def test_logs_checkpoints_and_values_come_home(home: Home, apart: Path) -> None:
    asyncio.run(run_apart(store(compiled(3, gate=home.data))))
    run = Run("apart")
    assert_clean(run, 3)
    assert run.state == "complete"
    for trial in range(3):
        assert "begins at 0 sum 4999950000.0" in run.logs(trial)
        saved = sorted(p.name for p in (run.directory / f"checkpoints/trial-{trial}").iterdir())
        assert saved == ["step-4-a1.ckpt", "step-5-a1.ckpt"]
    assert run.value("log").startswith(str(apart / "runs"))
    assert not (apart / "runs" / "apart").exists(), "nothing of the run is left there"


def test_a_lost_worker_costs_what_was_not_saved(home: Home, apart: Path) -> None:
    gate = home.data / "gate"

    def kill_once(service: ClusterService) -> bool:
        # Both, since either worker may be the one that is killed.
        if len(list((home.data / "runs/apart").glob("checkpoints/*/step-3-*.ckpt"))) < 2:
            return False
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if any("jupyter_ddl.ranks.zygote" in part for part in process.cmdline()):
                    below = process.parent().children(recursive=True)
                    process.parent().send_signal(signal.SIGKILL)
                    psutil.wait_procs(below)  # else its rank may go on for a step or two
                    # Its files are lost with its pod.
                    for path in (apart / "runs").rglob("*.ckpt"):
                        path.unlink()
                    gate.touch()
                    return True
        return False

    asyncio.run(run_apart(store(compiled(2, gate)), kill_once))
    run = Run("apart")
    assert_clean(run, 2)
    evicted = {end.trial for end in outcomes(run, "evicted")}
    resumed = [int(run.logs(trial).rsplit("begins at ", 1)[1].split()[0]) for trial in evicted]
    assert len(resumed) == 1
    assert resumed[0] >= 4, "it went on from the checkpoint that had come back"
