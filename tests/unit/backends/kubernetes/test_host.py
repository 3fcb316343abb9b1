"""What a host of controllers makes, finds and takes back, by what an API server keeps."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import msgspec
import pytest

from jupyter_ddl.backends.certificates import port_keys
from jupyter_ddl.backends.kubernetes import host as module
from jupyter_ddl.backends.kubernetes.home_claim import make_claim
from jupyter_ddl.backends.kubernetes.host import KubeHost
from jupyter_ddl.backends.kubernetes.names import (
    SERVICE_ACCOUNT,
    check_dns_label,
    claim_name,
    labels_of,
    user_name,
)
from jupyter_ddl.backends.kubernetes.settings import KubeSettings
from jupyter_ddl.errors import BackendError, ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec
from tests.leaks import Home

Json = dict[str, Any]


class Api:
    """Keeps what is created, but for what is ``refused``; what an object owns goes with it."""

    namespace, server = "space", "https://api"

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.kept: dict[tuple[str, str], Json] = {("serviceaccounts", SERVICE_ACCOUNT): {}}

    async def may(self, *_: Any, **__: Any) -> bool:
        return True

    async def create(self, resource: str, body: Json, **_: Any) -> Json:
        if resource in self.refused:
            raise BackendError(f"create {resource} is forbidden", status=403)
        made = json.loads(json.dumps(body))
        if (resource, body["metadata"]["name"]) in self.kept:
            raise BackendError("it exists", status=409)
        made["metadata"]["uid"] = f"uid-{len(self.kept)}"
        made["metadata"]["resourceVersion"] = "1"
        made["metadata"]["creationTimestamp"] = "2026-11-24T04:00:00Z"
        self.kept[resource, body["metadata"]["name"]] = made
        return made

    async def get(self, resource: str, name: str) -> Json:
        if (resource, name) not in self.kept:
            raise BackendError(f"{name} not found", status=404)
        return self.kept[resource, name]

    async def list(self, resource: str, labelSelector: str = "") -> list[Json]:  # noqa: N803
        wanted = dict(each.split("=", 1) for each in labelSelector.split(",") if "=" in each)
        found = (each for (kind, _), each in self.kept.items() if kind == resource)
        return [each for each in found if wanted.items() <= each["metadata"]["labels"].items()]

    async def patch(self, resource: str, name: str, body: Json) -> Json:
        found = await self.get(resource, name)
        found["metadata"].update(body.get("metadata", {}))
        return found

    async def delete(self, resource: str, name: str, version: str = "", **_: Any) -> None:
        found = self.kept.get((resource, name))
        if version and found is not None and found["metadata"]["resourceVersion"] != version:
            raise BackendError(f"{name} was changed", status=409)
        gone = self.kept.pop((resource, name), None)
        for key, each in tuple(self.kept.items()):
            owners = each.get("metadata", {}).get("ownerReferences", ())
            if gone is not None and gone["metadata"]["uid"] in [o["uid"] for o in owners]:
                self.kept.pop(key, None)

    async def aclose(self) -> None: ...

    @property
    def made(self) -> set[str]:
        return {kind for kind, _ in self.kept} - {"serviceaccounts"}


def host(api: Api, **kube: Any) -> KubeHost:
    settings = msgspec.to_builtins(KubeSettings(**{"image": "team/image:1", **kube}))
    found = KubeHost(ClusterSpec("kube", "kube", 2, settings=settings))
    found._api = api  # type: ignore[assignment]
    return found


def created(api: Api, **kube: Any) -> KubeHost:
    found = host(api, **kube)
    asyncio.run(found._create(api))  # type: ignore[arg-type]
    return found


@pytest.mark.usefixtures("home")
def test_all_that_is_made_goes_with_the_cluster_or_with_the_job() -> None:
    for first in ("daskclusters", "jobs"):
        api = Api()
        created(api)
        assert api.made == {"daskclusters", "secrets", "networkpolicies", "jobs"}
        (cluster,) = [name for kind, name in api.kept if kind == "daskclusters"]
        asyncio.run(api.delete(first, cluster))
        if first == "jobs":  # as Kubernetes does with what has lost its owner
            assert ("daskclusters", cluster) not in api.kept
        else:
            assert api.made == set()


@pytest.mark.usefixtures("home")
def test_without_the_right_to_make_jobs_a_cluster_has_none() -> None:
    api = Api("jobs")
    created(api)
    (cluster,) = asyncio.run(api.list("daskclusters"))
    assert "ownerReferences" not in cluster["metadata"]


@pytest.mark.usefixtures("home")
def test_what_a_start_has_made_is_taken_back_when_it_fails() -> None:
    api = Api("networkpolicies")
    with pytest.raises(BackendError, match="create networkpolicies is forbidden"):
        asyncio.run(host(api).start(print))
    assert api.made == set()


@pytest.mark.usefixtures("home")
def test_an_account_has_its_rights_before_a_pod_can_act_as_it() -> None:
    api = Api()
    del api.kept["serviceaccounts", SERVICE_ACCOUNT]
    created(api)
    kinds = [kind for kind, _ in api.kept]
    order = [kinds.index(each) for each in ("roles", "rolebindings", "serviceaccounts")]
    assert order == sorted(order)


@pytest.mark.usefixtures("home")
def test_an_end_that_nobody_could_be_asked_for_is_not_called_a_deletion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away(*_: Any) -> None:
        raise TimeoutError

    found = created(Api())
    monkeypatch.setattr(module, "end_cluster", away)
    with pytest.raises(BackendError, match="was to be deleted, and is not known to be gone"):
        asyncio.run(found.end())


class _Unheard(Api):
    """One whose answer to the creation of a cluster is lost."""

    def __init__(self, loss: BaseException) -> None:
        super().__init__()
        self._loss = loss

    async def create(self, resource: str, body: Json, **settings: Any) -> Json:
        made = await super().create(resource, body, **settings)
        if resource == "daskclusters":
            raise self._loss
        return made


@pytest.mark.parametrize(
    "loss", [BackendError("no answer", status=0), asyncio.CancelledError()], ids=["lost", "stopped"]
)
@pytest.mark.usefixtures("home")
def test_a_cluster_of_whose_creation_nobody_heard_is_taken_back(loss: BaseException) -> None:
    api = _Unheard(loss)
    with pytest.raises(type(loss)):
        asyncio.run(host(api).start(print))
    assert api.made == set()


@pytest.mark.usefixtures("home")
def test_of_a_cluster_that_was_refused_nothing_is_deleted() -> None:
    api = Api("daskclusters")
    refused = host(api)
    with pytest.raises(BackendError, match="create daskclusters is forbidden"):
        asyncio.run(refused.start(print))
    assert refused._cluster is None


@pytest.mark.usefixtures("home")
def test_a_start_is_refused_where_a_cluster_of_its_name_is_there_which_stays() -> None:
    api = Api()
    created(api)
    before = dict(api.kept)
    with pytest.raises(ClusterError) as caught:
        asyncio.run(host(api).start(print))
    assert "a cluster named 'kube' is there: DaskCluster kube-" in caught.value.message
    assert "`%cluster attach kube` uses it" in caught.value.message
    assert api.kept == before


@pytest.mark.usefixtures("home")
def test_who_joins_learns_what_it_was_started_with_and_gets_the_keys() -> None:
    api = Api()
    first = created(api, slots=3, home="pvc:runs")
    other = host(api)
    spec = asyncio.run(other.join())
    assert msgspec.json.encode(spec) == msgspec.json.encode(first._spec)
    assert other._keys == first._keys
    assert (other.keeps_runs, host(api).keeps_runs) == (True, False)
    assert other.place == "namespace space of https://api"


def test_there_may_be_none_to_join(home: Home) -> None:
    del home
    assert asyncio.run(host(Api()).join()) is None


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (b'{"name": 7}', "was started by another version of jupyter_ddl"),
        (None, "has no Secret kube-1-controller, which opens its controller's port"),
    ],
)
def test_what_can_not_be_joined_is_told(spec: bytes | None, expected: str, home: Home) -> None:
    del home
    api = Api()
    metadata = {"name": "kube-1", "labels": labels_of("kube", user_name())}
    asyncio.run(api.create("daskclusters", {"metadata": metadata}))
    if spec is not None:
        files = {**port_keys().files(), "spec.json": spec.decode()}
        data = {key: base64.b64encode(text.encode()).decode() for key, text in files.items()}
        secret = {"metadata": {"name": "kube-1-controller", "labels": {}}, "data": data}
        asyncio.run(api.create("secrets", secret))
    with pytest.raises(ClusterError) as caught:
        asyncio.run(host(api).join())
    assert expected in caught.value.message


# -- the user's own claim --------------------------------------------------------------------------


def claims(api: Api) -> list[Json]:
    return [each for (kind, _), each in api.kept.items() if kind == "persistentvolumeclaims"]


def refused_start(api: Api, **kube: Any) -> str:
    with pytest.raises(BackendError) as caught:
        asyncio.run(host(api, **kube).start(print))
    return caught.value.message


@pytest.fixture
def ann(monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    del home
    monkeypatch.setenv("JUPYTER_DDL_USER", "Ann.B")


@pytest.mark.usefixtures("ann")
def test_a_claim_that_a_refused_start_has_made_goes_with_it() -> None:
    api = Api("networkpolicies")
    assert "networkpolicies" in refused_start(api, home="pvc")
    assert api.made == set()


@pytest.mark.usefixtures("ann")
def test_a_claim_that_has_got_a_volume_since_stays_as_another_cluster_may_have_it() -> None:
    class Binding(Api):
        async def create(self, resource: str, body: Json, **settings: Any) -> Json:
            for claim in claims(self):
                claim["metadata"]["resourceVersion"] = "2"
            made = await super().create(resource, body, **settings)
            return json.loads(json.dumps(made))  # type: ignore[no-any-return]

    api = Binding("networkpolicies")
    refused_start(api, home="pvc")
    assert api.made == {"persistentvolumeclaims"}


@pytest.mark.usefixtures("ann")
def test_a_claim_is_the_users_and_no_clusters_and_is_made_once() -> None:
    api = Api("networkpolicies")
    asyncio.run(make_claim(api, KubeSettings(home="pvc", home_size="2Ti"), user_name()))  # type: ignore[arg-type]
    (claim,) = claims(api)
    assert "ownerReferences" not in claim["metadata"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "2Ti"
    assert "storageClassName" not in claim["spec"], "the default one"
    refused_start(api, home="pvc", home_size="5Gi")
    assert claims(api) == [claim], "a later start neither changes nor deletes it"


@pytest.mark.usefixtures("ann")
def test_who_may_make_no_claim_is_told_before_anything_is_made() -> None:
    api = Api("persistentvolumeclaims")
    said = refused_start(api, home="pvc")
    assert "--home pvc could not have claim jupyter-ddl-ann-b-" in said
    assert "name one that is there with --home pvc:CLAIM, or leave --home out" in said
    assert api.made == set()


def test_two_users_have_two_claims_whose_names_kubernetes_takes() -> None:
    users = ["ann", "Ann", "ann.b", "ann-b", "ann_b", "a" * 63, "A" * 63, "jovyan-3f0c"]
    found = [claim_name(user) for user in users]
    assert len({*found}) == len(users)
    for name in found:
        check_dns_label("claim", name)
