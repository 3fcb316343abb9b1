"""Clusters that a service knows and that run elsewhere: found, joined, or told why not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from jupyter_ddl.backends.base import Backend, BackendPlugin, FoundCluster
from jupyter_ddl.client import clusters, elsewhere, run_names
from jupyter_ddl.client.copies import reach_run
from jupyter_ddl.client.run_names import find_run
from jupyter_ddl.errors import ClusterError, RunNotFoundError
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.events import RunFinished, RunSubmitted
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.paths import COPY_NOTE, ledger_path, private_dir, run_dir
from jupyter_ddl.verbs.map import Map
from tests.leaks import Home

FOUND = FoundCluster("site", "big", "rack 4", 3, owner="b:n:1:1", handle="7")
HERE = msgspec.structs.replace(FOUND, name="mine", owner="b:n:2:2")
LOST = msgspec.structs.replace(FOUND, name="mine", owner="b:n:3:3")
POD = FoundCluster("pods", "far", "namespace n", 2, "", "n/far-1", {"namespace": "n"})


class Site(BackendPlugin):
    ended: list[str]

    async def find_elsewhere(self) -> list[FoundCluster]:
        return [FOUND, HERE, LOST]

    async def delete_elsewhere(self, found: FoundCluster) -> None:
        self.ended.append(found.handle)

    def make(self, spec: ClusterSpec) -> Backend:
        raise NotImplementedError


class Silent(Site):
    async def find_elsewhere(self) -> list[FoundCluster]:
        raise ClusterError("it does not answer")


class Pods(Site):
    """Its clusters have their controllers beside them."""

    has_controller_host = True

    def __init__(self, *found: FoundCluster | ClusterError, missing: str = "") -> None:
        self.found = found or (POD,)
        self.n_asked = 0
        self._missing = missing

    def missing(self) -> str:
        return self._missing

    async def find_elsewhere(self) -> list[FoundCluster]:
        self.n_asked += 1
        for each in self.found:
            if isinstance(each, ClusterError):
                raise each
        return [each for each in self.found if isinstance(each, FoundCluster)]


class World:
    """Backends that there are, controllers that run here, and what a mirror's start comes to."""

    def __init__(self) -> None:
        process = SimpleNamespace(token="b:n:2:2")
        self.running: list[Any] = [SimpleNamespace(name="mine", backend="site", process=process)]
        self.joined: list[tuple[ClusterSpec, str]] = []
        self.on_join: Callable[[ClusterSpec], None] = lambda _: None
        self.known: dict[str, BackendPlugin] = {}

    def have(self, **known: BackendPlugin) -> None:
        for name, plugin in known.items():
            plugin.name = name
        self.known = known

    def start(self, spec: ClusterSpec, on_phase: Callable[[str], None], how: str) -> None:
        on_phase("copying its runs")
        self.joined.append((spec, how))
        self.on_join(spec)
        self.running.append(SimpleNamespace(name=spec.name, backend=spec.backend, process=None))

    def connection(self, name: str) -> Any:
        return next((each for each in self.running if each.name == name), None)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """These backends, and no others; the cluster ``mine`` runs here."""
    made = World()
    names = SimpleNamespace(names=lambda: tuple(made.known))
    monkeypatch.setattr(elsewhere, "BACKENDS", names)
    monkeypatch.setattr(elsewhere, "backend_plugin", lambda name: made.known[name])
    monkeypatch.setattr(elsewhere, "start_controller", made.start)
    monkeypatch.setattr(elsewhere, "list_connections", lambda: made.running)
    for module in ("elsewhere", "copies", "clusters", "session"):
        monkeypatch.setattr(f"jupyter_ddl.client.{module}.read_connection", made.connection)
    monkeypatch.setattr(clusters, "list_connections", lambda: made.running)
    monkeypatch.setattr(elsewhere, "_refusals", {})
    monkeypatch.setattr(elsewhere, "_joining", {})
    return made


def _keep(run_id: str, cluster: str, *, is_over: bool = False) -> None:
    private_dir(run_dir(run_id))
    verb = Map(over="items", element="item", n_items=1)
    spec = RunSpec(run_id, verb, Program("item", "In [1]"), 1, cluster, 1000.0)
    with LedgerWriter.open(ledger_path(run_id), create=True) as writer:
        writer.append([RunSubmitted(spec, 1000.0)])
        if is_over:
            writer.append([RunFinished(1002.0, "complete")])


