"""Fits on a real cluster: the answer, the record, deaths, stops and resumes."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fit_models import (
    Changing,
    Counting,
    Dying,
    Greedy,
    Locked,
    NotAllowedError,
    Refusing,
    Talking,
    Trivial,
    Verbose,
    Waiting,
    no_number,
)
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score, validation_curve
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer

import jupyter_ddl
from jupyter_ddl.cell.options import CellOptions
from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import CaptureError, FitError
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.protocol.events import FoldFinished
from jupyter_ddl.protocol.view_messages import GetLog
from jupyter_ddl.sklearn_fit.context import distributed_fits
from jupyter_ddl.sklearn_fit.exchange import FitSetting
from jupyter_ddl.views.answers import log_part
from tests.run_tools import worker_of
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration

FOLDER = Path(__file__).parent
X = np.arange(40.0).reshape(20, 2)
Y = np.array([0, 1] * 10)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)


@pytest.fixture
def shared(cluster: Any, here: None) -> Any:
    return cluster


def _setting(**options: Any) -> FitSetting:
    return FitSetting(namespace=globals(), folder=FOLDER, **options)


def _grid(estimator: Any, **grid: Any) -> GridSearchCV:
    return GridSearchCV(estimator, grid, cv=4)


def test_a_cell_of_fits_is_one_run_with_candidates_as_trials(shared: Any, tmp_path: Path) -> None:
    pipeline = Pipeline([("count", Counting(str(tmp_path))), ("clf", Trivial())])
    grid = {"count__power": [1, 2], "clf__c": [0.0, 1.0, 2.0]}
    expected = GridSearchCV(
        Pipeline([("count", Counting(str(tmp_path))), ("clf", Trivial())]), grid, cv=4
    )
    expected.fit(X, Y)
    for file in tmp_path.iterdir():
        file.unlink()
    before = joblib.Parallel.__call__, GridSearchCV.fit
    search = GridSearchCV(pipeline, grid, cv=4, refit=False)
    with distributed_fits(_setting(options=CellOptions(name="a test"))) as fits:
        assert joblib.Parallel.__call__ is not before[0]
        search.fit(X, Y)
        scores = cross_val_score(Trivial(), X, Y, cv=2)
        forest = RandomForestClassifier(6, random_state=0, n_jobs=2).fit(X, Y)
    assert (joblib.Parallel.__call__, GridSearchCV.fit) == before
    # Each prefix was fitted once per fold, wherever that was.
    assert sorted(p.name[:5] for p in tmp_path.iterdir()) == ["fit-1"] * 4 + ["fit-2"] * 4
    for name in ("mean_test_score", "rank_test_score", "split3_test_score"):
        np.testing.assert_array_equal(search.cv_results_[name], expected.cv_results_[name])
    np.testing.assert_array_equal(scores, [0.5, 0.5])
    np.testing.assert_array_equal(
        forest.predict(X), RandomForestClassifier(6, random_state=0).fit(X, Y).predict(X)
    )
    run = fits.run
    assert run is not None
    snapshot = run.snapshot()
    assert (snapshot.verb, snapshot.state, snapshot.n_trials) == ("fit", "complete", 8)
    assert snapshot.counts.complete == 8
    assert snapshot.notices == ("count (Counting): 8 fits instead of 24",)
    rows = snapshot.rows
    assert rows[0].params == {"clf__c": 0.0, "count__power": 1}
    assert [row.value for row in rows[:6]] == [0.5] * 6
    assert rows[7].params == {"parallel": "parallel_build_trees", "calls": 6}
    assert _outputs(run.id) == []


def _outputs(run_id: str) -> list[Path]:
    from jupyter_ddl.store.paths import blob_dirs, run_dir

    folders = (*blob_dirs(), run_dir(run_id) / "spill")
    return [path for folder in folders for path in folder.glob(f"fit-{run_id}-*")]


def test_a_refit_is_no_candidate_and_each_fold_has_what_it_printed(shared: Any) -> None:
    parts = [("a", FunctionTransformer()), ("b", FunctionTransformer())]
    union = FeatureUnion(parts, n_jobs=2)
    search = _grid(Pipeline([("union", union), ("clf", Talking())]), clf__c=[0.0, 1.0])
    with distributed_fits(_setting()) as fits:
        search.fit(X, Y)
    run = fits.run
    assert run is not None
    snapshot = run.snapshot()
    assert (snapshot.n_trials, snapshot.counts.complete) == (2, 2)
    assert "complete, 2 of 2" in repr(run)
    assert snapshot.rows[2].params == {"refit": "fit_transform_one", "calls": 2}
    lines = run.logs(1).splitlines()
    assert lines[::2] == [f"── fold {n} of 4" for n in range(4)]
    assert lines[1::2] == ["c is 1.0, 15 rows"] * 4
    shown = log_part(fold_all(run.events()), run.directory, GetLog(1, run.id, trial=1)).lines
    assert shown[::2] == tuple(f"── fold {n}" for n in range(4))
    assert shown[1::2] == ("c is 1.0, 15 rows",) * 4


def test_a_fold_whose_worker_is_killed_is_computed_again(shared: Any, tmp_path: Path) -> None:
    def kill() -> None:
        begun = until(lambda: list(tmp_path.glob("begun-*")), 60, "a fit begins")
        rank = psutil.Process(int(begun[0].name.split("-")[2]))
        worker = worker_of(rank.pid)
        os.kill(worker.pid, signal.SIGKILL)
        (tmp_path / "go").touch()

    killer = threading.Thread(target=kill)
    killer.start()
    search = _grid(Waiting(folder=str(tmp_path)), c=[1.0, 2.0])
    with distributed_fits(_setting()) as fits:
        search.fit(X, Y)
    killer.join()
    assert not np.isnan(search.cv_results_["mean_test_score"]).any()
    assert fits.run is not None
    assert any("a worker was lost" in text for text in fits.run.snapshot().notices)
    folds = [e for e in fits.run.events() if isinstance(e, FoldFinished)]
    assert sorted((e.trial, e.fold) for e in folds) == [(c, f) for c in (0, 1) for f in range(4)]


def test_a_process_that_dies_is_a_failed_fold_with_its_reason(shared: Any) -> None:
    search = _grid(Dying(), c=[0.0, 1.0])
    with distributed_fits(_setting()) as fits, pytest.warns() as warned:
        search.fit(X, Y)
    assert any("fits failed" in str(each.message) for each in warned)
    means = search.cv_results_["mean_test_score"]
    assert means[0] == 0.5
    assert np.isnan(means[1])
    assert fits.run is not None
    row = fits.run.snapshot().rows[1]
    assert row.state == "failed"
    assert row.failure is not None
    assert "4 of 4 folds failed" in row.failure.message
    assert row.failure.type_name == "SIGABRT"
    search.error_score = "raise"
    with pytest.raises(FitError, match="was lost: SIGABRT"), distributed_fits(_setting()):
        search.fit(X, Y)


def test_a_fold_that_takes_too_much_memory_says_so(home: Any, here: None) -> None:
    cluster = jupyter_ddl.start_cluster(n_workers=1, name="small", memory_bytes=500 << 20)
    try:
        search = GridSearchCV(Greedy(), {"c": [0.0, 1.0]}, cv=2)
        with distributed_fits(_setting()) as fits, pytest.warns() as warned:
            search.fit(X, Y)
        assert any("over the limit" in str(each.message) for each in warned)
        assert search.cv_results_["mean_test_score"][0] == 0.5
        assert fits.run is not None
        failure = fits.run.snapshot().rows[1].failure
        assert failure is not None
        assert failure.kind == "memory"
    finally:
        cluster.stop()


def test_equal_parameters_and_folds_are_fits_of_their_own(shared: Any) -> None:
    """What waits for its record is known by its place in the batch, not by what it computes."""
    values = [0.0, 0.0, 1.0, 1.0]
    same_fold = [(range(10), range(10, 20))] * 12

    def scores() -> tuple[Any, Any]:
        curve = validation_curve(Trivial(), X, Y, param_name="c", param_range=values, cv=2)
        return curve, cross_val_score(Trivial(), X, Y, cv=same_fold)

    expected = scores()
    with distributed_fits(_setting(options=CellOptions(timeout_s=60.0))) as fits:
        found = scores()
    np.testing.assert_array_equal(np.array(found[0]), np.array(expected[0]))
    np.testing.assert_array_equal(found[1], expected[1])
    assert fits.run is not None
    folds = [(e.trial, e.fold) for e in fits.run.events() if isinstance(e, FoldFinished)]
    assert sorted(folds) == [(t, f) for t, n in ((0, 4), (1, 4), (2, 12)) for f in range(n)]


def test_bad_input_is_refused_before_anything_is_sent(shared: Any) -> None:
    def run_of(search: Any, *data: Any) -> Any:
        with distributed_fits(_setting()) as fits:
            try:
                search.fit(*(data or (X, Y)))
            finally:
                assert fits.run is None

    def refused(match: str, error: type[Exception], search: Any, *data: Any) -> None:
        with pytest.raises(error, match=match) as raised:
            run_of(search, *data)
        assert "\n" not in str(raised.value)

    pipeline = Pipeline([("clf", Trivial())])
    refused(r"'clf__cc'.*did you mean 'clf__c'", FitError, _grid(pipeline, clf__cc=[1.0, 2.0]))
    refused(r"'cfl__c'.*did you mean 'clf__c'", FitError, _grid(pipeline, cfl__c=[1.0]))
    refused(r"'svm__gamma'.* it has memory, steps", FitError, _grid(pipeline, svm__gamma=[1.0]))
    refused("Cannot clone object Changing.* parameter c", RuntimeError, _grid(Changing(), c=[1.0]))
    unclonable = Trivial(c=threading.Lock())  # type: ignore[arg-type]
    refused(r"estimator\.c, .*_thread\.lock", CaptureError, _grid(unclonable, c=[1.0]))
    grid = _grid(Trivial(), c=[1.0, threading.Lock()])
    refused(r"param_grid\['c'\]\[1\], .*_thread\.lock", CaptureError, grid)
    refused(r"estimator\.lock_, .*_thread\.lock", CaptureError, _grid(Locked(), c=[1.0]))
    locks = [threading.Lock() for _ in Y]
    refused(r"X\[0\].*_thread\.lock", CaptureError, _grid(Trivial(), c=[1.0]), locks, Y)
    refused("inconsistent numbers of samples", ValueError, _grid(Trivial(), c=[1.0]), X, Y[:-1])
    used_up = GridSearchCV(Trivial(), {"c": [0.0]}, cv=iter(()))
    refused("No fits were performed", ValueError, used_up)


def test_what_raises_in_a_fold_raises_here_and_leaves_nothing_running(shared: Any) -> None:
    search = GridSearchCV(Trivial(), {"c": [0.0, 1.0]}, cv=2, scoring=no_number)
    beyond = GridSearchCV(Trivial(), {"c": [0.0, 1.0]}, cv=[(range(10), range(10, 30))])
    for raising, error, match in (
        (search, ValueError, "scoring must return a number, got very good"),
        (beyond, IndexError, "index 20 is out of bounds"),
    ):
        with pytest.raises(error, match=match) as raised, distributed_fits(_setting()) as fits:
            raising.fit(X, Y)
        assert "\n" not in str(raised.value)
        assert fits.run is not None
        assert fits.run.state == "failed"
        until(lambda: not shared.status().active_runs, 20, "no run is active")
        assert [worker.n_busy for worker in shared.status().workers] == [0, 0]
    with distributed_fits(_setting()) as fits:
        with pytest.raises(ValueError, match="scoring must return a number"):
            search.fit(X, Y)
        # A generator of folds is read once, and used for every candidate.
        folds = (each for each in [(range(10), range(10, 20)), (range(10, 20), range(10))])
        again = GridSearchCV(Trivial(), {"c": [0.0, 1.0]}, cv=folds, refit=False).fit(X, Y)
    np.testing.assert_array_equal(again.cv_results_["mean_test_score"], [0.5, 0.5])
    assert fits.run is not None
    assert fits.run.state == "complete"


def test_the_first_unit_that_raises_does_so_here_and_with_what_it_has(shared: Any) -> None:
    one_fold = [(range(10), range(10, 20))]
    search = GridSearchCV(Refusing(), {"c": [0.0, 1.0]}, cv=one_fold, error_score="raise")
    with pytest.raises(NotAllowedError) as raised, distributed_fits(_setting()):
        search.fit(X, Y)
    assert (str(raised.value), raised.value.c) == ("0.0 is not allowed", 0.0)
    assert "in fit\n    raise NotAllowedError(c=self.c)" in str(raised.value.__cause__)


def test_what_units_print_verbosely_comes_into_the_cell(shared: Any, capfd: Any) -> None:
    def printed(search: Any) -> list[str]:
        with distributed_fits(_setting()):
            search.fit(X, Y)
        return sorted(capfd.readouterr().out.splitlines())

    said = [f"c is {c}, 15 rows" for c in (0.0, 1.0) for _ in range(4)]
    refit = "c is 0.0, 20 rows"
    assert printed(_grid(Talking(), c=[0.0, 1.0])) == [refit]
    assert printed(_grid(Verbose(verbose=1), c=[0.0, 1.0])) == sorted([*said, refit])
    lines = printed(_grid(Trivial(), c=[0.0]).set_params(verbose=3))
    assert lines[0] == "Fitting 4 folds for each of 1 candidates, totalling 4 fits"
    assert [line[:12] for line in lines[1:]] == [f"[CV {n}/4] END" for n in range(1, 5)]


def test_dask_collections_are_computed_and_too_large_ones_refused(shared: Any) -> None:
    import dask
    import dask.array as da

    rows, y = da.from_array(X, chunks=5), dask.delayed(lambda: Y)()
    with distributed_fits(_setting()):
        search = _grid(Trivial(), c=[0.0, 1.0]).fit(rows, y)
        scores = cross_val_score(Trivial(), rows, y, cv=2)
    assert search.best_score_ == 0.5
    np.testing.assert_array_equal(scores, [0.5, 0.5])
    huge = da.zeros((1 << 40, 2))
    with (
        pytest.raises(FitError, match=r"Dask array of .* was to be fitted"),
        distributed_fits(_setting()),
    ):
        _grid(Trivial(), c=[0.0]).fit(huge, y)


def test_the_twin_fits_and_returns_the_search(shared: Any) -> None:
    snapshots: list[Any] = []
    search = jupyter_ddl.fit(_grid(Trivial(), c=[0.0, 1.0]), X, Y, on_snapshot=snapshots.append)
    assert search.best_score_ == 0.5
    assert snapshots[-1].state == "complete"


def test_the_end_of_the_feeding_process_ends_its_run(
    shared: Any, tmp_path: Path, home: Any
) -> None:
    import subprocess

    (tmp_path / "go").touch()
    code = (
        "import os\n"
        "import numpy as np\n"
        "from fit_models import Trivial\n"
        "from sklearn.model_selection import GridSearchCV\n"
        "import jupyter_ddl\n"
        "jupyter_ddl.attach_cluster('test')\n"
        "X, y = np.arange(40.0).reshape(20, 2), [0, 1] * 10\n"
        "seen = []\n"
        "def die(snapshot):\n"
        "    print(snapshot.run_id, flush=True)\n"
        "    os._exit(3)\n"
        "jupyter_ddl.fit(GridSearchCV(Trivial(), {'c': [0., 1.]}, cv=4), X, y, on_snapshot=die)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 3, done.stderr
    run = Run(done.stdout.split()[0])
    until(lambda: run.state == "cancelled", 30, "the run ends")
    assert "kernel ended" in run.snapshot().reason
