"""Pods of several slots: ranks side by side, which share what their pod holds."""

from __future__ import annotations

import re

import numpy as np
import pytest

from jupyter_ddl.client.api import map_cell, train
from jupyter_ddl.protocol.events import AttemptFinished, RankStarted
from tests.kube.kube_tools import delete_pod, gone, pods, start_kube
from tests.run_tools import assert_clean, wait_for
from tests.until import until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(400)]

_CELL = """
import os, socket, time
mapped = set()
for line in open("/proc/self/maps"):
    begin, end = (int(each, 16) for each in line.split()[0].split("-"))
    if "/blobs/" in line and end - begin >= data.nbytes:
        mapped.add(tuple(line.split()[3:5]))
time.sleep(0.5)
float(data.sum()), os.getpid(), socket.gethostname(), sorted(mapped)
"""
_DDP = """
import socket
import torch, torch.distributed as dist
total = torch.ones(1)
dist.all_reduce(total)
float(total[0]), socket.gethostname()
"""

_TRAIN = """
import time
import torch, torch.distributed as dist
from jupyter_ddl import checkpoint, report, resume, world_size
state = resume() or {"epoch": -1}
for epoch in range(state["epoch"] + 1, 10**9):
    dist.all_reduce(torch.ones(4))
    report(step=epoch, size=world_size())
    checkpoint(step=epoch, epoch=epoch)
    time.sleep(0.1)
"""

_SMALL = '{"containers": [{"resources": {"requests": {"cpu": "400m"}}}]}'
"""Two pods of two ranks have room on one node of two CPUs."""


def test_a_captured_array_is_in_a_pod_once_whatever_its_ranks(namespace: str) -> None:
    cluster = start_kube(namespace, 1, slots=2)
    (pod,) = pods(namespace, "worker")
    (worker,) = cluster.status().workers
    assert worker.n_slots == 2
    data = np.arange(2_000_000, dtype=float)
    run = map_cell(_CELL, list(range(4)), namespace={"data": data})
    sums, pids, hosts, mapped = zip(*run.values, strict=True)
    assert set(sums) == {float(data.sum())}
    assert len(set(pids)) >= 2
    assert set(hosts) == {pod["metadata"]["name"]}
    assert len(mapped[0]) == 1
    assert all(each == mapped[0] for each in mapped), "one file, by device and inode"
    assert len(re.findall(r"sent 16000\d+ bytes", cluster.logs(n_lines=1000))) == 1

    ddp = train(_DDP, 2, namespace={})
    assert (ddp.state, ddp.values) == ("complete", [(2.0, hosts[0])] * 2)

    cluster.adapt(0, 2)
    until(lambda: not pods(namespace, "worker"), 120, "an idle cluster to shrink to nothing")
    run = map_cell("import time\ntime.sleep(3)\nitem", [0, 1], namespace={}, wait=False)
    until(lambda: run.snapshot().counts.running == 2, 120, "it to grow again")
    assert len(pods(namespace, "worker")) == 1, "two elements have room in one pod"
    assert run.wait(60).values == [0, 1]
    cluster.stop()
    gone(namespace)


def test_a_lost_pod_takes_all_its_ranks_and_the_round_is_made_anew(namespace: str) -> None:
    cluster = start_kube(namespace, 2, slots=2, pod_template=_SMALL)
    run = train(_TRAIN, 4, namespace={}, min_ranks=2, wait=False)
    wait_for(run, lambda seen: seen.world_size == 4 and (seen.checkpoint_step or 0) > 3, 120)
    began = {e.rank: e for e in run.events() if isinstance(e, RankStarted) and e.attempt == 1}
    assert len({e.host for e in began.values()}) == 2
    assert began[0].worker == began[1].worker, "ranks of a pod are neighbours"
    before = run.snapshot().checkpoint_step or 0
    ip = began[2].host
    (lost,) = [pod for pod in pods(namespace, "worker") if pod["status"].get("podIP") == ip]
    delete_pod(namespace, lost["metadata"]["name"])
    # At once on what is left, or on a pod that has come in its place meanwhile; then all again.
    wait_for(run, lambda seen: seen.round >= 2 and (seen.checkpoint_step or 0) > before + 3, 120)
    wait_for(run, lambda seen: seen.world_size == 4 and seen.last_step is not None, 180)
    ends = [e.outcome for e in run.events() if isinstance(e, AttemptFinished)]
    assert ends, "the first round is over"
    assert set(ends) <= {"evicted", "moved"}
    assert run.snapshot().rows[0].own_failures == 0, "a lost pod is nobody's fault"
    run.cancel("now")
    run.wait(60)
    assert_clean(run)
    cluster.stop()
    gone(namespace)
