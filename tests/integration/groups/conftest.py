"""Persistent groups, on a cluster whose zygotes have torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_ddl.client.group import RankGroup, open_group
from jupyter_ddl.protocol.cluster import ClusterSpec
from tests.shared_cluster import SharedCluster, shared_cluster


@pytest.fixture(scope="package")
def kept_cluster() -> Iterator[SharedCluster]:
    """Two workers; groups that a test leaves open are closed after it."""
    with shared_cluster(ClusterSpec(name="test", n_workers=2, prewarm=("torch",))) as found:
        yield found


@pytest.fixture
def group(cluster: object) -> RankGroup:
    """Two ranks without a process group: they are there in a tenth of a second."""
    return open_group(2, initialize=False)
