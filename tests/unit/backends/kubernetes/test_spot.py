"""Workers on machines that are taken away: the site's pool, and nodes that announce their end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_ddl.backends.base import backend_plugin
from jupyter_ddl.backends.kubernetes.backend import KubeBackend
from jupyter_ddl.backends.kubernetes.doctor import check_options, examine_nodes
from jupyter_ddl.backends.kubernetes.manifest import node_labels, scheduler_pod, worker_pod
from jupyter_ddl.backends.kubernetes.node_watch import NodeWatch
from jupyter_ddl.backends.kubernetes.settings import KubeSettings
from jupyter_ddl.backends.kubernetes.spot import SpotPool, known_pool, notice_of, read_pool
from jupyter_ddl.errors import BackendError, ClusterError, OptionError
from jupyter_ddl.protocol.cluster import ClusterSpec

POOL = """
tolerations = ["pool=spot:NoSchedule"]
notices = ["example.org/going"]
[node_selector]
"cloud.google.com/gke-spot" = "true"
"""
GOING = "cloud.google.com/impending-node-termination"


def spec(pool: SpotPool | None, **kube: Any) -> ClusterSpec:
    chosen = KubeSettings("team/image:1", spot=pool, **kube)
    return ClusterSpec(name="kube", backend="kube", settings=msgspec.to_builtins(chosen))


def test_workers_go_to_the_pool_and_the_scheduler_never() -> None:
    pool = SpotPool({"spot": "yes"}, ("pool=spot:NoSchedule",))
    wanted = spec(pool, node_selector={"disk": "ssd"}, tolerations=("gpu",))
    worker, scheduler = worker_pod(wanted, "n", "s"), scheduler_pod(wanted, "n")
    assert worker["nodeSelector"] == {"disk": "ssd", "spot": "yes"}
    assert [each["key"] for each in worker["tolerations"]] == ["gpu", "pool"]
    assert scheduler["nodeSelector"] == {"disk": "ssd"}
    assert [each["key"] for each in scheduler["tolerations"]] == ["gpu"]
    assert node_labels(wanted) == KubeBackend(wanted).node_labels == worker["nodeSelector"]


def test_a_template_may_say_which_nodes_they_are() -> None:
    wanted = spec(None, pod_template='{"nodeSelector": {"size": "large"}}')
    assert node_labels(wanted) == {"size": "large"}


def test_spot_is_what_the_sites_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "spot.toml"
    path.write_text(POOL)
    monkeypatch.setenv("JUPYTER_DDL_SPOT", str(path))
    settings = backend_plugin("kube").settings(image="i", spot=True)
    assert isinstance(settings, KubeSettings)
    assert settings.spot == SpotPool(
        {"cloud.google.com/gke-spot": "true"}, ("pool=spot:NoSchedule",), ("example.org/going",)
    )
    plain = backend_plugin("kube").settings(image="i", spot=False)
    assert isinstance(plain, KubeSettings)
    assert plain.spot is None


def test_spot_without_a_pool_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUPYTER_DDL_SPOT", raising=False)
    with pytest.raises(OptionError) as refused:
        known_pool()
    assert refused.value.message.startswith("--spot: no pool of spot machines is known here")
    assert "\n" not in refused.value.message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "node_selector is missing; expected the labels of the pool's nodes"),
        ("[node_selector]\na = 1", 'node_selector."a" is 1; expected text'),
        (
            'tolerations = "spot"\n[node_selector]\na = "b"',
            "tolerations is 'spot'; expected a list",
        ),
        ('toleration = []\n[node_selector]\na = "b"', "did you mean 'tolerations'?"),
    ],
)
def test_a_pool_that_is_none_is_one_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "spot.toml"
    path.write_text(text)
    with pytest.raises(OptionError) as refused:
        read_pool(path)
    assert refused.value.message.startswith(f"the spot pool (JUPYTER_DDL_SPOT) {path}: ")
    assert told in refused.value.message


def test_what_kubernetes_would_refuse_of_a_pool_is_refused_before() -> None:
    with pytest.raises(ClusterError, match="can't be a label of nodes"):
        check_options(spec(SpotPool({"a b": "c"})))
    with pytest.raises(ClusterError, match="--toleration 'spot:Sometimes'"):
        check_options(spec(SpotPool({"a": "c"}, ("spot:Sometimes",))))


@pytest.mark.parametrize(
    ("taints", "found"),
    [
        (None, ""),
        ([], ""),
        ([{"key": GOING, "effect": "NoSchedule"}], GOING),
        ([{"key": "gpu"}, {"key": "ToBeDeletedByClusterAutoscaler"}],
         "ToBeDeletedByClusterAutoscaler"),
        ([{"key": "DeletionCandidateOfClusterAutoscaler"}], ""),
        ([{"key": "node.kubernetes.io/unreachable"}], ""),
        ([{"key": "example.org/going"}], "example.org/going"),
    ],
)  # fmt: skip
def test_nodes_announce_their_end_by_taints(taints: Any, found: str) -> None:
    assert notice_of({"spec": {"taints": taints}}, ("example.org/going",)) == found


class Api:
    """Pods by their nodes, and taints by node."""

    def __init__(self, nodes: dict[str, str]) -> None:
        self.nodes = nodes
        self.taints: dict[str, str] = {}
        self.deleted: list[str] = []
        self.asked: list[str] = []
        self.denied: set[str] = set()

    async def may(self, verb: str, _group: str, resource: str, *, everywhere: bool = False) -> bool:
        assert everywhere == (resource == "nodes")
        return resource not in self.denied

    async def list(self, _resource: str, labelSelector: str) -> list[dict[str, Any]]:  # noqa: N803
        assert labelSelector == "dask.org/cluster-name=kube-1,dask.org/component=worker"
        return [
            {"metadata": {"name": pod}, "spec": {"nodeName": node}}
            for pod, node in self.nodes.items()
        ] + [{"metadata": {"name": "waits"}, "spec": {}}]

    async def get(self, resource: str, name: str) -> dict[str, Any]:
        assert resource == "nodes"
        self.asked.append(name)
        if name == "gone":
            raise BackendError("not found", status=404)
        return {"spec": {"taints": [{"key": key} for key in [self.taints.get(name)] if key]}}

    async def delete(self, resource: str, name: str) -> None:
        assert resource == "pods"
        self.deleted.append(name)
        del self.nodes[name]


def look(watch: NodeWatch) -> list[str]:
    return asyncio.run(watch.poll("kube-1"))


def test_workers_leave_a_node_that_announces_its_end_once() -> None:
    api = Api({"w0": "a", "w1": "b", "w2": "b", "w3": "gone"})
    watch = NodeWatch(api)  # type: ignore[arg-type]
    assert look(watch) == []
    api.taints["b"] = GOING
    assert look(watch) == [
        f"node b is about to be taken away (taint {GOING}): 2 workers on it leave, ranks save first"
    ]
    assert sorted(api.deleted) == ["w1", "w2"]
    # One that tolerates every taint came back there: it is left alone until that is another one.
    api.nodes["w4"] = "b"
    assert look(watch) == []
    api.taints["b"] = "ToBeDeletedByClusterAutoscaler"
    assert len(look(watch)) == 1
    assert api.deleted[-1] == "w4"


def test_a_node_that_was_spared_may_announce_its_end_again() -> None:
    api = Api({"w0": "a"})
    api.taints["a"] = GOING
    watch = NodeWatch(api)  # type: ignore[arg-type]
    assert len(look(watch)) == 1
    api.nodes["w1"] = "a"
    api.taints.clear()
    assert look(watch) == []
    api.taints["a"] = GOING
    assert len(look(watch)) == 1


def test_many_nodes_are_asked_for_in_turn() -> None:
    api = Api({f"w{number}": f"node{number:02d}" for number in range(20)})
    watch = NodeWatch(api)  # type: ignore[arg-type]
    look(watch)
    assert len(api.asked) == 16
    look(watch)
    assert sorted(api.asked) == sorted(set(api.nodes.values()))
    look(watch)
    assert len(api.asked) == 36


def test_a_node_whose_pods_can_not_be_deleted_hides_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = Api({"w0": "a", "w1": "b", "w2": "c"})
    api.taints = dict.fromkeys("abc", GOING)
    delete = api.delete

    async def refuse_one(resource: str, name: str) -> None:
        if name == "w1":
            raise BackendError("delete pods is forbidden", status=403)
        await delete(resource, name)

    monkeypatch.setattr(api, "delete", refuse_one)
    watch = NodeWatch(api)  # type: ignore[arg-type]
    assert [text.split()[1] for text in look(watch)] == ["a", "c"]
    assert api.deleted == ["w0", "w2"]
    with pytest.raises(BackendError, match="delete pods is forbidden"):
        look(watch)
    monkeypatch.setattr(api, "delete", delete)
    assert [text.split()[1] for text in look(watch)] == ["b"]


@pytest.mark.parametrize("denied", [{"nodes"}, {"pods"}, set()])
def test_without_the_rights_nobody_looks_and_the_doctor_says_so(denied: set[str]) -> None:
    api: Any = Api({})
    api.denied = denied
    assert asyncio.run(NodeWatch(api).may_look()) is not bool(denied)
    assert asyncio.run(examine_nodes(api)).verdict == ("unknown" if denied else "ok")
