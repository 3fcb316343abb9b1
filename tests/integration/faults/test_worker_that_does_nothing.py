"""A worker that beats, takes a trial, and does nothing with it: the trial goes elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import GridSearchCV

from jupyter_ddl.client.dask_client import connect_client
from jupyter_ddl.client.session import session
from jupyter_ddl.protocol.cluster import ClusterSpec
from jupyter_ddl.protocol.events import FoldFinished, Notice
from jupyter_ddl.sklearn_fit.context import distributed_fits
from jupyter_ddl.sklearn_fit.exchange import FitSetting
from tests.leaks import Home
from tests.run_tools import STEPS, assert_clean, outcomes, start_search, workers
from tests.until import PATIENCE_S, until

pytestmark = pytest.mark.integration


def break_one(answers: bool) -> None:
    """Have one of two workers take what it is sent, and do nothing with it."""

    def fall_out(answers, dask_worker):  # type: ignore[no-untyped-def]
        async def never(*_args, **_options):  # type: ignore[no-untyped-def]
            import asyncio

            await asyncio.Event().wait()

        dask_worker.plugins["jupyter_ddl"].execute = never
        if not answers:
            dask_worker.handlers["run"] = never

    with connect_client() as client:
        broken, _ = sorted(client.scheduler_info(n_workers=-1)["workers"])
        client.run(fall_out, answers, workers=[broken])


@pytest.mark.parametrize("answers", [True, False], ids=["it denies", "it answers nobody"])
def test_its_trial_is_repeated_elsewhere_and_it_is_replaced(stopping: Home, answers: bool) -> None:
    session().start(ClusterSpec(name="test", n_workers=2, worker_timeout_s=5.0))
    before = {process.pid for process in workers()}
    break_one(answers)
    run = start_search(STEPS, 6, seed=3)
    run.wait(PATIENCE_S)
    assert run.state == "complete"
    assert_clean(run, 6)
    ends = outcomes(run, "evicted")
    assert 1 <= len(ends) <= 2, "a second one may have waited behind it"
    for end in ends:
        assert end.failure is not None
        assert end.failure.type_name == "LeaseOver"
    told = [event.text for event in run.events() if isinstance(event, Notice)]
    assert len([text for text in told if "lives, and has not said" in text]) == len(ends)
    replaced = until(
        lambda: (now := {process.pid for process in workers()}) != before and len(now) == 2 and now,
        30.0,
        "a worker in its place",
    )
    assert len(replaced & before) == 1


def test_its_fits_are_done_again_elsewhere(stopping: Home) -> None:
    session().start(ClusterSpec(name="test", n_workers=2, worker_timeout_s=5.0))
    break_one(answers=True)
    rows, labels = np.arange(40.0).reshape(20, 2), np.array([0, 1] * 10)
    search = GridSearchCV(DummyClassifier(), {"random_state": [0, 1, 2]}, cv=4)
    with distributed_fits(FitSetting(namespace={}, folder=Path(__file__).parent)) as fits:
        search.fit(rows, labels)
    assert not np.isnan(search.cv_results_["mean_test_score"]).any()
    assert fits.run is not None
    folds = [e for e in fits.run.events() if isinstance(e, FoldFinished)]
    assert sorted((e.trial, e.fold) for e in folds) == [(c, f) for c in range(3) for f in range(4)]
    told = [event.text for event in fits.run.events() if isinstance(event, Notice)]
    assert any("lives, and has not said" in text for text in told), told
