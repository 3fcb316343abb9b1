"""Clusters for tests: one that they share, one of a test's own, and what a test starts itself."""

from __future__ import annotations

import copy
import functools
import gc
import warnings
from collections.abc import Iterator

import dask.config
import distributed  # noqa: F401  # adds its defaults to the configuration, once
import pytest

from jupyter_ddl.client.clusters import Cluster, list_clusters, start_cluster
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.store.connection import connection_path, read_connection
from tests.leaks import Home
from tests.shared_cluster import SharedCluster, lent, shared_cluster
from tests.until import until


@pytest.fixture(scope="package")
def kept_cluster() -> Iterator[SharedCluster]:
    """Two workers; a test that changes or breaks them has the next test get others."""
    with shared_cluster(ClusterSpec(name="test", n_workers=2)) as found:
        yield found


@pytest.fixture
def cluster(
    home: Home, kept_cluster: SharedCluster, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cluster]:
    """A local cluster at rest with two workers, held by a real controller; it is shared.

    Runs of other tests lie in its home.  A test for which that matters, or which looks at its own
    home, takes ``own_cluster``.
    """
    with lent(kept_cluster, monkeypatch) as found:
        yield found


@pytest.fixture
def cluster_home(cluster: Cluster, kept_cluster: SharedCluster) -> Home:
    """Where the shared cluster and its runs lie."""
    return kept_cluster.home


@pytest.fixture
def own_cluster(home: Home) -> Iterator[Cluster]:
    """The same in the test's home, for this test alone; stopped after it."""
    started = start_cluster(n_workers=2, name="test")
    yield started
    if read_connection("test") is not None:
        started.stop()
    # What a killed controller leaves is removed by whoever looks, once its name is free.
    path = connection_path("test")
    until(lambda: read_connection("test") is None and not path.exists(), 20.0, "a free name")


@pytest.fixture
def stopping(home: Home) -> Iterator[Home]:
    """The test's home; clusters that still run in it after the test are stopped."""
    yield home
    for cluster in list_clusters():
        cluster.stop()


@functools.cache
def _keep_modules() -> None:
    """Imported modules are no garbage, and to look through them takes 0.2 s each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def own_dask_config() -> Iterator[None]:
    """A backend in this process sets what a controller may: it ends with the test.

    So do the sockets of a Dask cluster whose other end was killed: distributed leaves them to the
    garbage collector, which would complain in the middle of another test.
    """
    _keep_modules()
    saved = copy.deepcopy(dask.config.config)
    yield
    dask.config.config.clear()
    dask.config.config.update(saved)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
