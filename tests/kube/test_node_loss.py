"""A node that is switched off: nothing is lost, and all is whole again when it returns."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_ddl.client.api import search, train
from jupyter_ddl.client.clusters import Cluster
from jupyter_ddl.client.run import Run
from jupyter_ddl.protocol.events import Reported
from tests.kube.kube_tools import gone, kubectl, lab_up, lose_node, pods, start_kube
from tests.run_tools import assert_clean, outcomes, starts, wait_for
from tests.until import until

pytestmark = [pytest.mark.kube, pytest.mark.slow, pytest.mark.timeout(600)]

_SEARCH = """
import time
from jupyter_ddl import checkpoint, report, resume, uniform
x = uniform(0.0, 1.0)
state = resume()
for step in range(0 if state is None else state["step"] + 1, 30):
    time.sleep(0.25)
    report(step=step, score=x)
    checkpoint(step=step, x=x)
"""

_DDP = """
import time
import torch, torch.distributed as dist
from jupyter_ddl import checkpoint, report, resume
state = resume()
for step in range(0 if state is None else int(state["step"]) + 1, 200):
    x = torch.ones(1)
    dist.all_reduce(x)
    time.sleep(0.4)
    report(step=step, world=float(x[0]))
    checkpoint(step=step, x=x)
"""


@pytest.fixture
def cluster(namespace: str, lab: Path) -> Iterator[Cluster]:
    """Two workers on two nodes, the scheduler on the first one."""
    lab_up("--nodes", "2")
    kubectl("wait", "--for=condition=Ready", "node/node2", "--timeout=60s")
    try:
        started = start_kube(namespace, 2, pod_template=_one_worker_per_node())
        assert _nodes(namespace) == {"node1", "node2"}
        yield started
        started.stop()
        gone(namespace)
    finally:
        lab_up("--nodes", "2")


def test_a_search_loses_no_trial_and_charges_none(cluster: Cluster, namespace: str) -> None:
    run = search(_SEARCH, namespace={}, metric="score", trials=6, wait=False)
    wait_for(run, lambda seen: _step(run) >= 4 and seen.counts.running == 2, 120)
    began_s = time.monotonic()
    lose_node(2)
    until(lambda: outcomes(run, "evicted"), 90, "the loss to be noticed")
    print(f"noticed {time.monotonic() - began_s:.1f} s after the node was lost")
    wait_for(run, lambda seen: seen.counts.complete >= 1, 120)
    lab_up("--nodes", "2")
    run.wait()
    assert (run.state, run.errors) == ("complete", {})
    assert_clean(run, 6)
    assert outcomes(run, "failed") == []
    assert len(outcomes(run, "evicted", "moved")) <= 2, "only what was there is repeated"
    until(lambda: len(cluster.status().workers) == 2, 180, "the cluster to be whole again")
    assert _nodes(namespace) == {"node1", "node2"}


def test_a_ddp_run_goes_on_smaller_and_grows_when_the_node_returns(
    cluster: Cluster, namespace: str
) -> None:
    run = train(_DDP, 2, namespace={}, min_ranks=1, wait=False)
    wait_for(run, lambda seen: _step(run) >= 4, 120)
    began_s = time.monotonic()
    lose_node(2)
    until(lambda: 1.0 in _worlds(run), 120, "a round of one rank")
    print(f"smaller {time.monotonic() - began_s:.1f} s after the node was lost")
    began_s = time.monotonic()
    lab_up("--nodes", "2")
    until(lambda: _worlds(run) == [2.0, 1.0, 2.0], 150, "a round of two ranks again")
    print(f"whole {time.monotonic() - began_s:.1f} s after the node was switched on")
    assert _nodes(namespace) == {"node1", "node2"}
    run.cancel()
    assert_clean(run)
    assert [end.outcome for end in outcomes(run)][:2] == ["evicted", "moved"]
    of_rank_0 = run.metrics.query("rank == 0")["step"].tolist()
    assert of_rank_0 == list(range(len(of_rank_0))), "no step is missing, none is told twice"
    assert len(starts(run)) == 3


def _one_worker_per_node() -> str:
    """A template for scheduler and workers: the former belongs to the node that stays."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"dask.org/component": "worker"}},
    }
    first = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node1"]}
    prefer = {"weight": 100, "preference": {"matchExpressions": [first]}}
    return json.dumps(
        {
            "containers": [],
            "topologySpreadConstraints": [spread],
            "affinity": {
                "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [prefer]}
            },
        }
    )


def _nodes(namespace: str) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in pods(namespace, "worker")}


def _step(run: Run) -> int:
    """The largest step of which a checkpoint is at the controller."""
    found = run.directory.glob("checkpoints/trial-*/step-*.ckpt")
    return max((int(path.name.split("-")[1]) for path in found), default=-1)


def _worlds(run: Run) -> list[float]:
    """The sizes of the group as rank 0 has seen them, one after another."""
    seen: list[float] = []
    for event in run.events():
        if isinstance(event, Reported) and event.rank == 0:
            world = float(event.metrics["world"])
            if seen[-1:] != [world]:
                seen.append(world)
    return seen
