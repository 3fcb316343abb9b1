"""No-op trials per second through the whole path: client, controller, ledger, ranks."""

from __future__ import annotations

import time

from bench.harness import Goal, Line, Probe, Row, is_quick, tell

_OURS = Probe("bench.rows.trials")

ROW = Row(
    name="trials",
    title="No-op trials per second, 2 workers, durable ledger",
    better="higher",
    repeats=5,
    warmups=0,  # every probe warms up by a run of its own
    note=(
        "Random sampler, one parameter, one cluster per repeat; a warm-up run is not counted. From "
        "the call of `search` to its return. Bare Dask `map` keeps no record of what it did."
    ),
    lines=(
        Line("jupyter_ddl, 5,000 trials", _OURS, "noop_per_s", "/s", Goal(500, "higher")),
        Line("jupyter_ddl, cell that prints and reports", _OURS, "talking_per_s", "/s"),
        Line("jupyter_ddl, the first 200 trials", _OURS, "first_per_s", "/s"),
        Line("bare Dask `map`, 5,000", Probe("dask_map.py"), "per_s", "/s", compare=True),
        Line(
            "Optuna, SQLite, 2 processes",
            Probe("optuna_trials.py", ("sqlite",)),
            "per_s",
            "/s",
            compare=True,
        ),
        Line(
            "Optuna, journal file, 2 processes",
            Probe("optuna_trials.py", ("journal",)),
            "per_s",
            "/s",
            compare=True,
        ),
        Line("Ray Tune, actors reused", Probe("ray_trials.py"), "per_s", "/s", compare=True),
    ),
)

_NOOP = """
from jupyter_ddl import uniform
x = uniform(0.0, 1.0)
acc = x
"""
_TALKING = """
from jupyter_ddl import uniform, report
x = uniform(0.0, 1.0)
print("x is", x)
report(step=0, acc=x)
"""


def measure() -> None:
    from jupyter_ddl.client.api import search
    from jupyter_ddl.client.clusters import start_cluster

    def rate(cell: str, n_trials: int) -> float:
        started = time.perf_counter()
        run = search(cell, metric="acc", trials=n_trials, sampler="random", namespace={})
        elapsed_s = time.perf_counter() - started
        if run.snapshot().counts.complete != n_trials:
            raise RuntimeError(f"not all of {n_trials} trials are complete: {run}")
        return n_trials / elapsed_s

    n_trials = 1000 if is_quick() else 5000
    cluster = start_cluster(n_workers=2)
    try:
        first = rate(_NOOP, 200)
        tell(
            {
                "first_per_s": first,
                "noop_per_s": rate(_NOOP, n_trials),
                "talking_per_s": rate(_TALKING, n_trials),
            }
        )
    finally:
        cluster.stop()


if __name__ == "__main__":
    measure()
