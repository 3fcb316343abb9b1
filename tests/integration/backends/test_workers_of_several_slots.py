"""Workers with several slots each: ranks side by side, which share their worker's GPUs and end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.client.api import search, train
from jupyter_ddl.client.clusters import Cluster, connect_cluster
from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import PlacementError
from jupyter_ddl.protocol.events import AttemptFinished, CheckpointSaved, RankEnded, RankStarted
from tests.fake_nvml import FakeNvml
from tests.integration.backends.foreign import Foreign, foreign_cluster
from tests.leaks import Home
from tests.run_tools import assert_clean, wait_for
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

_OWN = """
import os, time
from pathlib import Path
from jupyter_ddl import report
seen = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
mine = seen[int(os.environ["LOCAL_RANK"])]
step = 0
while not Path(GO).exists():
    report(step=(step := step + 1))
    time.sleep(0.02)
[mine, seen, os.environ["LOCAL_WORLD_SIZE"]]
"""
_LOCKING = """
import fcntl, os, time
from jupyter_ddl import report, uniform
x = uniform(0.0, 1.0)
(uuid,) = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
held = open(f"{LOCKS}/{uuid}", "w")
fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
for step in range(5):
    time.sleep(0.05)
    report(step=step, score=x)
"""
"""Fails where another process lives that was given the same GPU."""
_TRAIN = """
import time
import torch, torch.distributed as dist
from jupyter_ddl import checkpoint, report, resume, world_size
state = resume() or {"epoch": -1}
for epoch in range(state["epoch"] + 1, 10**9):
    dist.all_reduce(torch.ones(4))
    report(step=epoch, size=world_size())
    checkpoint(step=epoch, epoch=epoch)
    time.sleep(0.05)
"""


@pytest.fixture
def foreign(home: Home) -> Iterator[Foreign]:
    with foreign_cluster(home, 0, nanny=False, tls=False) as found:
        yield found


@pytest.fixture
def with_gpus(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, in the eyes of every process that this test starts."""
    for name, value in FakeNvml(home.root).variables().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def cluster(foreign: Foreign) -> Iterator[Cluster]:
    foreign.add_workers(1, nanny=False, n_slots=2)
    connected = connect_cluster(foreign.address)
    yield connected
    connected.stop()


def _kill(foreign: Foreign, address: str) -> None:
    """The host of all ranks of a worker is gone."""
    with foreign.client() as client:
        pid = client.run(os.getpid, workers=[address])[address]
    os.kill(pid, signal.SIGKILL)


def _of(run: Run, kind: type[Any], attempt: int) -> list[Any]:
    return [e for e in run.events() if isinstance(e, kind) and e.attempt == attempt]


def test_ranks_of_one_worker_have_a_gpu_each_also_after_its_loss(
    with_gpus: None, foreign: Foreign, cluster: Cluster, tmp_path: Path
) -> None:
    (worker,) = cluster.status().workers
    assert worker.n_slots == 2
    with pytest.raises(PlacementError, match=r"2 ranks need 4 GPUs, the worker .* has 2"):
        train("1", 2, namespace={}, gpus_per_rank=2)
    go = tmp_path / "go"
    run = train(_OWN, 2, namespace={"GO": str(go)}, gpus_per_rank=1, wait=False)
    until(lambda: len(_of(run, RankStarted, 1)) == 2, 60, "both ranks")
    wait_for(run, lambda seen: seen.last_step is not None)
    _kill(foreign, worker.address)
    until(lambda: _of(run, AttemptFinished, 1), 40, "the loss")
    foreign.add_workers(1, nanny=False, n_slots=2)
    until(lambda: len(_of(run, RankStarted, 2)) == 2, 60, "both ranks again")
    go.touch()
    run.wait(PATIENCE_S)
    assert run.state == "complete"
    (first, seen, local), (second, *same) = run.values
    assert {first, second} == set(seen)
    assert len(set(seen)) == 2
    assert same == [seen, local]
    assert local == "2"
    for attempt in (1, 2):
        assert len({start.device for start in _of(run, RankStarted, attempt)}) == 2
        assert len({start.worker for start in _of(run, RankStarted, attempt)}) == 1
    assert "evicted" in {end.outcome for end in _of(run, RankEnded, 1)}
    assert_clean(run)


def test_no_gpu_of_a_worker_is_given_to_two_of_its_trials(
    with_gpus: None, cluster: Cluster, tmp_path: Path
) -> None:
    names = {"LOCKS": str(tmp_path)}
    run = search(_LOCKING, namespace=names, metric="score", trials=12, gpus_per_trial=1)
    assert_clean(run, 12)
    assert len(list(tmp_path.iterdir())) == 2, "both GPUs were used"


def test_a_lost_worker_takes_all_its_ranks_and_the_others_go_on(
    foreign: Foreign, cluster: Cluster
) -> None:
    foreign.add_workers(1, nanny=False, n_slots=2)
    until(lambda: len(cluster.status().workers) == 2, 30, "the second worker")
    run = train(_TRAIN, 4, namespace={}, min_ranks=2, wait=False)
    until(lambda: len(_of(run, CheckpointSaved, 1)) > 2, 60, "a checkpoint of four ranks")
    on = {start.rank: start.worker for start in _of(run, RankStarted, 1)}
    assert len(set(on.values())) == 2
    assert on[0] == on[1], "ranks of a worker are neighbours"
    _kill(foreign, on[2])
    until(lambda: len(_of(run, CheckpointSaved, 2)) > 2, 60, "a smaller round that goes on")
    ends = {end.rank: end.outcome for end in _of(run, RankEnded, 1)}
    # The loss of one ends the round; that of the other is no more news then.
    assert sorted((ends[2], ends[3])) in (["cancelled", "evicted"], ["evicted"] * 2)
    assert {start.worker for start in _of(run, RankStarted, 2)} == {on[0]}
    assert _of(run, CheckpointSaved, 2)[0].step > _of(run, CheckpointSaved, 1)[-1].step
    (lost,) = run.snapshot().restarts
    assert (lost.round, lost.cause) == (1, "lost its worker")
    assert run.snapshot().rows[0].own_failures == 0
    foreign.add_workers(1, nanny=False, n_slots=2)
    wait_for(run, lambda seen: seen.world_size == 4 and seen.round > 2, 60)
    run.cancel("now")
    run.wait(PATIENCE_S)
    assert_clean(run)
