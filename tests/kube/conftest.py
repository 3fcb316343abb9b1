"""Tests on a real Kubernetes: the one that KUBECONFIG names (`tools/kube_lab.sh` starts one)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from kube_tools import IMAGE, LAB, kubectl
from leaks import Home


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
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

    name = f"ddl-{secrets.token_hex(4)}"
    kubectl("create", "namespace", name)
    yield name
    for cluster in list_clusters():
        cluster.stop()
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def lab() -> Path:
    """The folder of a lab whose nodes can be switched off."""
    if not (LAB / "down").exists():
        pytest.skip("needs a lab whose nodes can be switched off")
    return LAB
