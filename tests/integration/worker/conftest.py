"""The cluster that the tests of one module share."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing import resource_tracker

import pytest

from tests.integration.worker.worker_bench import SharedBench


@pytest.fixture(scope="session", autouse=True)
def tracker() -> None:
    """Start the helper that multiprocessing keeps for this process before any test's home.

    These tests hold a Dask cluster themselves, so it would pass for a process of theirs.
    """
    resource_tracker.ensure_running()


@pytest.fixture(scope="module")
def shared_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBench]:
    bench = SharedBench(tmp_path_factory.mktemp("bench"), n_workers=2)
    yield bench
    bench.close()
