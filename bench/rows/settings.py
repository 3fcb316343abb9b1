"""What the settings that a notebook has made cost a cell on its way to a rank."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from bench.harness import Goal, Line, Probe, Row, is_quick, tell

_OURS = Probe("bench.rows.settings")

ROW = Row(
    name="settings",
    title="A cell that takes the notebook's settings along",
    better="lower",
    repeats=3,
    warmups=0,
    note=(
        "One setting or more of every library is made. Ten pairs of runs in each of the repeats, "
        "one with settings and one without by turns, after a pair that is not counted; from before "
        "the cell is compiled until its `report` is called in a rank that was forked for it. "
        "Reading is the CPU time of looking through all libraries, the least of 50 times."
    ),
    lines=(
        Line("with settings ÷ without (medians)", _OURS, "ratio", "", Goal(1.2, "lower")),
        Line("reported in the rank, with settings", _OURS, "with_s", "s"),
        Line("reported in the rank, without", _OURS, "without_s", "s"),
        Line("reading", _OURS, "read_ms", "ms", Goal(1.0, "lower")),
    ),
)

_CELL = """
import torch
from jupyter_ddl import report, uniform
x = uniform(0.0, 1.0)
report(step=0, acc=float(torch.ones(3).sum()) + x)
"""
_DEADLINE_S = 60.0


def _make_settings() -> None:
    import decimal
    import locale
    import logging
    import os
    import sys
    import warnings

    import matplotlib as mpl
    import numpy as np
    import pandas as pd
    import sklearn
    import torch

    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = True
    np.set_printoptions(formatter={"float": lambda x: f"<{x:.1f}>"})
    np.seterr(divide="raise")
    pd.set_option("display.max_rows", 7)
    mpl.rcParams["lines.linewidth"] = 3.5
    sklearn.set_config(transform_output="pandas")
    decimal.getcontext().prec = 6
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    warnings.simplefilter("ignore")
    locale.setlocale(locale.LC_TIME, "C.UTF-8")
    sys.setrecursionlimit(4321)
    os.environ["BENCH_SETTING"] = "1"


def _dispatch_s() -> float:
    from jupyter_ddl.cell.draft import CellContext
    from jupyter_ddl.client.submit import submit
    from jupyter_ddl.protocol.events import Reported
    from jupyter_ddl.verbs.search import Search

    started_at_s = time.time()
    verb, options = Search.from_python({"metric": "acc", "trials": 1, "sampler": "random"})
    draft = verb.compile(_CELL, {}, CellContext(None, Path.cwd()), options)
    run = submit(draft, cell=_CELL)
    run.wait(_DEADLINE_S)
    return next(e.at_s for e in run.events() if isinstance(e, Reported)) - started_at_s


def _read_ms() -> float:
    from jupyter_ddl.cell.settings import read_settings

    times = []
    for _ in range(50):
        started = time.process_time()
        read_settings()
        times.append(time.process_time() - started)
    return min(times) * 1e3


def measure() -> None:
    from jupyter_ddl.cell import settings
    from jupyter_ddl.client.clusters import start_cluster

    _make_settings()
    every = settings.LIBRARIES
    found: dict[str, list[float]] = {"with_s": [], "without_s": []}
    cluster = start_cluster(n_workers=2)
    try:
        for _ in range(5 if is_quick() else 11):
            for name, libraries in (("with_s", every), ("without_s", ())):
                settings.LIBRARIES = libraries
                found[name].append(_dispatch_s())
    finally:
        cluster.stop()
    settings.LIBRARIES = every
    counted = {name: times[1:] for name, times in found.items()}
    medians = {name: statistics.median(times) for name, times in counted.items()}
    ratio = medians["with_s"] / medians["without_s"]
    tell({**counted, "ratio": ratio, "read_ms": _read_ms()})


if __name__ == "__main__":
    measure()
