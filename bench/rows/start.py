"""From ``start_cluster`` to a cluster that takes work."""

from __future__ import annotations

import time

import psutil

from bench.harness import Goal, Line, Probe, Row, tell

_OURS = Probe("bench.rows.start")

ROW = Row(
    name="start",
    title="`%cluster start` to ready, 2 workers",
    better="lower",
    repeats=7,
    note="A fresh process each time; importing the client library is not counted, for any of them.",
    lines=(
        Line("jupyter_ddl", _OURS, "ready_s", "s", Goal(1.5, "lower")),
        Line("… of it: the controller's imports", _OURS, "imports_s", "s"),
        Line("… of it: scheduler and workers", _OURS, "workers_s", "s"),
        Line("… of it: rank plugin, socket, announcement", _OURS, "ranks_s", "s"),
        Line("CPU time until then, all processes", _OURS, "cpu_s", "s"),
        Line("ready to first trial finished", _OURS, "first_trial_s", "s"),
        Line("stop, until nothing is left", _OURS, "stop_s", "s"),
        Line("Dask LocalCluster alone", Probe("dask_start.py"), "ready_s", "s", compare=True),
        Line("… with TLS", Probe("dask_start.py", ("tls",)), "ready_s", "s", compare=True),
        Line("Ray, `ray.init`", Probe("ray_start.py"), "ready_s", "s", compare=True),
        Line("ipyparallel", Probe("ipyparallel_start.py"), "ready_s", "s", compare=True),
    ),
)

_CELL = """
from jupyter_ddl import uniform
acc = uniform(0.0, 1.0)
"""


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process and all below it: hardly disturbed by a busy machine."""
    controller = psutil.Process(pid)
    times = [process.cpu_times() for process in (controller, *controller.children(recursive=True))]
    return sum(spent.user + spent.system for spent in times)


def measure() -> None:
    from jupyter_ddl.client.api import search
    from jupyter_ddl.client.clusters import start_cluster
    from jupyter_ddl.client.session import session

    phases: list[float] = []
    started = time.perf_counter()
    cluster = start_cluster(n_workers=2, on_phase=lambda _: phases.append(time.perf_counter()))
    ready = time.perf_counter()
    cpu_s = _cpu_s(session().info(cluster.name).process.pid)
    try:
        search(_CELL, metric="acc", trials=1, sampler="random", namespace={})
        first_trial = time.perf_counter()
    finally:
        stopping = time.perf_counter()
        cluster.stop()
    tell(
        {
            "ready_s": ready - started,
            "imports_s": phases[0] - started,
            "workers_s": phases[1] - phases[0],
            "ranks_s": ready - phases[1],
            "cpu_s": cpu_s,
            "first_trial_s": first_trial - ready,
            "stop_s": time.perf_counter() - stopping,
        }
    )


if __name__ == "__main__":
    measure()
