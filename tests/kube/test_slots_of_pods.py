"""Pods of several slots: ranks side by side, which share what their pod holds."""

from __future__ import annotations

import re

import numpy as np
import pytest
from kube_tools import gone, pods, start_kube
from until import until

from jupyter_ddl.client.verbs import map_cell, train

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
    run = map_cell("item", list(range(2)), namespace={})
    assert run.values == [0, 1], "it grew again"
    assert len(pods(namespace, "worker")) == 1, "two elements have room in one pod"
    cluster.stop()
    gone(namespace)
