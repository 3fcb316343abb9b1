"""GPUs as a fake NVML tells of them: each rank has its own, up to the first CUDA call."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_ddl import train
from jupyter_ddl.client.group import open_group
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import PlacementError, RunFailedError
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted, RankStarted, Reported
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.requests import GetStatus, SubmitRun, WatchRun
from jupyter_ddl.protocol.run import Limits, RunSpec
from jupyter_ddl.protocol.space import RandInt
from jupyter_ddl.protocol.verb import VerbSpec
from jupyter_ddl.verbs.ddp import Ddp
from jupyter_ddl.verbs.search import Search
from tests.fake_nvml import FakeNvml
from tests.integration.ddp.fault_runs import Started, kill
from tests.leaks import Home
from tests.run_tools import worker_of
from tests.until import until

pytestmark = pytest.mark.integration

LOCKING = """
import fcntl, os, time
uuids = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
assert len(uuids) == 1, uuids
held = open(f"{LOCKS}/{uuids[0]}", "w")
fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
for step in range(5):
    time.sleep(0.03)
    report(step=step, score=float(x))
if x % 4 == 0 and not os.path.exists(f"{LOCKS}/died-{x}"):
    open(f"{LOCKS}/died-{x}", "w").close()
    os.kill(os.getpid(), 9)
"""
"""Fails at once where another process lives that was given the same GPU."""

GROUP = """
import os, time
if WAITS and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    report(step=1)
    time.sleep(600)
[os.environ["CUDA_VISIBLE_DEVICES"], int(os.environ["LOCAL_RANK"])]
"""


@pytest.fixture
def gpus(home: Home, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """Two GPUs, in the eyes of every process that this test starts."""
    fake = FakeNvml(home.root)
    for name, value in fake.variables().items():
        monkeypatch.setenv(name, value)
    return fake


@pytest.fixture
def cluster(gpus: FakeNvml, home: Home) -> Iterator[object]:
    """A local cluster with two workers, which both see both GPUs."""
    from jupyter_ddl.client.clusters import start_cluster

    started = start_cluster(n_workers=2, name="test")
    yield started
    started.stop()


def submit(verb: VerbSpec, source: str, **limits: Any) -> Started:
    run_id = f"r{time.time_ns() % 10**12}"
    spec = RunSpec(
        run_id=run_id,
        verb=verb,
        program=Program(source=source, filename="In [1]", ends_in_expression=True),
        seed=1,
        cluster="test",
        created_at_s=time.time(),
        limits=Limits(**limits),
    )
    session().ask("test", SubmitRun(spec))
    return Started(Run(run_id))


def _kill_a_busy_worker(run: Started) -> bool:
    """Kill the worker of a trial that runs; False when there is none at the moment."""
    started = {(e.trial, e.attempt): e.pid for e in run.events(AttemptStarted)}
    for ended in run.events(AttemptFinished):
        started.pop((ended.trial, ended.attempt), None)
    for pid in started.values():
        with contextlib.suppress(psutil.Error):
            worker_of(pid).kill()
            return True
    return False


def _has_lost(run: Started, n_before: int) -> bool:
    if run.run.snapshot().n_evictions > n_before:
        return True
    _kill_a_busy_worker(run)
    return False


def test_no_gpu_is_given_to_two_trials_at_a_time_whatever_dies(
    cluster: object, tmp_path: Path
) -> None:
    verb = Search(
        metric="score",
        mode="max",
        n_trials=24,
        space={"x": RandInt(low=0, high=10_000)},
        gpus_per_trial=1,
    )
    run = submit(verb, f"LOCKS = {str(tmp_path)!r}{LOCKING}", max_own_failures=2)
    for n_done in (4, 12):
        until(lambda n=n_done: run.run.snapshot().counts.complete >= n, 60.0, "trials")
        n_before = run.run.snapshot().n_evictions
        # A trial may be through in the moment in which its worker is killed.
        until(lambda n=n_before: _has_lost(run, n), 20.0, "a trial whose worker is killed")
    until(lambda: run.run.snapshot().finished_at_s, 90.0, "the end of the search")
    snapshot = run.run.snapshot()
    errors = [row.failure for row in snapshot.rows if row.failure]
    assert (snapshot.state, snapshot.counts.complete) == ("complete", 24), errors
    assert snapshot.n_evictions >= 1
    assert any(tmp_path.glob("died-*"))
    names = {path.name for path in tmp_path.iterdir() if not path.name.startswith("died-")}
    assert len(names) == 2, "both GPUs were used"
    assert audit(run.all_events()) == []


def test_ranks_of_a_group_have_a_gpu_each_in_every_round(cluster: object) -> None:
    run = submit(Ddp(2, gpus_per_rank=1), f"WAITS = True{GROUP}", max_own_failures=2)
    until(lambda: len(run.pids(1)) == 2 and run.events(Reported, 1), 30.0, "the first round")
    pids = run.pids(1)
    kill(pids[1])
    until(lambda: run.run.snapshot().finished_at_s, 30.0, "the end of the run")
    assert run.run.state == "complete"
    for attempt in (1, 2):
        devices = {e.device for e in run.events(RankStarted, attempt)}
        assert len(devices) == 2
        assert all(device.startswith("cuda GPU-") for device in devices), devices
    (first, second) = run.run.values
    assert first[0] == second[0], "as with torchrun, both see both"
    assert {first[1], second[1]} == {0, 1}
    assert len(set(first[0].split(","))) == 2
    assert not any(map(psutil.pid_exists, pids.values()))


def test_persistent_groups_hold_their_gpus_until_they_end(cluster: object) -> None:
    with open_group(2, gpus_per_rank=1, initialize=False) as group:
        values = group.execute("import os\nos.environ['CUDA_VISIBLE_DEVICES']").values
        assert len(set(values)) == 1
        (status,) = session().ask("test", GetStatus()).status.groups
        assert len({rank.device for rank in status.ranks}) == 2
        assert all(rank.device.startswith("cuda GPU-") for rank in status.ranks)
        run = submit(Ddp(2, gpus_per_rank=1), f"WAITS = False{GROUP}")
        asked = session()

        def paused() -> str:
            return str(asked.ask("test", WatchRun(run.run.id)).snapshot.decode().paused)

        assert "run" in until(paused, 10.0, "a reason")
    until(lambda: run.run.snapshot().state == "complete", 20.0, "the run that waited")
    with pytest.raises(PlacementError, match=r"2 ranks need 4 GPUs, the 2 workers .* have 2"):
        open_group(2, gpus_per_rank=2)


def test_a_torch_without_cuda_says_so_instead_of_training_on_the_cpu(cluster: object) -> None:
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("this torch is built for CUDA")
    with pytest.raises(RunFailedError, match=r"rank \d was given GPU-.* \(built for no CUDA\)"):
        train("import torch", 2, namespace={}, gpus_per_rank=1, max_restarts=0)
    # Left open, GPUs are taken only by a torch that can use them.
    run = train("import torch\nstr(device())", 2, namespace={})
    assert run.values == ["cpu", "cpu"]
