"""Dask alone: growth of the process that holds scheduler and client, per finished task."""

import json

import psutil
from distributed import Client, LocalCluster


def noop(x: int) -> int:
    return x


if __name__ == "__main__":
    process = psutil.Process()
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        first = client.map(noop, range(1000), pure=False)
        client.gather(first)
        before = process.memory_info().rss
        futures = client.map(noop, range(10_000), pure=False)
        client.gather(futures)
        after = process.memory_info().rss
    print("BENCH-RESULT " + json.dumps({"kb": (after - before) / 10_000 / 1e3}))
