"""What a notebook's settings, and files of its own, cost a cell on its way to a rank."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.harness import Goal, Line, Probe, Row, is_quick, tell

_OURS = Probe("bench.rows.settings")

ROW = Row(
    name="settings",
    title="A cell that takes the notebook's settings along, and a repository",
    better="lower",
    repeats=3,
    warmups=0,
    note=(
        "One setting or more of every library is made. Ten rounds of runs in each of the repeats, "
        "by turns one without settings, one with them, and one whose cell also imports a package "
        "of 50 files, behind its `report`; after a round that is not counted. From before "
        "the cell is compiled until its `report` is called in a rank that was forked for it. "
        "Reading is the CPU time of looking through all libraries, the least of 50 times."
    ),
    lines=(
        Line("with settings ÷ without (medians)", _OURS, "ratio", "", Goal(1.2, "lower")),
        Line(
            "with settings and 50 files ÷ without (medians)",
            _OURS,
            "repository_ratio",
            "",
            Goal(1.2, "lower"),
        ),
        Line("reported in the rank, with settings and 50 files", _OURS, "repository_s", "s"),
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
_REPOSITORY_CELL = f"{_CELL}import of_the_notebook\n"
_N_FILES = 50
_DEADLINE_S = 60.0


def _make_settings() -> None:
    import decimal
    import locale
    import logging
    import os
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


def _make_repository(folder: Path) -> None:
    """A package each of whose modules imports the next one, with a hundred lines to read."""
    package = folder / "of_the_notebook"
    package.mkdir()
    body = "".join(f"def f{n}(x):\n    return x + {n}\n" for n in range(50))
    for number in range(1, _N_FILES):
        imports = f"from of_the_notebook import m{number + 1}\n" if number < _N_FILES - 1 else ""
        (package / f"m{number}.py").write_text(imports + body)
    (package / "__init__.py").write_text("from of_the_notebook import m1\n" + body)
    sys.path.append(str(folder))


def _dispatch_s(cell: str) -> float:
    from jupyter_ddl.cell.draft import CellContext
    from jupyter_ddl.client.submit import submit
    from jupyter_ddl.protocol.events import Reported
    from jupyter_ddl.verbs.search import Search

    started_at_s = time.time()
    verb, options = Search.from_python({"metric": "acc", "trials": 1, "sampler": "random"})
    draft = verb.compile(cell, {}, CellContext(None, Path.cwd()), options)
    run = submit(draft, cell=cell)
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
    ways: tuple[tuple[str, Any, str], ...] = (
        ("without_s", (), _CELL),
        ("with_s", every, _CELL),
        ("repository_s", every, _REPOSITORY_CELL),
    )
    found: dict[str, list[float]] = {name: [] for name, _, _ in ways}
    cluster = start_cluster(n_workers=2)
    try:
        with tempfile.TemporaryDirectory() as folder:
            _make_repository(Path(folder))
            for _ in range(5 if is_quick() else 11):
                for name, libraries, cell in ways:
                    settings.LIBRARIES = libraries
                    found[name].append(_dispatch_s(cell))
    finally:
        cluster.stop()
    settings.LIBRARIES = every
    counted = {name: times[1:] for name, times in found.items()}
    medians = {name: statistics.median(times) for name, times in counted.items()}
    plain_s = medians["without_s"]
    ratios = {
        "ratio": medians["with_s"] / plain_s,
        "repository_ratio": medians["repository_s"] / plain_s,
    }
    tell({**counted, **ratios, "read_ms": _read_ms()})


if __name__ == "__main__":
    measure()
