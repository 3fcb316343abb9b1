"""What a cluster costs while nobody uses it: what a training's ranks share their cores with."""

from __future__ import annotations

import time

import psutil

from bench.harness import Line, Probe, Row, is_quick, tell

_OURS = Probe("bench.rows.idle")

ROW = Row(
    name="idle",
    title="CPU that an idle cluster uses, 2 workers",
    better="lower",
    repeats=3,
    warmups=0,
    note=(
        "CPU seconds of all its processes over 15 s, in percent of one core, from 8 s after the "
        "start on. Ours has TLS, beats, leases and telemetry at 1 Hz; Dask has its own defaults."
    ),
    lines=(
        Line("jupyter_ddl", _OURS, "percent", "%"),
        Line("… of it: controller, with Dask's scheduler", _OURS, "controller_percent", "%"),
        Line("Dask LocalCluster alone", Probe("dask_idle.py"), "percent", "%", compare=True),
    ),
)


def _cpu_s(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def measure() -> None:
    from jupyter_ddl.client.clusters import start_cluster
    from jupyter_ddl.client.session import session

    cluster = start_cluster(n_workers=2)
    try:
        time.sleep(8.0)  # zygotes import torch ahead of the first run
        controller = psutil.Process(session().info(cluster.name).process.pid)
        others = controller.children(recursive=True)
        began = time.perf_counter()
        before = _cpu_s([controller]), _cpu_s(others)
        time.sleep(5.0 if is_quick() else 15.0)
        took_s = time.perf_counter() - began
        percents = [
            100.0 * (_cpu_s(of) - spent_s) / took_s
            for of, spent_s in zip(([controller], others), before, strict=True)
        ]
    finally:
        cluster.stop()
    tell({"percent": sum(percents), "controller_percent": percents[0]})


if __name__ == "__main__":
    measure()
