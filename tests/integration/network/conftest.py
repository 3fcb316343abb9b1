"""A cluster whose scheduler and workers are on hosts of their own, with a wire between all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from jupyter_ddl.client.clusters import Cluster, connect_cluster
from tests.integration.backends.foreign import Foreign, foreign_cluster
from tests.integration.network.wire import Host, Wire, wire_of
from tests.leaks import Home


@dataclass
class Apart:
    """Its hosts by what runs there; the controller is on the test's own."""

    wire: Wire
    hosts: dict[str, Host]
    foreign: Foreign
    cluster: Cluster

    def pair(self, words: str) -> tuple[Host, Host]:
        """``controller-scheduler`` and the like."""
        one, _, other = words.partition("-")
        return self.hosts[one], self.hosts[other]


@pytest.fixture
def apart(home: Home) -> Iterator[Apart]:
    """Two workers with one slot each, at addresses of their own."""
    with wire_of() as wire:
        hosts = {name: wire.host() for name in ("scheduler", "worker", "other")}
        hosts["controller"] = wire.host(is_here=True)
        place = hosts["scheduler"]
        with foreign_cluster(home, 0, tls=False, host=place.address, enter=place.enter) as foreign:
            for name in ("worker", "other"):
                foreign.add_workers(1, host=hosts[name].address, enter=hosts[name].enter)
            cluster = connect_cluster(foreign.address)
            yield Apart(wire, hosts, foreign, cluster)
            cluster.stop()
