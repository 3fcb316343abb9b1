"""What users are told while the network is bad, looked at again and again."""

from __future__ import annotations

import time

from jupyter_ddl.client.clusters import Cluster
from tests.integration.network.works import Work
from tests.until import until

__all__ = ["Told"]

_BACK_S = 60.0


class Told:
    """Every look is at the state by name; what was told in any of them is kept."""

    def __init__(self, cluster: Cluster, work: Work) -> None:
        self._cluster = cluster
        self._work = work
        self._texts: set[str] = set()
        self._oldest_s = 0.0

    def look(self) -> None:
        """At the cluster, and at what its work waits for."""
        status = self._cluster.status()
        assert (status.state, bool(status.trouble)) in (("ready", False), ("degraded", True))
        self._texts.update((status.trouble, *self._work.notices()))
        if heard_at_s := self._work.heard_at_s():
            self._oldest_s = max(self._oldest_s, time.time() - heard_at_s)

    def assert_told(self, text: str) -> None:
        """Of the cluster or of the work, in any of the looks."""
        assert any(text in told for told in self._texts), self._texts

    def assert_silent_for(self, seconds: float) -> None:
        """The view has said for so long that nothing is heard of a rank that waits."""
        assert self._oldest_s >= seconds

    def assert_over(self) -> None:
        """It is ready again, by its name, once the network is."""
        until(lambda: self._cluster.status().state == "ready", _BACK_S, "a cluster that is ready")
