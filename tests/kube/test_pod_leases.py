"""Nothing is orphaned, whoever dies first."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import pytest

from jupyter_ddl.client.clusters import delete_elsewhere, list_clusters
from tests.kube.kube_tools import (
    IMAGE,
    apply,
    elsewhere,
    gone,
    kubectl,
    objects,
    pods,
    start_kube,
)
from tests.leaks import Home
from tests.run_tools import kill_controller
from tests.until import until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(500)]

_LEASE_S = 8.0


def test_controller_killed_and_never_back(namespace: str) -> None:
    """The operator is told by the scheduler that the lease is over, and deletes the cluster."""
    start_kube(namespace, 1, lease_s=_LEASE_S)
    kill_controller("kube")
    took_s = gone(namespace, _LEASE_S + 60)
    print(f"nothing was left {took_s:.1f} s after the controller's death")
    assert took_s > _LEASE_S / 2


def test_cluster_that_is_renewed_outlives_its_lease(namespace: str) -> None:
    cluster = start_kube(namespace, 1, lease_s=_LEASE_S)
    deadline = time.monotonic() + 3 * _LEASE_S
    until(lambda: time.monotonic() > deadline, 4 * _LEASE_S)
    assert len(cluster.status().workers) == 1
    cluster.stop()
    gone(namespace)


def test_killed_controller_is_replaced_by_the_next_of_its_name(namespace: str) -> None:
    start_kube(namespace, 1)
    (before,) = [each for each in objects(namespace) if each.startswith("DaskCluster/")]
    kill_controller("kube")
    start_kube(namespace, 1)
    until(lambda: before not in objects(namespace), 30)
    (after,) = [each for each in objects(namespace) if each.startswith("DaskCluster/")]
    assert after != before


def test_clusters_side_by_side_are_listed_and_stopped(
    namespace: str, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start_kube(namespace, 0, name="one")
    start_kube(namespace, 0, name="two")
    assert {each.name for each in list_clusters()} == {"one", "two"}
    assert elsewhere(namespace) == []
    first.stop()

    # From another host, which has none of this one's connection files, the other one is seen.
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(home.root / "elsewhere"))
    (found,) = elsewhere(namespace)
    assert (found.name, found.place) == ("two", f"namespace {namespace}")
    delete_elsewhere(found)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(home.runtime))
    gone(namespace)


def test_start_that_is_given_up_leaves_nothing(namespace: str) -> None:
    """Interrupted while its pods wait for a node."""
    pid = os.getpid()
    pending = []

    def interrupt(text: str) -> None:
        if "waiting for a node" in text and not pending:
            pending.append(text)
            os.kill(pid, signal.SIGINT)

    from jupyter_ddl.client.clusters import start_cluster

    where = {"image": IMAGE, "namespace": namespace, "node_selector": {"no": "such"}}
    with pytest.raises(KeyboardInterrupt):
        start_cluster("kube", 1, on_phase=interrupt, **where)
    gone(namespace)


def test_start_waits_for_the_room_of_pods_that_end(namespace: str) -> None:
    """A quota that a stopped cluster still fills is not held against the next one."""
    apply(json.dumps(_slow_to_end("old", 20)), namespace)
    kubectl("wait", "pod/old", "-n", namespace, "--for=condition=Ready", "--timeout=60s")
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "three"},
        "spec": {"hard": {"pods": "3"}},
    }
    apply(json.dumps(quota), namespace)
    kubectl("delete", "pod", "old", "-n", namespace, "--wait=false")
    phases: list[str] = []
    cluster = start_kube(namespace, 2, on_phase=phases.append)
    assert len(cluster.status().workers) == 2
    assert any("hold room: 1" in phase for phase in phases)
    cluster.stop()
    gone(namespace)


def _slow_to_end(name: str, grace_s: int) -> dict[str, Any]:
    """Pod of a cluster, with a process that does not hear SIGTERM."""
    program = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(900)"
    container = {"name": "worker", "image": IMAGE, "command": ["python", "-c", program]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"dask.org/cluster-name": name}},
        "spec": {"terminationGracePeriodSeconds": grace_s, "containers": [container]},
    }


@pytest.mark.slow
def test_without_operator_and_controller_pods_end_by_themselves(namespace: str) -> None:
    start_kube(namespace, 1, lease_s=_LEASE_S)
    kubectl("-n", "dask-operator", "scale", "deployment/dask-operator", "--replicas=0")
    try:
        kill_controller("kube")

        def is_over() -> bool:
            (scheduler,) = pods(namespace, "scheduler")
            statuses = scheduler["status"].get("containerStatuses", [])
            return any(each["restartCount"] > 0 for each in statuses)

        until(is_over, _LEASE_S + 90)
    finally:
        kubectl("-n", "dask-operator", "scale", "deployment/dask-operator", "--replicas=1")
    gone(namespace)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_thirty_clusters_in_a_row(namespace: str) -> None:
    """None gives up, and none leaves anything."""
    for number in range(30):
        began_s = time.monotonic()
        cluster = start_kube(namespace, 2)
        started_s = time.monotonic() - began_s
        assert len(cluster.status().workers) == 2
        began_s = time.monotonic()
        cluster.stop()
        stopped_s = time.monotonic() - began_s
        ended_s = gone(namespace)
        until(lambda: not objects(namespace), 30, "the last pods to be forgotten")
        forgotten_s = time.monotonic() - began_s
        print(
            f"{number + 1}: started in {started_s:.1f} s, stopped in {stopped_s:.1f} s, all ended "
            f"{ended_s:.1f} s later, nothing left {forgotten_s:.1f} s after the stop began"
        )
