"""Tests on a real Kubernetes: the one that KUBECONFIG names (`tools/kube_lab.sh` starts one)."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_ddl.client.clusters import examine_cluster
from tests.kube.kube_tools import (
    IMAGE,
    LAB,
    OPERATOR,
    apply,
    kubectl,
    renew_token,
    restart_operator,
)
from tests.leaks import Home
from tests.until import until

_PREFIX = "ddl-"
"""Of the namespaces of tests."""
_BINDING = """
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: jupyter-ddl}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: jupyter-ddl}
subjects: [{kind: ServiceAccount, name: notebook}]
"""
_DISRUPTIVE = {"no_operator", "no_resource", "no_default_class", "lab"}
"""Fixtures of tests that disturb whoever uses the same Kubernetes."""
_LEFT_OPEN = (
    pytest.mark.filterwarnings("ignore:unclosed file .*kubeconfig:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed transport <_SelectorSocket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:unclosed <socket.*6443:ResourceWarning"),
)
"""What a start that is given up leaves to the collector, which comes in any test: kr8s opens the
file in a thread, and httpx a connection to the API server that nobody has yet."""
_RESOURCE = "daskclusters.kubernetes.dask.org"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if _DISRUPTIVE.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.disruptive)
        if here in item.path.parents:
            for mark in _LEFT_OPEN:
                item.add_marker(mark)
    if IMAGE:
        return
    why = pytest.mark.skip(reason='no Kubernetes; `eval "$(tools/kube_lab.sh)"` starts one')
    for item in items:
        if here in item.path.parents:
            item.add_marker(why)


@pytest.fixture
def namespace(home: Home) -> Iterator[str]:
    """A namespace of this test alone; clusters that still run are stopped, then it is deleted."""
    from jupyter_ddl.client.clusters import list_clusters

    name = f"{_PREFIX}{secrets.token_hex(4)}"
    kubectl("create", "namespace", name)
    yield name
    for cluster in list_clusters():
        cluster.stop()
    # Pods hold the room of the next test's until they are gone, which an old kubelet may put off.
    kubectl("delete", "pods", "--all", "-n", name, "--grace-period=0", "--force", check=False)
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def account(namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The namespace, with credentials of a service account that may do what the Role says."""
    kubectl("create", "serviceaccount", "notebook", "-n", namespace)
    apply(str(examine_cluster("kube", namespace=namespace, print_rbac=True)), namespace)
    apply(_BINDING, namespace)
    path = tmp_path / "kubeconfig"
    renew_token(namespace, path)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return namespace


@pytest.fixture
def no_operator() -> Iterator[None]:
    """The operator stopped; afterwards it runs again, whatever the test came to."""
    try:
        kubectl(*OPERATOR, "scale", "deployment/dask-operator", "--replicas=0")
        until(lambda: not kubectl(*OPERATOR, "get", "pods", "-o", "name"), 60, "the operator's end")
        yield
    finally:
        kubectl(*OPERATOR, "scale", "deployment/dask-operator", "--replicas=1")
        kubectl(*OPERATOR, "rollout", "status", "deployment/dask-operator", "--timeout=80s")


@pytest.fixture
def no_resource(no_operator: None) -> Iterator[None]:
    """DaskCluster deleted as a kind; afterwards it is known again, and there are none."""
    definition = json.loads(kubectl("get", "crd", _RESOURCE, "-o", "json"))
    for each in json.loads(kubectl("get", "daskclusters", "-A", "-o", "json"))["items"]:
        name, where = each["metadata"]["name"], each["metadata"]["namespace"]
        if not where.startswith(_PREFIX):
            pytest.skip(f"DaskCluster {name} in namespace {where} would go with its kind")
        # Of a test before: who would have taken its finalizer off is away, and it would stay.
        free = '{"metadata": {"finalizers": null}}'
        kubectl("patch", "daskcluster", name, "-n", where, "--type=merge", "-p", free, check=False)
    try:
        kubectl("delete", "crd", _RESOURCE, "--timeout=60s")
        yield
    finally:
        definition.pop("status")
        notes = definition["metadata"].get("annotations", {})
        definition["metadata"] = {"name": _RESOURCE, "annotations": notes}
        kubectl("wait", "--for=delete", f"crd/{_RESOURCE}", "--timeout=30s", check=False)
        kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(definition))
        # kubectl takes a definition that has no conditions yet for a broken one.
        known = "jsonpath={.status.conditions[?(@.type=='Established')].status}"
        until(lambda: kubectl("get", "crd", _RESOURCE, "-o", known, check=False) == "True", 30)


@pytest.fixture
def operator_afterwards() -> Iterator[None]:
    """The operator works after the test, whatever became of it when the API server went."""
    yield
    restart_operator()


@pytest.fixture
def lab() -> Path:
    """The folder of a lab whose nodes can be switched off."""
    if not (LAB / "down").exists():
        pytest.skip("needs a lab whose nodes can be switched off")
    return LAB
