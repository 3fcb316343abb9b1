"""The Helm chart on a real Kubernetes, and a hub: notebooks in pods that a culler ends."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm import CHART, HELM, MISSING, helm
from tests.kube.kube_tools import IMAGE, apply, gone, items, kubectl
from tests.until import until

pytestmark = [
    pytest.mark.kube,
    pytest.mark.timeout(500),
    pytest.mark.skipif(not HELM, reason=MISSING),
]

_KINDS = "roles,rolebindings,serviceaccounts,configmaps,resourcequotas,limitranges,networkpolicies"
_ALL = f"{_KINDS},persistentvolumeclaims,daemonsets"
_FIRST = """
from jupyter_ddl.client.api import map_cell
from jupyter_ddl.client.clusters import start_cluster
start_cluster("kube", 1, on_phase=lambda text: print(text, flush=True))
run = map_cell("item ** 2", [1, 2, 3], namespace={})
print("VALUES", run.values, run.cost.currency, flush=True)
import time
time.sleep(600)
"""

_BACK = "jupyter-ddl cluster list && jupyter-ddl cluster stop kube && echo STOPPED"

Json = dict[str, Any]


@pytest.fixture
def compute(namespace: str) -> Iterator[str]:
    """The namespace of clusters; the chart makes it beside that of the hub, and leaves it."""
    name = f"{namespace}-pods"
    yield name
    kubectl("delete", "namespace", name, "--ignore-not-found", "--wait=false")


@pytest.fixture
def site(namespace: str, compute: str, tmp_path: Path) -> Iterator[Json]:
    """The chart with all that can be turned on but an operator, which is there already."""
    values = yaml.safe_load((CHART / "ci" / "everything-values.yaml").read_text())
    values |= {"namespaces": [compute], "operator": {"enabled": False}}
    values["users"]["namespaces"] = [namespace]
    values["prePuller"] |= {"images": [IMAGE, IMAGE], "nodeSelector": {}, "imagePullSecrets": []}
    # What is not in a namespace is of this test alone.
    values["storageClass"]["name"] = namespace
    for each in values["priorityClasses"]:
        each["name"] = each["name"].replace("jupyter-ddl", namespace)
    values["prePuller"]["priorityClassName"] = values["priorityClasses"][0]["name"]
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    release = ("jupyter-ddl", "-n", namespace)
    try:
        helm("install", *release, str(CHART), "-f", str(path))
        yield values
    finally:
        helm("uninstall", *release, "--ignore-not-found", "--wait")


def _notebook(name: str, command: list[str]) -> Json:
    """As KubeSpawner makes one of the hub's settings, those of the chart among them."""
    told = yaml.safe_load((CHART / "files" / "zero-to-jupyterhub.yaml").read_text())["singleuser"]
    variables = [{"name": "JUPYTERHUB_USER", "value": "ann"}]
    variables += [{"name": "JUPYTER_IMAGE_SPEC", "value": IMAGE}, {"name": "HOME", "value": "/tmp"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app": "jupyterhub", "component": "singleuser-server"},
        },
        "spec": {
            "serviceAccountName": told["serviceAccountName"],
            "terminationGracePeriodSeconds": 1,
            "restartPolicy": "Never",
            "volumes": told["storage"]["extraVolumes"],
            "containers": [
                {
                    "name": "notebook",
                    "image": IMAGE,
                    "command": command,
                    "securityContext": {"runAsUser": 1000},
                    "env": [*variables, *told["extraEnv"].values()],
                    "volumeMounts": told["storage"]["extraVolumeMounts"],
                }
            ],
        },
    }


def _has_images(namespace: str) -> bool:
    (puller,) = items("daemonsets", namespace)
    status = puller["status"]
    return 0 < status["desiredNumberScheduled"] == status.get("numberReady")


def _said(namespace: str, pod: str, text: str, timeout_s: float) -> str:
    def seen() -> str:
        said = kubectl("logs", pod, "-n", namespace, check=False)
        return said if text in said else ""

    return until(seen, timeout_s, f"{pod} to say {text!r}")


def test_a_user_of_a_hub_needs_no_command_and_a_culler_leaves_nothing(
    site: Json, namespace: str, compute: str
) -> None:
    until(lambda: _has_images(namespace), 180, "every node to have the images")
    apply(json.dumps(_notebook("ann-1", ["python", "-c", _FIRST])), namespace)
    began_s = time.monotonic()
    print(_said(namespace, "ann-1", "VALUES [1, 4, 9] EUR", 180))
    print(f"the first run was over {time.monotonic() - began_s:.1f} s after the notebook's start")
    (cluster,) = items("daskclusters", compute)
    assert cluster["metadata"]["labels"]["jupyter-ddl/user"] == "ann"
    assert items("daskclusters", namespace) == []

    # The culler: a hub deletes the pod and nothing else.  Ann comes back, and stops her cluster.
    kubectl("delete", "pod", "ann-1", "-n", namespace, "--wait=false")
    apply(json.dumps(_notebook("ann-2", ["sh", "-c", _BACK])), namespace)
    print(_said(namespace, "ann-2", "STOPPED", 120))
    print(f"nothing was left {_gone_beside_policies(compute):.1f} s after that")


def _gone_beside_policies(namespace: str) -> float:
    """Wait until nothing is left of any cluster, beside what the chart has made."""
    began_s = time.monotonic()
    until(lambda: not items("daskclusters,pods", namespace), 120, "clusters to go")
    kubectl(
        "delete", "networkpolicies", "-n", namespace, "-l", "app.kubernetes.io/name=jupyter-ddl"
    )
    gone(namespace)
    return time.monotonic() - began_s


def test_an_uninstalled_chart_leaves_the_namespace_and_its_claims(
    site: Json, namespace: str, compute: str
) -> None:
    made = {each["kind"] for each in items(_ALL, compute, "-l", "helm.sh/chart")}
    assert made == {
        "Role", "RoleBinding", "ServiceAccount", "ResourceQuota", "LimitRange", "NetworkPolicy",
        "PersistentVolumeClaim",
    }  # fmt: skip
    helm("uninstall", "jupyter-ddl", "-n", namespace, "--wait")
    left = items(_ALL, compute, "-l", "helm.sh/chart")
    assert {each["metadata"]["name"] for each in left} == {"datasets", "runs"}
    assert items(_ALL, namespace, "-l", "helm.sh/chart") == []
    cluster_wide = "clusterroles,clusterrolebindings,storageclasses,priorityclasses"
    release = "app.kubernetes.io/instance=jupyter-ddl,app.kubernetes.io/managed-by=Helm"
    names = kubectl("get", cluster_wide, "-l", release, "-o", "name").split()
    assert [each for each in names if namespace in each or "jupyter-ddl-nodes" in each] == []
