"""A lost pod or scheduler is an eviction, never a failed trial; nodes: `test_node_loss.py`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from jupyter_ddl.backends.kubernetes.access import role_manifest
from jupyter_ddl.backends.kubernetes.names import SERVICE_ACCOUNT
from jupyter_ddl.backends.kubernetes.spot import SpotPool
from jupyter_ddl.client.api import search
from jupyter_ddl.protocol.events import Notice
from jupyter_ddl.store.connection import read_connection
from tests.kube.kube_tools import (
    api_server_restarts,
    apply,
    delete_pod,
    gone,
    kubectl,
    objects,
    pods,
    processes_in,
    start_kube,
)
from tests.run_tools import assert_clean, outcomes, starts, wait_for
from tests.until import until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]

_USED = "jsonpath={.status.used.pods}"
LONG = """
import json
import time
from jupyter_ddl import checkpoint, report, resume, uniform
x = uniform(0.0, 1.0)
state = resume()
print("begins at", None if state is None else state["step"])
for step in range(0 if state is None else state["step"] + 1, 40):
    time.sleep(0.25)
    report(step=step, score=x)
    checkpoint(step=step, x=x)
"""


def test_worker_pod_deleted_in_mid_trial(namespace: str) -> None:
    cluster = start_kube(namespace, 1)
    run = search(LONG, namespace={}, metric="score", trials=1, wait=False)
    wait_for(run, lambda seen: _steps(run.directory) >= 6, 90)
    began_s = time.monotonic()
    (worker,) = pods(namespace, "worker")
    delete_pod(namespace, worker["metadata"]["name"])
    until(lambda: len(starts(run)) == 2, 90, "the trial to start again")
    print(f"resumed {time.monotonic() - began_s:.1f} s after its pod was deleted")
    run.wait()
    first, second = (end.outcome for end in outcomes(run))
    assert first in ("evicted", "moved"), "a force-deleted pod may still be told to go"
    assert second == "complete"
    printed = [path.read_text() for path in (run.directory / "logs").iterdir()]
    assert "begins at None\n" in printed, "what the lost pod had printed is here"
    resumed_at = int(run.logs(0).rsplit("begins at ", 1)[1].split()[0])
    assert resumed_at >= 4, "it went on from its checkpoint"
    assert run.state == "complete"
    cluster.stop()
    gone(namespace)


def test_a_node_that_announces_its_end_costs_no_try(namespace: str) -> None:
    """The taint is soft and of this test alone: others who use the same nodes notice nothing."""
    taint = f"{namespace}.example.org/going"
    kubectl("label", "node", "--all", f"{namespace}=spot")
    apply(role_manifest(namespace), namespace)
    reader = f"--serviceaccount={namespace}:{SERVICE_ACCOUNT}"
    try:
        kubectl("create", "clusterrole", namespace, "--verb=get", "--resource=nodes")
        kubectl("create", "clusterrolebinding", namespace, f"--clusterrole={namespace}", reader)
        pool = SpotPool({namespace: "spot"}, notices=(taint,))
        cluster = start_kube(namespace, 1, spot=pool)
        run = search(LONG, namespace={}, metric="score", trials=1, wait=False)
        wait_for(run, lambda seen: _steps(run.directory) >= 6, 90)
        (worker,) = pods(namespace, "worker")
        node = worker["spec"]["nodeName"]
        began_s = time.monotonic()
        kubectl("taint", "node", node, f"{taint}=soon:PreferNoSchedule")
        until(lambda: len(starts(run)) == 2, 90, "the trial to start again")
        print(f"resumed {time.monotonic() - began_s:.1f} s after the notice")
        run.wait()
        assert [end.outcome for end in outcomes(run)] == ["moved", "complete"]
        (told,) = [e.text for e in run.events() if isinstance(e, Notice) and taint in e.text]
        assert f"node {node} is about to be taken away" in told
        (trial,) = run.trials.itertuples()
        assert (trial.own_failures, trial.evictions) == (0, 0)
        cluster.stop()
        gone(namespace)
    finally:
        kubectl("label", "node", "--all", f"{namespace}-")
        kubectl("taint", "node", "--all", f"{taint}-", check=False)
        kubectl("delete", "clusterrole,clusterrolebinding", namespace, check=False)


def test_scheduler_pod_deleted_in_mid_search(namespace: str) -> None:
    """The controller goes with it; what has ended there before is not repeated by the next one."""
    cluster = start_kube(namespace, 2)
    run = search(LONG, namespace={}, metric="score", trials=4, wait=False)
    wait_for(run, lambda seen: _steps(run.directory) >= 6, 90)
    (scheduler,) = pods(namespace, "scheduler")
    began_s = time.monotonic()
    delete_pod(namespace, scheduler["metadata"]["name"])
    until(lambda: len(starts(run)) >= 4, 120, "the trials to go on")
    print(f"went on {time.monotonic() - began_s:.1f} s after the scheduler was deleted")
    run.wait()
    assert run.state == "complete"
    assert run.errors == {}
    assert_clean(run, 4)
    # Only what was in flight is repeated; if it was not so, the log tells why.
    assert 1 <= len(starts(run)) - 4 <= 2, cluster.logs(n_lines=80)
    assert all(trial.own_failures == 0 for trial in run.trials.itertuples())
    assert len(cluster.status().workers) == 2
    cluster.stop()
    gone(namespace)


def test_dask_cluster_deleted_in_mid_search(namespace: str) -> None:
    """It takes its controller along; the run is here, and goes on with the next cluster."""
    start_kube(namespace, 2)
    run = search(LONG, namespace={}, metric="score", trials=4, wait=False)
    wait_for(run, lambda seen: _steps(run.directory) >= 6, 90)
    _delete_cluster(namespace)
    until(lambda: read_connection("kube") is None, 90, "what stood here for it to end")
    gone(namespace)
    cluster = start_kube(namespace, 2)
    run.wait()
    assert (run.state, run.errors) == ("complete", {})
    assert_clean(run, 4)
    cluster.stop()
    gone(namespace)


def _delete_cluster(namespace: str) -> str:
    """As somebody does with kubectl; returns its name."""
    (name,) = [
        each.removeprefix("DaskCluster/")
        for each in objects(namespace)
        if each.startswith("DaskCluster/")
    ]
    kubectl("delete", "daskcluster", name, "-n", namespace, "--wait=false")
    return name


def test_scheduler_that_is_slow_is_not_lost(namespace: str, lab: Path) -> None:
    """It does not answer for longer than a renewal of the lease waits; nothing is repeated."""
    cluster = start_kube(namespace, 1, lease_s=40.0)
    run = search(LONG, namespace={}, metric="score", trials=1, wait=False)
    wait_for(run, lambda seen: _steps(run.directory) >= 2, 90)
    (scheduler,) = pods(namespace, "scheduler")
    process = processes_in(scheduler["metadata"]["name"], "scheduler")[0]
    process.suspend()
    try:
        until(lambda: "the scheduler does not answer" in cluster.logs(), 60)
    finally:
        process.resume()
    run.wait()
    assert [end.outcome for end in outcomes(run)] == ["complete"]
    assert len(cluster.status().workers) == 1
    cluster.stop()
    gone(namespace)


@pytest.mark.slow
def test_scaling_down_spares_what_is_busy_and_moves_the_rest(namespace: str) -> None:
    cluster = start_kube(namespace, 2)
    run = search(LONG, namespace={}, metric="score", trials=1, wait=False)
    wait_for(run, lambda seen: _steps(run.directory) >= 2, 90)
    cluster.scale(1)
    until(lambda: len(pods(namespace, "worker")) == 1, 90)
    run.wait()
    assert [end.outcome for end in outcomes(run)] == ["complete"], "the busy worker stayed"

    cluster.adapt(0, 2)
    until(lambda: len(pods(namespace, "worker")) == 0, 120, "an idle cluster to shrink to nothing")
    run = search(LONG, namespace={}, metric="score", trials=1, wait=True)
    assert run.state == "complete", "it grew again for the run"
    cluster.stop()
    gone(namespace)


def _steps(directory: Path) -> int:
    """The largest step of which a checkpoint is at the controller."""
    found = directory.glob("checkpoints/trial-*/step-*.ckpt")
    return max((int(path.name.split("-")[1]) for path in found), default=-1)


def test_api_server_restarted(namespace: str, lab: Path) -> None:
    """Runs go on without it; what needs it waits for it."""
    cluster = start_kube(namespace, 1)
    run = search(LONG, namespace={}, metric="score", trials=1, wait=False)
    wait_for(run, lambda seen: _steps(run.directory) >= 2, 90)
    with api_server_restarts():
        cluster.scale(2)
    until(lambda: len(cluster.status().workers) == 2, 120)
    run.wait()
    assert [end.outcome for end in outcomes(run)] == ["complete"]
    cluster.stop()
    gone(namespace)


def test_workers_that_a_quota_refuses(namespace: str) -> None:
    """A cluster that does not grow says why; one that has grown says nothing."""
    cluster = start_kube(namespace, 1)
    hard = {"pods": str(len(pods(namespace, "worker") + pods(namespace, "scheduler")))}
    quota = {"kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": hard}}
    apply(json.dumps({"apiVersion": "v1", **quota}), namespace)
    until(
        lambda: kubectl("get", "quota", "small", "-n", namespace, "-o", _USED) == hard["pods"], 30
    )
    cluster.scale(2)
    until(lambda: "exceeded quota: small" in cluster.status().trouble, 60)
    assert cluster.status().state == "degraded"
    cluster.scale(1)
    until(lambda: cluster.status().trouble == "", 30)
    assert cluster.status().state == "ready"
    cluster.stop()
    gone(namespace)
