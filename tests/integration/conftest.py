"""For tests that start clusters themselves: all of them are stopped, also when a test fails."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from leaks import Home


@pytest.fixture
def stopping(home: Home) -> Iterator[Home]:
    """The test's home; clusters that still run in it after the test are stopped."""
    from jupyter_ddl.client.clusters import list_clusters

    yield home
    for cluster in list_clusters():
        cluster.stop()
