"""The Roles that ``--print-rbac`` prints: all works with them, and no verb is superfluous."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.backends.kubernetes import backend as in_the_pod
from jupyter_ddl.backends.kubernetes import manifest
from jupyter_ddl.backends.kubernetes.access import CONTROLLER_NEEDS, NEEDS, Need
from jupyter_ddl.backends.kubernetes.api import NAMESPACE_VARIABLE, KubeApi
from jupyter_ddl.backends.kubernetes.backend import KubeBackend
from jupyter_ddl.backends.kubernetes.host import KubeHost
from jupyter_ddl.backends.kubernetes.names import IMAGE_ANNOTATION, SERVICE_ACCOUNT
from jupyter_ddl.client.api import map_cell
from jupyter_ddl.client.clusters import examine_cluster, list_clusters
from jupyter_ddl.errors import BackendError, ClusterError
from tests.kube.kube_tools import (
    ADMIN,
    IMAGE,
    OTHER_IMAGE,
    elsewhere,
    gone,
    items,
    kube_cluster,
    kubectl,
    objects,
    renew_token,
    start_kube,
    without,
)
from tests.until import until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(400)]


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
    without(need, account)
    with pytest.raises(ClusterError) as caught:
        start_kube(account, 1)
    assert caught.value.message.startswith("these credentials may not")
    assert need.text in caught.value.message
    assert f"namespace {account}" in caught.value.message
    assert "--print-rbac" in caught.value.message


@pytest.mark.parametrize(
    "need", [n for n in CONTROLLER_NEEDS if not n.is_optional], ids=lambda n: n.text
)
def test_each_verb_of_the_controller_is_missed(need: Need, account: str) -> None:
    """Without it a start is refused, and the verb is named."""
    without(need, account, SERVICE_ACCOUNT)
    with pytest.raises(ClusterError) as caught:
        start_kube(account, 1)
    assert need.text in caught.value.message
    assert f"namespace {account}" in caught.value.message
    gone(account)


def test_without_an_account_for_controllers_each_has_its_own_or_none_is_started(
    account: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl("delete", "serviceaccount", SERVICE_ACCOUNT, "-n", account)
    with pytest.raises(ClusterError) as caught:
        start_kube(account, 1)
    assert "may not create serviceaccounts, roles, rolebindings" in caught.value.message
    assert objects(account) == []
    monkeypatch.setenv("KUBECONFIG", ADMIN)
    cluster = start_kube(account, 1)
    assert any(each.startswith("ServiceAccount/kube-") for each in objects(account))
    cluster.scale(2)
    until(lambda: len(cluster.status().workers) == 2, 90)
    cluster.stop()
    gone(account)


def test_pods_are_not_seen_off_without_the_right_to_forget_them(account: str) -> None:
    without(next(n for n in NEEDS if n.text == "delete pods"), account)
    start_kube(account, 1).stop()
    assert items("pods", account), "the stop did not wait for them"
    gone(account)


def test_credentials_that_end_while_a_cluster_runs(account: str) -> None:
    """It goes on without them, and is scaled: its controller has its own."""
    kubeconfig = Path(os.environ["KUBECONFIG"])
    cluster = start_kube(account, 1)
    kubectl("delete", "secret", "notebook-token", "-n", account)
    poll = ["--kubeconfig", str(kubeconfig), "get", "pods", "-n", account, "-o", "name"]
    # An API server believes a token for ten seconds more.
    until(lambda: not kubectl(*poll, check=False), 60, "the token's end")
    with pytest.raises(ClusterError, match="401"):
        start_kube(account, 1, name="other")
    assert map_cell("item ** 2", [1, 2, 3], namespace={}).values == [1, 4, 9]
    assert cluster.status().state == "ready"
    cluster.scale(2)
    until(lambda: len(cluster.status().workers) == 2, 90)
    renew_token(account, kubeconfig)
    cluster.stop()
    gone(account)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """What is asked of the API server from here on."""
    found: set[tuple[str, str]] = set()
    request = KubeApi._request

    async def recorded(self: KubeApi, verb: str, resource: str, name: str = "", *rest: Any) -> Any:
        found.add((verb, f"{resource}/log" if name.endswith("/log") else resource))
        found.discard(("create", "selfsubjectaccessreviews"))
        return await request(self, verb, resource, name, *rest)

    monkeypatch.setattr(KubeApi, "_request", recorded)
    return found


def _of(needs: tuple[Need, ...]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """What is needed, and what is not always."""
    needed, optional = (
        {(need.verb, need.full_resource) for need in needs if need.is_optional is is_optional}
        for is_optional in (False, True)
    )
    return needed, optional


def test_a_life_of_a_cluster_asks_for_nothing_else(
    account: str, asked: set[tuple[str, str]]
) -> None:
    """Every call of a whole life is recorded on its way: they are the Role, no more, no less."""

    async def live() -> None:
        host = KubeHost(kube_cluster("kube", 1, namespace=account))
        try:
            await host.start(print)
            other = KubeHost(kube_cluster("kube", namespace=account))
            assert await other.join() is not None
            assert await other.missing() == ""
            await other.close()
        finally:
            await host.end()
            await host.close()
        broken = KubeHost(kube_cluster("kube", 1, image=OTHER_IMAGE, namespace=account))
        with pytest.raises(BackendError):
            await broken.start(print)
        await broken.close()

    asyncio.run(live())
    needed, optional = _of(NEEDS)
    assert asked - optional == needed


def test_a_life_of_a_controller_asks_for_nothing_else(
    namespace: str, asked: set[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lived here, beside the one in the pod: at the same scheduler, and to the cluster's end."""

    async def live() -> None:
        host = KubeHost(kube_cluster("kube", 1, namespace=namespace))
        await host.start(print)
        (secret,) = (s for s in items("secrets", namespace) if s["type"] == "kubernetes.io/tls")
        for name, text in secret["data"].items():
            (tmp_path / name).write_bytes(base64.b64decode(text))
        monkeypatch.setattr(manifest, "TLS_FOLDER", tmp_path)
        monkeypatch.setattr(in_the_pod, "_ADDRESS", await host.reachable(""))
        monkeypatch.setenv(manifest.CLUSTER_VARIABLE, secret["metadata"]["name"][: -len("-tls")])
        monkeypatch.setenv(NAMESPACE_VARIABLE, namespace)
        asked.clear()
        backend = KubeBackend(kube_cluster("kube", 1, namespace=namespace))
        await backend.start(print)
        (group,) = items("daskworkergroups", namespace)
        spec = group["spec"]["worker"]["spec"]
        spec["containers"][0]["image"] = OTHER_IMAGE
        change = json.dumps({"spec": {"worker": {"spec": spec}}})
        name = group["metadata"]["name"]
        kubectl("patch", "daskworkergroup", name, "-n", namespace, "--type=merge", "-p", change)
        await backend.scale(2, [])
        async with asyncio.timeout(90):
            while "crashed" not in backend.trouble:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        await backend.close()
        await host.close()

    asyncio.run(live())
    needed, optional = _of(CONTROLLER_NEEDS)
    assert asked - optional - {("get", "nodes")} == needed, "nodes are of a ClusterRole"
    gone(namespace)