def test_a_cluster_whose_controller_is_here_is_not_elsewhere(world: World) -> None:
    world.have(site=Site())
    assert list(elsewhere.clusters_elsewhere()) == [FOUND, LOST]


def test_nor_is_one_that_a_mirror_stands_for(world: World) -> None:
    world.have(pods=Pods(POD, msgspec.structs.replace(POD, name="mine")))
    names = [each.name for each in elsewhere.clusters_elsewhere() if isinstance(each, FoundCluster)]
    assert names == ["far", "mine"]  # `mine` of this host is of another backend
    elsewhere.join_cluster(POD)
    names = [each.name for each in elsewhere.clusters_elsewhere() if isinstance(each, FoundCluster)]
    assert names == ["mine"]


def test_a_service_that_cannot_be_asked_hides_no_other(world: World) -> None:
    world.have(silent=Silent(), site=Site())
    refusal, *found = elsewhere.clusters_elsewhere()
    assert isinstance(refusal, ClusterError)
    assert refusal.message == "clusters of backend silent are not listed: it does not answer"
    assert found == [FOUND, LOST]


def test_a_service_that_says_nothing_is_not_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mute(Pods):
        async def find_elsewhere(self) -> list[FoundCluster]:
            await asyncio.Event().wait()
            return []

    monkeypatch.setattr(elsewhere, "_LOOK_S", 0.01)
    world.have(mute=Mute())
    (line,) = elsewhere.join_elsewhere()
    assert line == "clusters of backend mute are not listed: no answer within 0.01 s"


def test_it_is_ended_by_its_own_backend(world: World) -> None:
    site = Site()
    site.ended = []
    world.have(site=site)
    elsewhere.delete_elsewhere(FOUND)
    assert site.ended == ["7"]


def test_one_of_a_name_is_ended_and_none_of_another_backend(world: World) -> None:
    pods, site = Pods(POD, msgspec.structs.replace(POD, name="near")), Site()
    pods.ended, site.ended = [], []
    world.have(pods=pods, site=site)
    elsewhere.delete_named("pods", "big")
    assert (pods.ended, site.ended) == ([], [])  # that of the site is another one
    elsewhere.delete_named("pods", "far")
    assert (pods.ended, site.ended) == ([POD.handle], [])


def test_it_is_told_when_nobody_knows_whether_one_has_ended(world: World) -> None:
    world.have(silent=Silent())
    with pytest.raises(ClusterError, match="knows whether cluster far has ended: backend silent"):
        elsewhere.delete_named("silent", "far")


def test_one_with_its_controller_beside_it_is_joined_where_its_backend_finds_it(
    world: World,
) -> None:
    world.have(pods=Pods(), site=Site())
    told: list[str] = []
    assert elsewhere.join_elsewhere(told.append) == []
    ((spec, how),) = world.joined
    assert (spec.name, spec.backend, spec.settings, how) == (
        "far",
        "pods",
        {"namespace": "n"},
        "join",
    )
    assert told == ["asking cluster far in namespace n for its runs"]
    assert elsewhere.join_elsewhere() == []
    assert len(world.joined) == 1, "it is here"


def test_no_service_is_asked_that_is_not_configured(world: World) -> None:
    pods = Pods(missing="no kubeconfig")
    world.have(pods=pods)
    assert elsewhere.join_elsewhere() == []
    assert elsewhere.join_named("far") == []
    assert pods.n_asked == 0


def test_a_list_waits_for_a_refusal_once_and_who_names_a_cluster_asks_again(world: World) -> None:
    pods = Pods(ClusterError("it is away"))
    world.have(pods=pods)
    line = "clusters of backend pods are not listed: it is away"
    assert [elsewhere.join_elsewhere(), elsewhere.join_elsewhere()] == [[line], [line]]
    assert pods.n_asked == 1
    assert elsewhere.join_named("far") == [line]
    assert elsewhere.join_elsewhere(anew=True) == [line]
    assert pods.n_asked == 3


