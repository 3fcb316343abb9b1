"""Clusters that a service knows and that were started elsewhere; a service that can't be asked."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import msgspec
import pytest

from jupyter_ddl.backends.base import Backend, BackendPlugin, FoundCluster
from jupyter_ddl.client import clusters
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec

FOUND = FoundCluster("site", "big", "rack 4", 3, owner="b:n:1:1", handle="7")
HERE = msgspec.structs.replace(FOUND, name="mine", owner="b:n:2:2")
LOST = msgspec.structs.replace(FOUND, name="mine", owner="b:n:3:3")


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


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have these backends, and no others; the cluster ``mine`` runs here."""

    def have(**known: BackendPlugin) -> None:
        monkeypatch.setattr(clusters, "BACKENDS", SimpleNamespace(names=lambda: tuple(known)))
        monkeypatch.setattr(clusters, "backend_plugin", known.__getitem__)
        process = SimpleNamespace(token="b:n:2:2")
        running = [SimpleNamespace(name="mine", process=process)]
        monkeypatch.setattr(clusters, "list_connections", lambda: running)

    return have


def test_a_cluster_whose_controller_is_here_is_not_elsewhere(plugins: Callable[..., None]) -> None:
    plugins(site=Site())
    assert list(clusters.clusters_elsewhere()) == [FOUND, LOST]


def test_a_service_that_cannot_be_asked_hides_no_other(plugins: Callable[..., None]) -> None:
    plugins(silent=Silent(), site=Site())
    refusal, *found = clusters.clusters_elsewhere()
    assert isinstance(refusal, ClusterError)
    assert refusal.message == "clusters of backend silent are not listed: it does not answer"
    assert found == [FOUND, LOST]


def test_it_is_ended_by_its_own_backend(plugins: Callable[..., None]) -> None:
    site = Site()
    site.ended = []
    plugins(site=site)
    clusters.delete_elsewhere(FOUND)
    assert site.ended == ["7"]
