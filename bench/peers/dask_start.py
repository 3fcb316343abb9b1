"""Dask alone: LocalCluster with 2 worker processes, ready for work; ``tls``: as we run it."""

import json
import sys
import time

from distributed import Client, LocalCluster, Security

if __name__ == "__main__":
    started = time.perf_counter()
    options = {"security": Security.temporary()} if "tls" in sys.argv else {}
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, **options
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        elapsed_s = time.perf_counter() - started
    print("BENCH-RESULT " + json.dumps({"ready_s": elapsed_s}))
