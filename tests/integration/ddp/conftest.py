"""A cluster whose ranks are forked from processes that have torch: a round begins in 0.1 s."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from leaks import Home


@pytest.fixture
def cluster(home: Home) -> Iterator[object]:
    """A local cluster with two workers, held by a real controller; stopped after the test."""
    from jupyter_ddl.client.clusters import Cluster
    from jupyter_ddl.client.session import session
    from jupyter_ddl.controller.connection import read_connection
    from jupyter_ddl.spec.cluster import ClusterSpec

    session().start(ClusterSpec(name="test", n_workers=2, prewarm=("torch",)))
    started = Cluster("test")
    yield started
    if read_connection("test") is not None:
        started.stop()
