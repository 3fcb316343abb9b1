"""Work of every kind, which goes on for some seconds and knows what it must come to."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from sklearn.model_selection import GridSearchCV

sys.path.insert(0, str(Path(__file__).parent))

from slow_models import Slow

from jupyter_ddl.client.api import train
from jupyter_ddl.client.group import RankGroup, open_group
from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import GroupLostError
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.protocol.cells import CellResult
from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.sklearn_fit.context import distributed_fits
from jupyter_ddl.sklearn_fit.exchange import FitSetting
from tests.run_tools import STEPS, assert_clean, outcomes, start_search, wait_for
from tests.until import until

__all__ = ["WORKS", "Cells", "Fits", "Kept", "Search", "Training", "Work"]

_FOLDER = Path(__file__).parent
_START_S = 90.0
_TRAINING = """
import time, torch, torch.distributed as dist
state = resume() or {"step": -1, "total": 0.0}
step, total = state["step"], state["total"]
while step < STEPS - 1:
    step += 1
    given = torch.tensor([float(step * (dist.get_rank() + 1))])
    dist.all_reduce(given)
    total += given.item()
    report(step=step, total=total)
    checkpoint(step=step, total=total)
    time.sleep(0.1)
"""
_CELL = """
import time, torch, torch.distributed as dist
total = 0.0
for step in range(STEPS):
    given = torch.tensor([float(step)])
    dist.all_reduce(given)
    total += given.item()
    time.sleep(0.1)
total
"""


class Work(Protocol):
    """``begin`` returns when it is under way, ``end`` when it has come to what it must."""

    def begin(self, seconds: float) -> None: ...

    def end(self) -> None: ...

    def notices(self) -> tuple[str, ...]: ...

    def heard_at_s(self) -> float | None:
        """Unix seconds at which its view has last heard of the rank that it knows least of."""


class _OfRun:
    run: Run

    def notices(self) -> tuple[str, ...]:
        seen = self.run.snapshot()
        return (*seen.notices, seen.paused)

    def heard_at_s(self) -> float | None:
        return None


class Search(_OfRun):
    """Trials one after another, on both hosts."""

    def begin(self, seconds: float) -> None:
        # Two at a time, 0.05 s a step.
        self._n_trials = 6
        steps = int(seconds * 2 / self._n_trials / 0.05)
        self.run = start_search(STEPS.replace("range(4)", f"range({steps})"), self._n_trials)
        wait_for(self.run, lambda seen: seen.counts.running == 2)

    def end(self) -> None:
        self.run.wait(280)
        assert self.run.state == "complete"
        assert self.run.errors == {}
        assert_clean(self.run, self._n_trials)


class Training(_OfRun):
    """Two ranks, one on each host, whose sum shows every step that is lost or doubled."""

    def begin(self, seconds: float) -> None:
        self._n_steps = int(seconds / 0.1)
        cell = _TRAINING.replace("STEPS", str(self._n_steps))
        self.run = train(cell, 2, namespace={}, bring=("total",), wait=False)
        wait_for(self.run, lambda seen: (seen.last_step or 0) >= 2, _START_S)
        hosts = {row.host for row in self.run.snapshot().ranks}
        assert len(hosts) == 2, hosts
        self._views: list[RunSnapshot] = []
        self._thread = Kept(lambda: self.run.wait(280, self._views.append))

    def heard_at_s(self) -> float | None:
        rows = self._views[-1].ranks if self._views else ()
        known = [row.heard_at_s for row in rows if row.state == "running"]
        return min((at_s for at_s in known if at_s is not None), default=None)

    def end(self) -> None:
        self._thread.result()
        assert self.run.state == "complete", self.run.snapshot().reason
        assert audit(self.run.events()) == []
        assert self.run.value("total", rank=0) == 3.0 * sum(range(self._n_steps))
        failed = [end for end in outcomes(self.run, "failed") if end.failure is not None]
        assert failed == [], "what the network does is nobody's own failure"


class Fits(_OfRun):
    """A grid search of scikit-learn, which must come to what it comes to on one's own."""

    def begin(self, seconds: float) -> None:
        rows, y = np.arange(40.0).reshape(20, 2), np.array([0, 1] * 10)
        runs: list[Run] = []

        def grid(wait_s: float) -> GridSearchCV:
            model = Slow(wait_s=wait_s)
            return GridSearchCV(model, {"c": [0, 1, 2, 3]}, cv=4, refit=False)

        self._expected = grid(0.0).fit(rows, y).cv_results_["mean_test_score"]
        self._grid = grid(seconds * 2 / 16)
        setting = FitSetting(namespace={}, folder=_FOLDER, on_run=runs.append)

        def fit() -> None:
            with distributed_fits(setting):
                self._grid.fit(rows, y)

        self._thread = Kept(fit)
        until(lambda: runs, 60, "a run of fits")
        (self.run,) = runs
        wait_for(self.run, lambda seen: seen.counts.running > 0, _START_S)

    def end(self) -> None:
        self._thread.result()
        assert self.run.state == "complete"
        assert list(self._grid.cv_results_["mean_test_score"]) == list(self._expected)
        assert audit(self.run.events()) == []


class Cells:
    """A cell on ranks that stay; when a rank's worker is lost, it says so."""

    def begin(self, seconds: float) -> None:
        self._n_steps = int(seconds / 0.1)
        self._group: RankGroup = open_group(2)
        code = _CELL.replace("STEPS", str(self._n_steps))
        self._progress: list[str] = []

        def tell(_: object, seen: CellResult | None) -> None:
            self._progress.append(seen.note if seen is not None else "")

        self._thread = Kept(lambda: self._group.execute(code, on_progress=tell))
        until(lambda: self._progress, 60, "a cell that runs")

    def notices(self) -> tuple[str, ...]:
        return (self._progress[-1],)

    def heard_at_s(self) -> float | None:
        return None

    def end(self) -> None:
        self._thread.wait(280)
        if isinstance(self._thread.error, GroupLostError):
            assert "worker" in str(self._thread.error)
            return
        assert self._thread.result().values == [2.0 * sum(range(self._n_steps))] * 2
        self._group.close()


class Kept:
    """What a function returns, or raises, in a thread of its own."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._result: Any = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="work")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - raised again by result()
            self.error = error

    @property
    def is_going(self) -> bool:
        return self._thread.is_alive()

    def wait(self, seconds: float) -> None:
        """For its end, for so long at most."""
        self._thread.join(seconds)

    def result(self) -> Any:
        self._thread.join(280)
        assert not self._thread.is_alive(), "it does not end"
        if self.error is not None:
            raise self.error
        return self._result


WORKS: dict[str, Callable[[], Work]] = {
    "search": Search,
    "training": Training,
    "fits": Fits,
    "cells": Cells,
}
