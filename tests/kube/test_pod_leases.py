"""Nothing is orphaned, whoever dies first."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes.api import NAMESPACE_VARIABLE
from jupyter_ddl.client.api import map_cell
from jupyter_ddl.client.clusters import Cluster, attach_cluster, list_clusters
from jupyter_ddl.client.elsewhere import delete_elsewhere
from jupyter_ddl.errors import ClusterError, ControllerError
from jupyter_ddl.store.connection import read_connection
from tests.kube.kube_tools import (
    IMAGE,
    apply,
    elsewhere,
    gone,
    items,
    kubectl,
    objects,
    pods,
    restarts,
    signal_controller,
    start_kube,
)
from tests.leaks import Home
from tests.run_tools import kill_controller
from tests.until import until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(500)]

_LEASE_S = 8.0


def test_a_controller_that_says_nothing_any_more(namespace: str) -> None:
    """The operator is told by the scheduler that the lease is over, and deletes the cluster."""
    start_kube(namespace, 1, lease_s=_LEASE_S)
    signal_controller(namespace, "SIGSTOP")
    took_s = gone(namespace, _LEASE_S + 90)
    print(f"nothing was left {took_s:.1f} s after the controller's end")
    assert took_s > _LEASE_S / 2


def test_a_controller_that_ends_is_begun_again_beside_its_workers(namespace: str) -> None:
    cluster = start_kube(namespace, 1)
    before = [each["metadata"]["uid"] for each in pods(namespace, "worker")]
    for _ in range(3):
        print(
            f"another controller served {_replaced(cluster, namespace):.1f} s after the end of one"
        )
    assert restarts(namespace, "controller") == 0, "its container goes on"
    assert map_cell("item + 1", [1, 2], namespace={}).values == [2, 3]
    assert [each["metadata"]["uid"] for each in pods(namespace, "worker")] == before
    cluster.stop()
    gone(namespace)


def _replaced(cluster: Cluster, namespace: str) -> float:
    """Kill the controller; returns the seconds until another one serves."""
    began_s, former = time.monotonic(), _pid(cluster)
    signal_controller(namespace, "SIGKILL")
    until(lambda: _pid(cluster) not in (0, former), 60, "another controller")
    return time.monotonic() - began_s


def _pid(cluster: Cluster) -> int:
    """Of the controller that serves; 0: none does now."""
    try:
        status = cluster.status()
    except ControllerError:
        return 0
    return status.controller_pid if len(status.workers) == 1 and not status.trouble else 0


def test_cluster_that_is_renewed_outlives_its_lease(namespace: str) -> None:
    cluster = start_kube(namespace, 1, lease_s=_LEASE_S)
    deadline = time.monotonic() + 3 * _LEASE_S
    until(lambda: time.monotonic() > deadline, 4 * _LEASE_S)
    assert len(cluster.status().workers) == 1
    cluster.stop()
    gone(namespace)


def test_a_cluster_goes_on_without_anybody_here_and_is_used_again(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NAMESPACE_VARIABLE, namespace)
    start_kube(namespace, 1)
    before = objects(namespace)
    kill_controller("kube")  # what stands here for it
    with pytest.raises(ClusterError, match="a cluster named 'kube' is there"):
        start_kube(namespace, 1)
    again = attach_cluster("kube")
    assert objects(namespace) == before, "nothing was made, and nothing ended"
    assert map_cell("item + 1", [1, 2], namespace={}).values == [2, 3]
    again.stop()
    gone(namespace)


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
    until(lambda: read_connection("two") is None, 60, "what stood here for it to end")


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
        signal_controller(namespace, "SIGSTOP")
        until(lambda: restarts(namespace, "scheduler") > 0, _LEASE_S + 90)
    finally:
        kubectl("-n", "dask-operator", "scale", "deployment/dask-operator", "--replicas=1")
    gone(namespace)


def test_kubernetes_ends_all_with_the_job_that_nobody_else_needs(namespace: str) -> None:
    """Newer ones delete it when it is over; here a person does."""
    start_kube(namespace, 1)
    (job,) = items("jobs", namespace)
    assert job["spec"]["activeDeadlineSeconds"] > 86400
    name = job["metadata"]["name"]
    kubectl("delete", "job", name, "-n", namespace, "--cascade=background", "--wait=false")
    gone(namespace)
    until(lambda: read_connection("kube") is None, 60, "what stood here for it to end")


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
