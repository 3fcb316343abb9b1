"""The cluster that the tests of one module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from worker_bench import SharedBench


@pytest.fixture(scope="module")
def shared_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBench]:
    bench = SharedBench(tmp_path_factory.mktemp("bench"), n_workers=2)
    yield bench
    bench.close()
