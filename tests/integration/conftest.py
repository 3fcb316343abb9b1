"""For tests that start clusters themselves: all of them are stopped, also when a test fails."""

from __future__ import annotations

import copy
import gc
import warnings
from collections.abc import Iterator

import dask.config
import distributed  # noqa: F401  # adds its defaults to the configuration, once
import pytest
from leaks import Home


@pytest.fixture
def stopping(home: Home) -> Iterator[Home]:
    """The test's home; clusters that still run in it after the test are stopped."""
    from jupyter_ddl.client.clusters import list_clusters

    yield home
    for cluster in list_clusters():
        cluster.stop()


@pytest.fixture(autouse=True)
def own_dask_config() -> Iterator[None]:
    """A backend in this process sets what a controller may: it ends with the test.

    So do the sockets of a Dask cluster whose other end was killed: distributed leaves them to the
    garbage collector, which would complain in the middle of another test.
    """
    saved = copy.deepcopy(dask.config.config)
    yield
    dask.config.config.clear()
    dask.config.config.update(saved)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
