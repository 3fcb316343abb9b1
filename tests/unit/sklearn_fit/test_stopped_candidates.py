"""A candidate that is stopped alone: the search goes on, and leaves it out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import GridSearchCV, HalvingGridSearchCV, cross_validate
from sklearn.tree import DecisionTreeClassifier

from jupyter_ddl.errors import FitStoppedError
from tests.unit.sklearn_fit.local_fits import LocalRun, assert_same_results, local_fits

X, Y = make_classification(n_samples=90, n_features=8, n_informative=5, random_state=0)


def two_scores(estimator: Any, rows: Any, y: Any) -> dict[str, float]:
    accuracy = float(estimator.score(rows, y))
    return {"accuracy": accuracy, "error": 1 - accuracy}


@pytest.mark.parametrize(
    "options",
    [
        {"error_score": "raise"},
        {"scoring": ["accuracy", "f1"], "refit": "f1", "return_train_score": True},
        {"scoring": two_scores, "refit": "accuracy"},
    ],
)
def test_the_results_are_those_of_a_search_without_it(
    local: LocalRun, tmp_path: Path, options: dict[str, Any]
) -> None:
    tree = DecisionTreeClassifier(random_state=0)
    expected = GridSearchCV(tree, {"max_depth": [2, 3]}, cv=3, **options).fit(X, Y)
    local.stopped = (0,)
    search = GridSearchCV(tree, {"max_depth": [1, 2, 3]}, cv=3, **options)
    with local_fits(tmp_path):
        search.fit(X, Y)
    assert local.n_units == 6
    assert_same_results(search.cv_results_, expected.cv_results_)
    assert (search.best_index_, search.best_params_) == (
        expected.best_index_,
        expected.best_params_,
    )
    assert search.best_score_ == expected.best_score_
    assert search.multimetric_ == expected.multimetric_


def test_a_halving_search_goes_on_with_the_others(local: LocalRun, tmp_path: Path) -> None:
    tree = DecisionTreeClassifier(random_state=0)
    local.stopped = (3,)
    search = HalvingGridSearchCV(
        tree, {"max_depth": [1, 2, 3, 4, 5, 6]}, cv=3, factor=2, random_state=0
    )
    with local_fits(tmp_path):
        search.fit(X, Y)
    results = search.cv_results_
    assert {"max_depth": 4} not in results["params"]
    assert {len(column) for column in results.values()} == {len(results["params"])}
    assert results["iter"].tolist() == sorted(results["iter"])
    assert results["iter"][-1] == 2
    assert not np.isnan(results["mean_test_score"]).any()


def test_nothing_is_left_when_all_are_stopped(local: LocalRun, tmp_path: Path) -> None:
    local.stopped = (0, 1)
    search = GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1, 2]}, cv=3)
    with pytest.raises(FitStoppedError, match="all its candidates"), local_fits(tmp_path):
        search.fit(X, Y)
    assert local.ended == "cancelled"


def test_a_cross_validation_has_no_score_for_its_folds(local: LocalRun, tmp_path: Path) -> None:
    local.stopped = (0,)
    with local_fits(tmp_path):
        found = cross_validate(DecisionTreeClassifier(), X, Y, cv=3, scoring=["accuracy", "f1"])
    assert np.isnan(found["test_accuracy"]).tolist() == [True] * 3
    assert np.isnan(found["test_f1"]).tolist() == [True] * 3
