"""ipyparallel alone: 2 engines, started and connected."""

import json
import logging
import time

import ipyparallel

if __name__ == "__main__":
    started = time.perf_counter()
    cluster = ipyparallel.Cluster(n=2, log_level=logging.ERROR)
    cluster.start_and_connect_sync()
    elapsed_s = time.perf_counter() - started
    cluster.stop_cluster_sync()
    print("BENCH-RESULT " + json.dumps({"ready_s": elapsed_s}))
