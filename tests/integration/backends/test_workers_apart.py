"""Large captured values on workers that have file systems of their own."""

from __future__ import annotations

import numpy as np
import pytest
from foreign import foreign_cluster
from leaks import Home
from run_tools import starts
from until import until

from jupyter_ddl.client.clusters import connect_cluster
from jupyter_ddl.client.verbs import map_cell

pytestmark = pytest.mark.integration

_CELL = """
import time
time.sleep(0.3)
float(data.sum() + item)
"""


def test_they_leave_the_controller_once_and_go_on_from_worker_to_worker(home: Home) -> None:
    data = np.arange(2_000_000, dtype=float)  # 16 MB: four parts
    expected = [float(data.sum()) + item for item in range(12)]
    with foreign_cluster(home, 3, nanny=False, tls=False) as found:
        cluster = connect_cluster(found.address)
        run = map_cell(_CELL, list(range(12)), namespace={"data": data}, isolate=True)
        assert run.values == expected
        assert len({start.worker for start in starts(run)}) == 3
        assert cluster.logs().count("sent 16000") == 1

        # Whoever gave it may be gone: then it comes from here again.
        found.processes[1].kill()
        found.processes[2].kill()
        until(lambda: len(cluster.status().workers) == 1, 60, "two workers to be missed")
        found.add_workers(1, nanny=False)
        until(lambda: len(cluster.status().workers) == 2, 30, "another worker")
        run = map_cell(_CELL, list(range(12)), namespace={"data": data}, isolate=True)
        assert run.values == expected
        cluster.stop()
