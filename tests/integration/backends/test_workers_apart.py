"""Large captured values on workers that have file systems of their own."""

from __future__ import annotations

import os
import re
import signal

import numpy as np
import pytest

from jupyter_ddl.client.api import map_cell
from jupyter_ddl.client.clusters import Cluster, connect_cluster
from tests.integration.backends.foreign import foreign_cluster
from tests.leaks import Home
from tests.run_tools import starts
from tests.until import until

pytestmark = pytest.mark.integration

DATA = np.arange(2_000_000, dtype=float)  # 16 MB: four parts
_CELL = """
import time
time.sleep(0.3)
float(data.sum() + item)
"""


def _sent_to(cluster: Cluster) -> list[str]:
    """Addresses of the workers that have it from the controller."""
    return re.findall(r"sent 16000\d+ bytes of \w+ to (\S+)", cluster.logs(n_lines=1000))


def _map_on_two() -> None:
    run = map_cell(_CELL, list(range(4)), namespace={"data": DATA})
    assert run.values == [float(DATA.sum()) + item for item in range(4)]
    assert len({start.worker for start in starts(run)}) == 2


def test_they_leave_the_controller_once_and_go_on_from_worker_to_worker(home: Home) -> None:
    with foreign_cluster(home, 2, nanny=False, tls=False) as found:
        cluster = connect_cluster(found.address)
        _map_on_two()
        (first,) = _sent_to(cluster)

        # Whoever had it first is gone: then the controller gives it once more.
        with found.client() as client:
            pids = client.run(os.getpid)
        os.kill(pids[first], signal.SIGKILL)
        until(lambda: len(cluster.status().workers) == 1, 40, "the loss to be noticed")
        found.add_workers(1, nanny=False)
        until(lambda: len(cluster.status().workers) == 2, 30, "another worker")
        _map_on_two()
        assert len(_sent_to(cluster)) == 2
        cluster.stop()
