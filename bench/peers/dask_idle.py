"""Dask alone: CPU of an idle cluster of 2 worker processes, in percent of one core."""

import json
import time

import psutil
from distributed import Client, LocalCluster


def _cpu_s() -> float:
    me = psutil.Process()
    processes = [me, *me.children(recursive=True)]
    return sum(sum(process.cpu_times()[:2]) for process in processes)


if __name__ == "__main__":
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        time.sleep(8.0)
        began, spent_s = time.perf_counter(), _cpu_s()
        time.sleep(15.0)
        took_s = time.perf_counter() - began
        percent = 100.0 * (_cpu_s() - spent_s) / took_s
    print("BENCH-RESULT " + json.dumps({"percent": percent}))
