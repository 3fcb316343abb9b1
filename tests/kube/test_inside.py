"""The controller in a pod, as on a JupyterHub: its service account, its image, its life."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes.api import role_manifest
from tests.kube.kube_tools import IMAGE, apply, delete_pod, gone, items, kubectl
from tests.until import until

pytestmark = [pytest.mark.kube, pytest.mark.slow, pytest.mark.timeout(500)]

_NOTEBOOK = """
from jupyter_ddl.client.clusters import start_cluster
from jupyter_ddl.client.api import map_cell
cluster = start_cluster("kube", 1, on_phase=lambda text: print(text, flush=True))
run = map_cell("item ** 2", [1, 2, 3], namespace={})
print("VALUES", run.values, flush=True)
import time
time.sleep(600)
"""


def _pod() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "notebook"},
        "spec": {
            "serviceAccountName": "notebook",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "notebook",
                    "image": IMAGE,
                    "command": ["python", "-c", _NOTEBOOK],
                    "securityContext": {"runAsUser": 1000},
                    "env": [
                        {"name": "JUPYTER_IMAGE_SPEC", "value": IMAGE},
                        {"name": "HOME", "value": "/tmp"},
                    ],
                }
            ],
        },
    }


def test_a_cluster_belongs_to_the_notebooks_pod(namespace: str) -> None:
    kubectl("create", "serviceaccount", "notebook", "-n", namespace)
    apply(role_manifest(namespace), namespace)
    kubectl(
        "create", "rolebinding", "notebook", "-n", namespace, "--role=jupyter-ddl",
        f"--serviceaccount={namespace}:notebook",
    )  # fmt: skip
    apply(json.dumps(_pod()), namespace)
    logs = ["logs", "notebook", "-n", namespace]
    began_s = time.monotonic()
    until(lambda: "VALUES [1, 4, 9]" in kubectl(*logs, check=False), 180, "the run in the pod")
    print(kubectl(*logs, "--timestamps"))
    print(f"the run was over {time.monotonic() - began_s:.1f} s after the pod was made")
    (cluster,) = items("daskclusters", namespace)
    (owner,) = cluster["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Pod", "notebook")
    delete_pod(namespace, "notebook")
    print(f"nothing was left {gone(namespace):.1f} s after the pod was deleted")
