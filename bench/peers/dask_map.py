"""Dask alone: no-op tasks per second with ``client.map`` on 2 worker processes."""

import json
import os
import time

from distributed import Client, LocalCluster


def noop(x: int) -> int:
    return x


if __name__ == "__main__":
    n_tasks = 1000 if os.environ.get("JUPYTER_DDL_BENCH_QUICK") else 5000
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.gather(client.map(noop, range(200), pure=False))
        started = time.perf_counter()
        client.gather(client.map(noop, range(n_tasks), pure=False))
        elapsed_s = time.perf_counter() - started
    print("BENCH-RESULT " + json.dumps({"per_s": n_tasks / elapsed_s}))
