"""Each way in which a Kubernetes can be unfit: one sentence in 30 s, and nothing half-created."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kube_tools import OTHER_IMAGE, apply, gone, kubectl, objects, pods, start_kube
from leaks import Home
from until import until

from jupyter_ddl.errors import ClusterError

pytestmark = [pytest.mark.kube, pytest.mark.timeout(400)]

_SENTENCE_S = 45.0
"""The promise is 30 s on a machine that is not shared with other tests."""


def refused(start: Callable[[], object]) -> str:
    """The one line with which a start is refused, in time."""
    began_s = time.monotonic()
    with pytest.raises(ClusterError) as caught:
        start()
    took_s = time.monotonic() - began_s
    message = caught.value.message
    print(f"{took_s:5.1f} s  {message}")
    assert took_s < _SENTENCE_S
    assert "\n" not in message
    assert len(message) < 900
    return message


def test_image_that_does_not_exist(namespace: str) -> None:
    said = refused(lambda: start_kube(namespace, 1, image="nowhere.invalid/team/none:1"))
    assert "image nowhere.invalid/team/none:1 can't be pulled" in said
    assert "--env IMAGE" in said
    gone(namespace)


def test_image_without_this_package(namespace: str) -> None:
    """It crashes: the last lines of its log are told."""
    said = refused(lambda: start_kube(namespace, 1, image=OTHER_IMAGE))
    assert "crashed" in said
    assert "No module named 'jupyter_ddl'" in said or "jupyter_ddl" in said
    gone(namespace)


def test_no_node_fits(namespace: str) -> None:
    said = refused(lambda: start_kube(namespace, 1, node_selector={"disk": "holographic"}))
    assert "no node fits" in said
    assert "--node-selector" in said
    gone(namespace)


def test_no_gpu(namespace: str) -> None:
    said = refused(lambda: start_kube(namespace, 1, gpus=4))
    assert "nvidia.com/gpu 4" in said
    assert "--gpus" in said
    gone(namespace)


def test_quota(namespace: str) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"requests.memory": "300Mi"}},
    }
    apply(json.dumps(quota), namespace)
    said = refused(lambda: start_kube(namespace, 1))
    assert "exceeded quota: small" in said
    gone(namespace)


def test_namespace_that_does_not_exist(namespace: str) -> None:
    said = refused(lambda: start_kube("ddl-not-there", 1))
    assert "ddl-not-there" in said
    assert "not found" in said


def test_namespace_that_is_being_deleted(namespace: str) -> None:
    blocked = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "stays", "finalizers": ["example.org/wait"]},
    }
    apply(json.dumps(blocked), namespace)
    kubectl("delete", "namespace", namespace, "--wait=false")
    try:
        said = refused(lambda: start_kube(namespace, 1))
        assert "being deleted" in said
    finally:
        patch = '{"metadata": {"finalizers": null}}'
        kubectl("patch", "configmap", "stays", "-n", namespace, "-p", patch, check=False)


def test_token_that_has_expired(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.loads(kubectl("config", "view", "--raw", "-o", "json"))
    config["users"][0]["user"] = {"token": "eyJhbGciOiJSUzI1NiJ9.e30.none"}
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    said = refused(lambda: start_kube(namespace, 1))
    assert "401" in said
    monkeypatch.undo()
    assert objects(namespace) == []


def test_api_server_that_is_not_there(
    namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.loads(kubectl("config", "view", "--raw", "-o", "json"))
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(path))
    assert "can't be reached" in refused(lambda: start_kube(namespace, 1))


def test_no_credentials(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "KUBECONFIG" in refused(lambda: start_kube("default", 1))


@pytest.fixture
def no_operator() -> Iterator[None]:
    kubectl("-n", "dask-operator", "scale", "deployment/dask-operator", "--replicas=0")
    until(
        lambda: (
            "No resources" in kubectl("-n", "dask-operator", "get", "pods", check=False)
            or not kubectl("-n", "dask-operator", "get", "pods", "-o", "name")
        ),
        60,
    )
    yield
    kubectl("-n", "dask-operator", "scale", "deployment/dask-operator", "--replicas=1")
    kubectl("-n", "dask-operator", "rollout", "status", "deployment/dask-operator")


def test_no_operator(namespace: str, no_operator: None) -> None:
    said = refused(lambda: start_kube(namespace, 1))
    assert "operator does not run" in said
    gone(namespace)


def test_no_custom_resource(namespace: str, no_operator: None) -> None:
    definition = kubectl("get", "crd", "daskclusters.kubernetes.dask.org", "-o", "json")
    kubectl("delete", "crd", "daskclusters.kubernetes.dask.org")
    try:
        assert "operator is not installed" in refused(lambda: start_kube(namespace, 1))
    finally:
        body = json.loads(definition)
        body.pop("status")
        body["metadata"] = {
            "name": body["metadata"]["name"],
            "annotations": body["metadata"].get("annotations", {}),
        }
        kubectl("create", "-f", "-", stdin=json.dumps(body))
        until(lambda: "daskclusters" in kubectl("api-resources", "-o", "name"), 30)


def test_pod_template_that_kubernetes_refuses(namespace: str) -> None:
    template = json.dumps(
        {"containers": [{"name": "worker", "ports": [{"containerPort": "many"}]}]}
    )
    said = refused(lambda: start_kube(namespace, 1, pod_template=template))
    assert "containerPort" in said
    assert objects(namespace) == []


def test_pod_template_that_only_the_operator_can_refuse(namespace: str) -> None:
    ports = [{"containerPort": 99999}]
    template = json.dumps({"containers": [{"name": "worker", "ports": ports}]})
    said = refused(lambda: start_kube(namespace, 1, pod_template=template))
    assert "the operator could not make the cluster" in said
    gone(namespace)


@pytest.mark.slow
def test_no_dns(namespace: str) -> None:
    """Pods that can't resolve the scheduler's name: here by a resolver that does not answer."""
    template = json.dumps(
        {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["10.77.0.99"], "options": []}}
    )
    said = refused(lambda: start_kube(namespace, 1, pod_template=template))
    assert "DNS" in said
    gone(namespace)


def test_tls_secret_that_is_deleted(namespace: str) -> None:
    """It is put back: pods that come later need it."""
    cluster = start_kube(namespace, 1)
    (worker,) = pods(namespace, "worker")
    (name,) = [each for each in objects(namespace) if each.startswith("Secret/")]
    kubectl("delete", name.replace("Secret/", "secret/"), "-n", namespace)
    kubectl("delete", "pod", worker["metadata"]["name"], "-n", namespace, "--wait=false")
    until(lambda: name in objects(namespace), 40)
    until(lambda: len(cluster.status().workers) == 1, 90)
