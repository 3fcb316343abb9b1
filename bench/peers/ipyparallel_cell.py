"""ipyparallel: a cell of `a=1` on 2 engines, by `%%px` and by its view."""

import json
import logging
import os
import statistics
import time

import ipyparallel
from IPython.core.interactiveshell import InteractiveShell


def times_ms(name, run, n_runs):
    took = []
    for _ in range(n_runs + 20):
        began = time.perf_counter()
        run()
        took.append((time.perf_counter() - began) * 1e3)
    counted = took[20:]
    return {
        f"{name}_p50_ms": statistics.median(counted),
        f"{name}_p95_ms": statistics.quantiles(counted, n=20)[-1],
    }


if __name__ == "__main__":
    n_runs = 60 if os.environ.get("JUPYTER_DDL_BENCH_QUICK") else 300
    shell = InteractiveShell.instance()
    cluster = ipyparallel.Cluster(n=2, log_level=logging.ERROR)
    client = cluster.start_and_connect_sync()
    try:
        view = client[:]
        view.activate()
        executed = times_ms("execute", lambda: view.execute("a=1", block=True), n_runs)
        px = shell.run_cell_magic
        by_magic = times_ms("magic", lambda: px("px", "--block", "a=1"), n_runs)
    finally:
        cluster.stop_cluster_sync()
    print("BENCH-RESULT " + json.dumps({**executed, **by_magic}))
