"""What a finished trial leaves in the controller's memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench.harness import Goal, Line, Probe, Row, is_quick, tell

_OURS = Probe("bench.rows.memory")

ROW = Row(
    name="memory",
    title="Controller memory per finished trial, over 10,000",
    better="lower",
    repeats=3,
    warmups=0,
    note=(
        "Private dirty pages of the controller process, sampled as trials finish. Within one run "
        "of 10,000: slope of a straight line through the samples from the first 500 trials on. "
        "Over ten runs of 1,000: growth from 1,000 to 11,000 trials, divided by 10,000."
    ),
    lines=(
        Line("within one run of 10,000", _OURS, "slope_kb", "kB", Goal(2.0, "lower")),
        Line("over ten runs of 1,000", _OURS, "runs_kb", "kB", Goal(2.0, "lower")),
        Line("the same, resident set size", _OURS, "runs_rss_kb", "kB"),
        Line("controller, cluster ready", _OURS, "ready_mb", "MB"),
        Line("controller, after all of them", _OURS, "end_mb", "MB"),
        Line("bare Dask, 10,000 futures held", Probe("dask_memory.py"), "kb", "kB", compare=True),
    ),
)

_CELL = """
from jupyter_ddl import report, uniform
x = uniform(0.0, 1.0)
report(step=0, acc=x)
"""


def _search(n_trials: int, wait: bool = True) -> Any:
    from jupyter_ddl.client.api import search

    return search(_CELL, metric="acc", trials=n_trials, sampler="random", wait=wait, namespace={})


def _slope(points: list[tuple[int, int]]) -> float:
    """Bytes per trial: least squares."""
    n = len(points)
    mean_x = sum(x for x, _ in points) / n
    mean_y = sum(y for _, y in points) / n
    over = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return over / sum((x - mean_x) ** 2 for x, _ in points)


def _private_bytes(pid: int) -> int:
    """Memory that only this process has and has written.

    Not USS: a library page that workers share counts there as soon as the last of them has gone.
    """
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/smaps_rollup has no Private_Dirty")


def measure() -> None:
    import psutil

    from jupyter_ddl.client.clusters import start_cluster
    from jupyter_ddl.client.session import session

    scale = 5 if is_quick() else 1
    cluster = start_cluster(n_workers=2)
    pid = session().info(cluster.name).process.pid
    controller = psutil.Process(pid)
    try:
        ready = _private_bytes(pid)
        _search(1000 // scale)
        before, before_rss = _private_bytes(pid), controller.memory_info().rss
        for _ in range(10):
            _search(1000 // scale)
        after, after_rss = _private_bytes(pid), controller.memory_info().rss
        n_trials = 10_000 // scale
        points: list[tuple[int, int]] = []
        run = _search(n_trials, wait=False)
        while (n_finished := run.snapshot().counts.finished) < n_trials:
            if n_finished >= 500 // scale:
                points.append((n_finished, _private_bytes(pid)))
            time.sleep(0.02)
        run.wait(60)
        tell(
            {
                "slope_kb": _slope(points) / 1e3,
                "runs_kb": (after - before) / n_trials / 1e3,
                "runs_rss_kb": (after_rss - before_rss) / n_trials / 1e3,
                "ready_mb": ready / 1e6,
                "end_mb": _private_bytes(pid) / 1e6,
            }
        )
    finally:
        cluster.stop()


if __name__ == "__main__":
    measure()