def test_a_cluster_that_cannot_be_joined_is_one_line_and_is_tried_again_when_it_is_asked_for(
    world: World,
) -> None:
    def refuse(_: ClusterSpec) -> None:
        raise ClusterError("its Secret may not be read")

    world.have(pods=Pods())
    world.on_join = refuse
    line = "cluster far in namespace n can't be asked: its Secret may not be read"
    assert [elsewhere.join_elsewhere(), elsewhere.join_elsewhere()] == [[line], [line]]
    assert len(world.joined) == 1
    world.on_join = lambda _: None
    assert elsewhere.join_elsewhere(anew=True) == []
    assert world.connection("far") is not None


def test_a_cluster_that_takes_long_is_joined_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "_LOOK_S", 0.05)
    may_come = threading.Event()
    world.have(pods=Pods())
    world.on_join = lambda _: may_come.wait(60)
    (line,) = elsewhere.join_elsewhere()
    assert line == (
        "cluster far in namespace n has not answered within 0.05 s and is still being connected "
        "to; `%cluster attach far` waits for it"
    )
    assert elsewhere.join_elsewhere(anew=True) == [line], "nobody begins a second time"
    assert len(world.joined) == 1
    may_come.set()
    (attempt,) = elsewhere._joining.values()
    assert attempt._over.wait(60)
    assert elsewhere.join_elsewhere() == []


def test_another_process_may_be_faster(world: World) -> None:
    def be_late(spec: ClusterSpec) -> None:
        world.running.append(SimpleNamespace(name=spec.name, backend=spec.backend, process=None))
        raise ClusterError("a controller named 'far' is already running")

    world.have(pods=Pods())
    world.on_join = be_late
    elsewhere.join_cluster(POD)


def test_attaching_joins_what_is_not_here_and_names_who_could_not_be_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_ddl.client.session._session", None)
    pods = Pods()
    world.have(pods=pods)
    told: list[str] = []
    assert clusters.attach_cluster("mine", told.append).name == "mine"
    assert (pods.n_asked, told) == (0, [])
    assert clusters.attach_cluster("far", told.append).name == "far"
    assert told == ["cluster far runs in namespace n: connecting to it", "copying its runs"]
    pods.found = (ClusterError("it is away"),)
    with pytest.raises(
        ClusterError, match=r"did you mean 'far'.*; clusters of backend pods are not"
    ):
        clusters.attach_cluster("fat")


def test_a_run_that_nobody_knows_here_is_looked_for_elsewhere(world: World, home: Home) -> None:
    pods = Pods()
    world.have(pods=pods)
    world.on_join = lambda spec: _keep("r1-far", spec.name)
    _keep("r1-own", "local", is_over=True)
    told: list[str] = []
    assert find_run("r1-own", told.append, told.append) == "r1-own"
    assert (pods.n_asked, told) == (0, [])
    assert find_run("r1-f", told.append, told.append) == "r1-far"
    assert told == ["asking cluster far in namespace n for its runs"]


def test_a_run_that_is_nowhere_is_refused_with_whom_could_not_be_asked(
    world: World, home: Home
) -> None:
    world.have(pods=Pods(ClusterError("it is away")))
    with pytest.raises(RunNotFoundError) as refused:
        find_run("r1-far")
    assert refused.value.message == (
        "there is no run 'r1-far'; `%runs` lists them; clusters of backend pods are not listed: it "
        "is away"
    )


def test_an_ambiguous_name_asks_nobody(world: World, home: Home) -> None:
    pods = Pods()
    world.have(pods=pods)
    _keep("r1-a", "local")
    _keep("r1-b", "local")
    for text in ("r1", ""):
        with pytest.raises(RunNotFoundError):
            run_names.find_run(text)
    assert pods.n_asked == 0


def test_the_copy_of_an_unfinished_run_is_brought_up_to_date(world: World, home: Home) -> None:
    pods = Pods()
    world.have(pods=pods, site=Site())
    _keep("r1-over", "far", is_over=True)
    _keep("r1-own", "gone")
    _keep("r1-far", "far")
    for run_id in ("r1-over", "r1-far"):
        (run_dir(run_id) / COPY_NOTE).touch()
    for run_id in ("r1-over", "r1-own", "r1-none"):
        assert reach_run(run_id) == []
    assert pods.n_asked == 0
    assert reach_run("r1-far") == []
    assert [spec.name for spec, _ in world.joined] == ["far"]
    assert reach_run("r1-far") == []
    assert pods.n_asked == 1
