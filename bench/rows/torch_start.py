"""A local cluster whose ranks have torch: what it costs until each worker has had a rank."""

from __future__ import annotations

import contextlib
import os
import sys
import time

import psutil

from bench.harness import Line, Probe, Row, tell

_TWO = Probe("bench.rows.torch_start", ("2",))
_FOUR = Probe("bench.rows.torch_start", ("4",))

ROW = Row(
    name="torch_start",
    title="A local cluster whose ranks have torch, to the end of a trial on each worker",
    better="lower",
    repeats=3,
    warmups=0,
    note="CPU time of all processes; memory in equal parts of what they share (PSS).",
    lines=(
        Line("2 workers, CPU", _TWO, "cpu_s", "s"),
        Line("2 workers, wall", _TWO, "wall_s", "s"),
        Line("2 workers, memory", _TWO, "pss_mb", "MB"),
        Line("4 workers, CPU", _FOUR, "cpu_s", "s"),
        Line("4 workers, wall", _FOUR, "wall_s", "s"),
        Line("4 workers, memory", _FOUR, "pss_mb", "MB"),
    ),
)

_CELL = """
import time
import torch
from jupyter_ddl import uniform
acc = uniform(0.0, 1.0)
time.sleep(1.0)
"""


def measure(n_workers: int) -> None:
    from jupyter_ddl.client.api import search
    from jupyter_ddl.client.clusters import start_cluster
    from jupyter_ddl.client.session import session

    os.environ["JUPYTER_DDL_PREWARM"] = "torch"  # as if the kernel had imported it
    began_s = time.perf_counter()
    cluster = start_cluster(n_workers=n_workers)
    try:
        search(_CELL, metric="acc", trials=n_workers, sampler="random", namespace={})
        wall_s = time.perf_counter() - began_s
        controller = psutil.Process(session().info(cluster.name).process.pid)
        cpu_s, pss_bytes = 0.0, 0
        for each in (controller, *controller.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                spent = each.cpu_times()
                # Of those that have ended, too.
                cpu_s += spent.user + spent.system + spent.children_user + spent.children_system
                pss_bytes += each.memory_full_info().pss
    finally:
        cluster.stop()
    tell({"cpu_s": cpu_s, "wall_s": wall_s, "pss_mb": pss_bytes / 2**20})


if __name__ == "__main__":
    measure(int(sys.argv[1]))
