"""``%%distribute run`` of ``a=1`` on two idle ranks, there and back."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from bench.harness import Goal, Line, Probe, Row, is_quick, tell

_OURS = Probe("bench.rows.run_cell")
_PEER = Probe("ipyparallel_cell.py")

ROW = Row(
    name="run_cell",
    title="`%%distribute run` round trip of `a=1`, 2 ranks",
    better="lower",
    repeats=3,
    note=(
        "One cell after the other on a group that is open; 300 per repeat, behind 20 that are not "
        "counted. The magic runs in an IPython shell without a front end."
    ),
    lines=(
        Line("`%%distribute run`", _OURS, "magic_p50_ms", "ms", Goal(5, "lower")),
        Line("… 95th percentile", _OURS, "magic_p95_ms", "ms"),
        Line("`group.execute`", _OURS, "execute_p50_ms", "ms"),
        Line("… 95th percentile", _OURS, "execute_p95_ms", "ms"),
        Line("ipyparallel, `%%px`", _PEER, "magic_p50_ms", "ms", compare=True),
        Line("… 95th percentile", _PEER, "magic_p95_ms", "ms"),
        Line("ipyparallel, `view.execute`", _PEER, "execute_p50_ms", "ms", compare=True),
    ),
)


def times_ms(name: str, run: Callable[[], object], n_runs: int) -> dict[str, float]:
    """Median and 95th percentile of a call, under its name."""
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


def measure() -> None:
    from IPython.core.interactiveshell import InteractiveShell

    from jupyter_ddl.client.clusters import start_cluster
    from jupyter_ddl.client.group import open_group

    n_runs = 60 if is_quick() else 300
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "jupyter_ddl")
    cluster = start_cluster(n_workers=2)
    try:
        group = open_group(2, initialize=False)
        executed = times_ms("execute", lambda: group.execute("a=1"), n_runs)
        run_magic = shell.run_cell_magic
        by_magic = times_ms("magic", lambda: run_magic("distribute", "run", "a=1"), n_runs)
    finally:
        cluster.stop()
    tell({**executed, **by_magic})


if __name__ == "__main__":
    measure()
