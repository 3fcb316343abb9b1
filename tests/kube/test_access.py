"""The Role that ``--print-rbac`` prints: all works with it, and each of its verbs is needed."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes.api import NEEDS, KubeApi, Need
from jupyter_ddl.backends.kubernetes.backend import KubeBackend
from jupyter_ddl.backends.kubernetes.names import IMAGE_ANNOTATION
from jupyter_ddl.client.api import map_cell
from jupyter_ddl.client.clusters import examine_cluster, list_clusters
from jupyter_ddl.errors import BackendError, ClusterError
from tests.kube.kube_tools import (
    IMAGE,
    OTHER_IMAGE,
    elsewhere,
    gone,
    items,
    kube_cluster,
    kubectl,
    renew_token,
    start_kube,
)
from tests.until import until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(400)]


def _without(need: Need, namespace: str) -> None:
    """Take one verb from the Role, as an administrator."""
    role = json.loads(kubectl("get", "role", "jupyter-ddl", "-n", namespace, "-o", "json"))
    for rule in role["rules"]:
        if need.full_resource in rule["resources"] and need.group in rule["apiGroups"]:
            rule["verbs"] = [verb for verb in rule["verbs"] if verb != need.verb]
    role["rules"] = [rule for rule in role["rules"] if rule["verbs"]]
    kubectl("replace", "-f", "-", stdin=json.dumps(role))


def test_the_printed_role_is_enough_for_everything(account: str) -> None:
    report = examine_cluster("kube", image=IMAGE, namespace=account)
    assert [each.what for each in report.findings if each.verdict == "broken"] == []
    cluster = start_kube(account, 1)
    (found,) = items("daskclusters", account)
    assert "sha256:" in found["metadata"]["annotations"][IMAGE_ANNOTATION]
    cluster.scale(2)
    until(lambda: len(cluster.status().workers) == 2, 90)
    cluster.scale(1)
    until(lambda: len(cluster.status().workers) == 1, 90)
    assert elsewhere(account) == []
    cluster.stop()
    assert list_clusters() == []


@pytest.mark.parametrize("need", [n for n in NEEDS if not n.is_optional], ids=lambda n: n.text)
def test_each_verb_is_missed(need: Need, account: str) -> None:
    """Without it a start is refused before anything is made, and the verb is named."""
    _without(need, account)
    with pytest.raises(ClusterError) as caught:
        start_kube(account, 1)
    assert need.text in caught.value.message
    assert f"namespace {account}" in caught.value.message
    assert "--print-rbac" in caught.value.message


def test_pods_are_not_seen_off_without_the_right_to_forget_them(account: str) -> None:
    _without(next(n for n in NEEDS if n.text == "delete pods"), account)
    start_kube(account, 1).stop()
    assert items("pods", account), "the stop did not wait for them"
    gone(account)


def test_credentials_that_end_while_a_cluster_runs(account: str) -> None:
    """It goes on without them; with new ones its controller scales and stops it."""
    kubeconfig = Path(os.environ["KUBECONFIG"])
    cluster = start_kube(account, 1)
    kubectl("delete", "secret", "notebook-token", "-n", account)
    poll = ["--kubeconfig", str(kubeconfig), "get", "pods", "-n", account, "-o", "name"]
    # An API server believes a token for ten seconds more.
    until(lambda: not kubectl(*poll, check=False), 60, "the token's end")
    with pytest.raises(ClusterError, match="401"):
        start_kube(account, 1, name="other")
    with pytest.raises(ClusterError, match="401"):
        cluster.scale(2)
    assert map_cell("item ** 2", [1, 2, 3], namespace={}).values == [1, 4, 9]
    assert cluster.status().state == "ready"
    renew_token(account, kubeconfig)
    cluster.scale(2)
    until(lambda: len(cluster.status().workers) == 2, 90)
    cluster.stop()
    gone(account)


def test_a_life_of_a_cluster_asks_for_nothing_else(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call of a whole life is recorded on its way: they are the Role, no more, no less."""
    asked: set[tuple[str, str]] = set()
    request = KubeApi._request

    async def recorded(self: KubeApi, verb: str, resource: str, name: str = "", *rest: Any) -> Any:
        asked.add((verb, f"{resource}/log" if name.endswith("/log") else resource))
        return await request(self, verb, resource, name, *rest)

    monkeypatch.setattr(KubeApi, "_request", recorded)
    asyncio.run(_live(namespace))
    asked.discard(("create", "selfsubjectaccessreviews"))
    needed, optional = (
        {(need.verb, need.full_resource) for need in NEEDS if need.is_optional is is_optional}
        for is_optional in (False, True)
    )
    assert asked - optional == needed


async def _live(namespace: str) -> None:
    backend = KubeBackend(kube_cluster("kube", 1, namespace=namespace))
    try:
        await backend.start(print)
        await backend.scale(2, [])
    finally:
        await backend.close()
    broken = KubeBackend(kube_cluster("kube", 1, image=OTHER_IMAGE, namespace=namespace))
    with pytest.raises(BackendError):
        await broken.start(print)
