"""Comparing kernel and workers before a cell is sent."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.harness import Goal, Line, Probe, Row, tell

_OURS = Probe("bench.rows.environment")
_N = 200

ROW = Row(
    name="environment",
    title="Environment of kernel and 2 workers compared before a cell is sent",
    better="lower",
    repeats=5,
    note="The call that `%%distribute` makes, for a cell that imports numpy and scikit-learn.",
    lines=(
        Line("nothing has changed: median", _OURS, "check_ms", "ms", Goal(5.0, "lower")),
        Line("the first one of a kernel and a cluster", _OURS, "first_ms", "ms"),
        Line("facts of a process, read anew", _OURS, "facts_ms", "ms", Goal(200.0, "lower")),
    ),
)


def measure() -> None:
    from jupyter_ddl.client.clusters import start_cluster
    from jupyter_ddl.client.environment import check_before
    from jupyter_ddl.store.packages import EnvironmentReader

    started = time.perf_counter()
    EnvironmentReader(sys.path).facts()
    facts_s = time.perf_counter() - started
    cluster = start_cluster(n_workers=2, name="bench")
    durations = []
    for _ in range(_N):
        started = time.perf_counter()
        status = check_before("bench", ["numpy", "sklearn"], Path.cwd(), None)
        durations.append(time.perf_counter() - started)
        if status is None or status.word == "broken":
            raise RuntimeError(f"one environment, and the verdict is {status}")
    cluster.stop()
    first, *rest = durations
    check_s = sorted(rest)[len(rest) // 2]
    tell({"check_ms": check_s * 1e3, "first_ms": first * 1e3, "facts_ms": facts_s * 1e3})


if __name__ == "__main__":
    measure()
