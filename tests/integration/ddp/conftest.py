"""A cluster whose ranks are forked from processes that have torch: a round begins in 0.1 s."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from shared_cluster import SharedCluster, shared_cluster

from jupyter_ddl.spec.cluster import ClusterSpec


@pytest.fixture(scope="package")
def kept_cluster() -> Iterator[SharedCluster]:
    """Two workers, as everywhere, but their zygotes have torch."""
    with shared_cluster(ClusterSpec(name="test", n_workers=2, prewarm=("torch",))) as found:
        yield found
