"""What it costs a controller that a run is watched in which nothing happens."""

from __future__ import annotations

import time
from pathlib import Path

from bench.harness import Goal, Line, Probe, Row, is_quick, tell

_PROBE = Probe("bench.rows.watching")
_N_WATCHERS = 3
_CELL = """
import time
x = uniform(0.0, 1.0)
report(step=1, score=x)
time.sleep(3600)
score = x
"""

ROW = Row(
    name="watching",
    title="CPU that a controller uses for three watchers of a quiet run",
    better="lower",
    repeats=1,
    warmups=0,
    note=(
        "Two trials that have reported once and sleep; the watchers are clients with a connection "
        "each. CPU time of all the controller's threads by the kernel's own clock (schedstat) "
        "over 20 s, in percent of one core, in turns with and without watchers; added is the "
        "difference within a pair. What remains without watchers is Dask's scheduler and nannies, "
        "heartbeats over TLS, and telemetry."
    ),
    lines=(
        Line("added by three watchers", _PROBE, "added_percent", "%", Goal(0.2, "lower")),
        Line("controller with three watchers", _PROBE, "watched_percent", "%"),
        Line("… without", _PROBE, "alone_percent", "%"),
        Line("snapshots pushed to each of them meanwhile", _PROBE, "n_pushed", ""),
    ),
)


def _cpu_s(pid: int) -> float:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e9


def _percent(pid: int, seconds: float) -> float:
    began_s, spent_s = time.perf_counter(), _cpu_s(pid)
    time.sleep(seconds)
    return 100.0 * (_cpu_s(pid) - spent_s) / (time.perf_counter() - began_s)


def measure() -> None:
    from jupyter_ddl.client.api import search
    from jupyter_ddl.client.clusters import start_cluster
    from jupyter_ddl.client.session import Session, session

    cluster = start_cluster(n_workers=2)
    alone: list[float] = []
    watched: list[float] = []
    n_pushed: list[int] = []
    try:
        run = search(_CELL, namespace={}, metric="score", trials=2, sampler="random", wait=False)
        pid = session().info(cluster.name).process.pid
        time.sleep(8.0)  # zygotes import torch ahead of the first run
        seconds = 5.0 if is_quick() else 20.0
        for _ in range(1 if is_quick() else 3):
            alone.append(_percent(pid, seconds))
            watchers = [Session() for _ in range(_N_WATCHERS)]
            boxes = [each.watch(cluster.name, run.id) for each in watchers]
            for box in boxes:
                box.take(1.0)  # the run as it is, which is no push
            watched.append(_percent(pid, seconds))
            n_pushed += [box.take(0.0) is not None for box in boxes]
            for each, box in zip(watchers, boxes, strict=True):
                each.unwatch(cluster.name, run.id, box)
    finally:
        cluster.stop()
    tell(
        {
            "added_percent": [
                with_ - without for with_, without in zip(watched, alone, strict=True)
            ],
            "watched_percent": watched,
            "alone_percent": alone,
            "n_pushed": n_pushed,
        }
    )


if __name__ == "__main__":
    measure()
