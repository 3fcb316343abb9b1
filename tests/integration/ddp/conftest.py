"""A cluster whose ranks are forked from processes that have torch: a round begins in 0.1 s."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import resource_tracker

import pytest

from jupyter_ddl.protocol.cluster import ClusterSpec
from tests.shared_cluster import SharedCluster, shared_cluster


@pytest.fixture(scope="package")
def kept_cluster() -> Iterator[SharedCluster]:
    """Two workers, as everywhere, but their zygotes have torch."""
    with shared_cluster(ClusterSpec(name="test", n_workers=2, prewarm=("torch",))) as found:
        yield found


@pytest.fixture(scope="session", autouse=True)
def tracker() -> None:
    """Started before a test looks what it has left: strategies' contracts start processes."""
    resource_tracker.ensure_running()
