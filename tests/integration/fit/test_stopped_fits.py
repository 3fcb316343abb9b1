"""Fits that are stopped, as a whole or one candidate, and controllers that are killed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fit_models import Trivial, Waiting
from sklearn.model_selection import GridSearchCV, cross_val_score

from jupyter_ddl.cell.options import CellOptions
from jupyter_ddl.client.run import Run
from jupyter_ddl.client.session import session
from jupyter_ddl.errors import FitStoppedError, SpecError
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.protocol.events import FoldFinished, RunStarted
from jupyter_ddl.sklearn_fit.context import distributed_fits
from jupyter_ddl.sklearn_fit.exchange import FitSetting
from tests.until import until

pytestmark = pytest.mark.integration

FOLDER = Path(__file__).parent
X = np.arange(40.0).reshape(20, 2)
Y = np.array([0, 1] * 10)


@pytest.fixture
def shared(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(FOLDER)
    return cluster


def _setting(**options: Any) -> FitSetting:
    return FitSetting(namespace=globals(), folder=FOLDER, **options)


def _grid(estimator: Any, **grid: Any) -> GridSearchCV:
    return GridSearchCV(estimator, grid, cv=4)


def test_stop_keeps_what_is_done_and_resume_computes_the_rest(shared: Any, tmp_path: Path) -> None:
    search = _grid(Waiting(folder=str(tmp_path)), c=[0.0, 0.5, 1.0, 2.0])
    runs: list[Run] = []

    def stop() -> None:
        until(lambda: list(tmp_path.glob("begun-1*")), 60, "a fit that waits begins")
        until(lambda: runs[0].snapshot().counts.complete == 2, 60, "two candidates are finished")
        runs[0].cancel("now")

    stopper = threading.Thread(target=stop)
    stopper.start()
    with (
        pytest.raises(FitStoppedError, match="8 of 16 fits are done"),
        distributed_fits(_setting(on_run=runs.append)),
    ):
        search.fit(X, Y)
    stopper.join()
    assert search.cv_results_["params"] == [{"c": 0.0}, {"c": 0.5}]
    assert search.best_params_ == {"c": 0.0}
    assert not hasattr(search, "best_estimator_")
    assert runs[0].state == "cancelled"
    for file in tmp_path.iterdir():
        file.unlink()
    (tmp_path / "go").touch()
    with distributed_fits(_setting(options=CellOptions(resume=runs[0].id))):
        search.fit(X, Y)
    begun = {path.name.split("-")[1] for path in tmp_path.glob("begun-*")}
    assert begun == {"1.0", "2.0", "0.0"}  # 0.0 is the refit, which is done here
    assert len(list(tmp_path.glob("begun-0.0*"))) == 1
    assert len(search.cv_results_["params"]) == 4
    snapshot = runs[0].snapshot()
    assert (snapshot.state, snapshot.n_trials, snapshot.counts.complete) == ("complete", 4, 4)


def test_a_candidate_that_is_stopped_alone_is_left_out(shared: Any, tmp_path: Path) -> None:
    search = GridSearchCV(Waiting(folder=str(tmp_path)), {"c": [0.0, 1.0, 2.0]}, cv=4)
    runs: list[Run] = []
    refused: list[str] = []

    def stop() -> None:
        try:
            until(lambda: list(tmp_path.glob("begun-1*")), 60, "a fold of it runs")
            runs[0].stop_trial(1)
            until(lambda: runs[0].snapshot().rows[1].state == "cancelled", 10, "it is cancelled")
            # Its folds have ended, or the other's could not run on both workers.
            until(lambda: len(list(tmp_path.glob("begun-2*"))) == 2, 30, "the other one runs")
        finally:
            (tmp_path / "go").touch()
        until(lambda: runs[0].snapshot().rows[2].state == "complete", 60, "the last one is done")
        for number in (1, 2):
            with pytest.raises(SpecError) as error:
                runs[0].stop_trial(number)
            refused.append(error.value.message)

    stopper = threading.Thread(target=stop)
    stopper.start()
    with distributed_fits(_setting(on_run=runs.append)):
        search.fit(X, Y)
        stopper.join()
    assert search.cv_results_["params"] == [{"c": 0.0}, {"c": 2.0}]
    assert (search.best_params_, search.best_estimator_.c) == ({"c": 0.0}, 0.0)
    assert all("is not running" in text for text in refused)
    snapshot = runs[0].snapshot()
    assert [row.state for row in snapshot.rows] == ["complete", "cancelled", "complete"]
    assert (snapshot.state, snapshot.counts.cancelled) == ("complete", 1)
    folds = [e.trial for e in runs[0].events() if isinstance(e, FoldFinished)]
    assert sorted(folds) == [0] * 4 + [2] * 4
    assert audit(runs[0].events()) == []


def test_a_controller_that_is_killed_is_started_again_and_told_the_rest(
    shared: Any, tmp_path: Path
) -> None:
    runs: list[Run] = []

    def kill() -> None:
        until(lambda: list(tmp_path.glob("begun-1*")), 60, "a fit that waits begins")
        until(lambda: runs[0].snapshot().counts.complete == 2, 60, "one candidate is finished")
        os.kill(session().info("test").process.pid, signal.SIGKILL)
        (tmp_path / "go").touch()

    killer = threading.Thread(target=kill)
    killer.start()
    search = _grid(Waiting(folder=str(tmp_path)), c=[0.0, 1.0, 2.0])
    with distributed_fits(_setting(on_run=runs.append)) as fits:
        scores = cross_val_score(Trivial(), X, Y, cv=4)
        search.fit(X, Y)
    killer.join()
    assert len(scores) == 4
    assert not np.isnan(search.cv_results_["mean_test_score"]).any()
    assert fits.run is not None
    snapshot = fits.run.snapshot()
    assert (snapshot.state, snapshot.n_trials, snapshot.counts.complete) == ("complete", 4, 4)
    assert audit(fits.run.events()) == []


def test_a_candidate_that_was_stopped_stays_so_when_the_controller_is_killed(
    shared: Any, tmp_path: Path
) -> None:
    def begun(c: float) -> set[Path]:
        return set(tmp_path.glob(f"begun-{c}-*"))

    def n_sessions() -> int:
        return sum(isinstance(event, RunStarted) for event in runs[0].events())

    runs: list[Run] = []
    before: set[Path] = set()

    def stop_and_kill() -> None:
        try:
            until(lambda: begun(1.0), 60, "a fold of it runs")
            runs[0].stop_trial(1)
            until(lambda: runs[0].snapshot().rows[1].state == "cancelled", 10, "it is cancelled")
            # What was on its way to a worker begins, and is ended then.
            until(lambda: len(begun(2.0)) == 2, 30, "the other one runs on both workers")
            before.update(begun(1.0))
            os.kill(session().info("test").process.pid, signal.SIGKILL)
            until(lambda: n_sessions() == 2, 60, "another controller goes on")
        finally:
            (tmp_path / "go").touch()

    stopper = threading.Thread(target=stop_and_kill)
    stopper.start()
    search = GridSearchCV(Waiting(folder=str(tmp_path)), {"c": [0.0, 1.0, 2.0]}, cv=4)
    with distributed_fits(_setting(on_run=runs.append)):
        search.fit(X, Y)
    stopper.join()
    assert search.cv_results_["params"] == [{"c": 0.0}, {"c": 2.0}]
    assert begun(1.0) == before
    assert [row.state for row in runs[0].snapshot().rows] == ["complete", "cancelled", "complete"]
    assert {e.trial for e in runs[0].events() if isinstance(e, FoldFinished)} == {0, 2}
    assert audit(runs[0].events()) == []
    with distributed_fits(_setting(options=CellOptions(resume=runs[0].id))):
        search.fit(X, Y)
    assert len(search.cv_results_["params"]) == 3
    assert len(begun(1.0) - before) == 4
