"""Runs on claims: of the user's own, of others, of none, and on one that is full."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes.access import NEEDS
from jupyter_ddl.client import session as sessions
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.run_names import find_run
from jupyter_ddl.errors import BackendError, ClusterError
from jupyter_ddl.protocol.snapshot import RunSnapshot
from tests.kube.kube_tools import apply, gone, items, kubectl, start_kube, without
from tests.leaks import end_processes, new_home
from tests.run_tools import STEPS, assert_clean, fill, start_search
from tests.until import PATIENCE_S, until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(400)]

Json = dict[str, Any]
_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_CLAIMS = "persistentvolumeclaims"


@pytest.fixture(autouse=True)
def ann(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DDL_USER", "ann")


def names(namespace: str) -> list[str]:
    return [each["metadata"]["name"] for each in items(_CLAIMS, namespace)]


def refused(namespace: str, **kube: Any) -> str:
    with pytest.raises((BackendError, ClusterError)) as caught:
        start_kube(namespace, 1, **kube)
    return caught.value.message


@contextlib.contextmanager
def another_notebook(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """One with a home of its own, which has seen nothing yet."""
    sessions.session().close()
    with new_home() as home:
        for name, value in home.variables().items():
            patch.setenv(name, value)
        patch.setattr(sessions, "_session", None)
        try:
            yield
        finally:
            end_processes(home)


def test_a_claim_of_ones_own_outlives_cluster_and_notebook_with_the_printed_role(
    account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    cluster = start_kube(account, 1, home="pvc", home_size="1Gi", on_phase=told.append)
    assert "runs lie on claim jupyter-ddl-ann, which is new and stays when the cluster ends" in told
    run = start_search(STEPS, 3)
    values = run.wait(PATIENCE_S).trials["value"].tolist()
    cluster.stop()
    gone(account)
    assert names(account) == ["jupyter-ddl-ann"]
    with another_notebook(monkeypatch):
        cluster = start_kube(account, 1, home="pvc")
        again = Run(find_run(run.id))
        assert again.state == "complete"
        assert again.trials["value"].tolist() == values
        cluster.stop()
        gone(account)


def test_who_may_make_no_claim_is_told_what_else_there_is(account: str) -> None:
    without(next(need for need in NEEDS if need.text == f"create {_CLAIMS}"), account)
    said = refused(account, home="pvc")
    assert "could not have claim jupyter-ddl-ann (10Gi) made" in said
    assert "--home pvc:CLAIM" in said
    assert names(account) == []


@pytest.fixture
def no_default_class() -> Iterator[None]:
    (found,) = [
        each["metadata"]["name"]
        for each in json.loads(kubectl("get", "storageclasses", "-o", "json"))["items"]
        if each["metadata"].get("annotations", {}).get(_DEFAULT) == "true"
    ]
    kubectl("annotate", "storageclass", found, f"{_DEFAULT}=false", "--overwrite")
    yield
    kubectl("annotate", "storageclass", found, f"{_DEFAULT}=true", "--overwrite")


@pytest.mark.usefixtures("no_default_class")
def test_without_a_default_storage_class_there_is_a_sentence_and_nothing_is_left(
    namespace: str,
) -> None:
    said = refused(namespace, home="pvc")
    assert "claim jupyter-ddl-ann of pod" in said
    assert "this Kubernetes has no default StorageClass" in said
    gone(namespace)
    until(lambda: names(namespace) == [], 30, "the claim to go")


def claim(name: str, **spec: Any) -> str:
    size = {"requests": {"storage": "1Gi"}}
    body = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": size, **spec}
    metadata = {"name": name}
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    return json.dumps({**kind, "metadata": metadata, "spec": body})


def test_a_claim_that_nobody_binds(namespace: str) -> None:
    apply(claim("runs"), namespace)
    said = refused(namespace, home="pvc:runs")
    assert "claim runs of pod" in said
    assert "is not bound: no persistent volumes available" in said
    gone(namespace)


@pytest.fixture
def volume(namespace: str) -> Iterator[Any]:
    """Makes a volume of a folder of the nodes, and a claim ``runs`` that is bound to it."""
    name = f"volume-{namespace}"

    def make(folder: str, **more: Any) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": folder, "type": "Directory"},
                "claimRef": {"namespace": namespace, "name": "runs"},
                **more,
            },
        }
        apply(json.dumps(body), namespace)
        apply(claim("runs", volumeName=name), namespace)

    yield make
    kubectl("delete", "pv", name, "--wait=false", "--ignore-not-found")


def test_a_claim_that_only_other_nodes_can_mount(namespace: str, volume: Any) -> None:
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["one-that-is-away"]}
    volume("/", nodeAffinity={"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}})
    said = refused(namespace, home="pvc:runs")
    assert "volume node affinity conflict" in said
    assert "its volume is tied to other nodes" in said
    gone(namespace)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid():
        pytest.skip("it takes root to mount a disk that can be filled")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0777", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_claim_that_fills_up_pauses_the_run_and_loses_nothing(
    namespace: str, volume: Any, small_disk: Path
) -> None:
    volume(str(small_disk))
    cluster = start_kube(namespace, 1, home="pvc:runs")
    run = start_search(STEPS, 12, seed=3)
    ballast = small_disk / "ballast"
    pauses: list[str] = []

    def watch(seen: RunSnapshot) -> None:
        if seen.counts.complete >= 3 and not ballast.exists() and not pauses:
            fill(ballast)
        elif seen.paused and ballast.exists():
            pauses.append(seen.paused)
            if "bytes" in seen.paused:
                ballast.unlink()

    run.wait(PATIENCE_S, on_snapshot=watch)
    assert run.state == "complete"
    assert_clean(run, 12)
    assert "No space left on device" in pauses[-1]
    assert run.trials["own_failures"].sum() == 0
    cluster.stop()
    gone(namespace)
