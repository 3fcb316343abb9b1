"""``%%distribute fit``: the cell runs in the kernel, its fits on pods that see no file of it."""

from __future__ import annotations

import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from jupyter_ddl import runs
from jupyter_ddl.client.run import Run
from jupyter_ddl.sklearn_fit.fit_api import fit
from tests.kube.kube_tools import start_kube

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]


def test_a_grid_search_finds_on_pods_what_it_finds_here(namespace: str) -> None:
    x, y = load_digits(return_X_y=True)
    x, y = x[:400] / 16, y[:400]
    pipeline = make_pipeline(PCA(random_state=0), LogisticRegression(max_iter=300))
    grid = {"pca__n_components": [8, 16], "logisticregression__C": [0.1, 1.0, 10.0]}
    here = GridSearchCV(pipeline, grid, cv=3).fit(x, y)

    start_kube(namespace, 2)
    there = fit(GridSearchCV(pipeline, grid, cv=3), x, y)
    assert there.best_params_ == here.best_params_
    scores = there.cv_results_["mean_test_score"]
    assert scores == pytest.approx(here.cv_results_["mean_test_score"], abs=1e-6)
    (summary,) = runs()
    run = Run(summary.run_id)
    assert (run.state, run.snapshot().counts.complete) == ("complete", 6)
