"""``cv_results_`` and all that follows from it are those of scikit-learn on one process."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.ensemble import RandomForestClassifier, StackingClassifier, VotingClassifier
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    HalvingGridSearchCV,
    HalvingRandomSearchCV,
    RandomizedSearchCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
    validation_curve,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from tests.unit.sklearn_fit.local_fits import LocalRun, assert_same_results, local_fits

X, Y = make_classification(n_samples=90, n_features=8, n_informative=5, random_state=0)
WORDS = np.array(
    "ship orbit moon launch engine wheel brake clutch road gear".split()  # noqa: SIM905
)
_RNG = np.random.default_rng(0)
TEXTS = [
    " ".join(_RNG.choice(WORDS[:7] if topic else WORDS[3:], size=12)) for topic in (Y[:60] > 0)
]
FRAME = pd.DataFrame(X, columns=[f"c{i}" for i in range(8)]).assign(
    kind=np.where(Y > 0, "a", "b"), text=[TEXTS[i % 60] for i in range(90)]
)


def steps(**final: Any) -> Pipeline:
    return Pipeline(
        [("scale", StandardScaler()), ("pca", PCA(random_state=0)), ("clf", LogisticRegression())]
    ).set_params(**final)


GRID = {"pca__n_components": [2, 3], "clf__C": [0.1, 1.0, 10.0]}


def both(search: Any, local: LocalRun, folder: Path, *data: Any, **params: Any) -> tuple[Any, Any]:
    """The search fitted by scikit-learn alone, and through our context."""
    from sklearn.base import clone

    expected = clone(search).fit(*data, **params)
    found = clone(search)
    with local_fits(folder):
        found.fit(*data, **params)
    assert_same_results(found.cv_results_, expected.cv_results_)
    for name in ("best_index_", "best_score_", "best_params_", "n_splits_", "multimetric_"):
        if hasattr(expected, name):
            assert str(getattr(found, name)) == str(getattr(expected, name)), name
        else:
            assert not hasattr(found, name)
    return found, expected


def test_a_grid_over_a_pipeline_shares_its_prefixes(local: LocalRun, tmp_path: Path) -> None:
    found, expected = both(
        GridSearchCV(steps(), GRID, return_train_score=True), local, tmp_path, X, Y
    )
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    assert local.notes == [
        "scale (StandardScaler): 5 fits instead of 30; pca (PCA): 10 fits instead of 30"
    ]
    assert len(local.nodes) == 15
    assert {node.where for node in local.nodes} == {"memory"}


def test_text_is_vectorized_once_per_range_and_fold(local: LocalRun, tmp_path: Path) -> None:
    pipeline = Pipeline(
        [
            ("vect", CountVectorizer()),
            ("tfidf", TfidfTransformer()),
            ("clf", SGDClassifier(random_state=0)),
        ]
    )
    grid = {
        "vect__ngram_range": [(1, 1), (1, 2)],
        "tfidf__norm": ["l1", "l2"],
        "clf__alpha": [1e-3, 1e-4, 1e-5],
    }
    both(GridSearchCV(pipeline, grid), local, tmp_path, TEXTS, Y[:60])
    assert local.notes == [
        "vect (CountVectorizer): 10 fits instead of 60; "
        "tfidf (TfidfTransformer): 20 fits instead of 60"
    ]


@pytest.mark.parametrize("refit", ["acc", False, lambda results: 2])
def test_several_metrics_and_every_kind_of_refit(
    refit: Any, local: LocalRun, tmp_path: Path
) -> None:
    scoring = {"acc": "accuracy", "loss": "neg_log_loss", "auc": "roc_auc"}
    search = GridSearchCV(steps(), GRID, scoring=scoring, refit=refit, cv=3)
    both(search, local, tmp_path, X, Y)


def test_randomized_and_halving_searches(local: LocalRun, tmp_path: Path) -> None:
    for search in (
        RandomizedSearchCV(steps(), GRID, n_iter=4, random_state=3, cv=3),
        HalvingGridSearchCV(steps(), GRID, random_state=3, cv=3, min_resources=20),
        HalvingRandomSearchCV(steps(), GRID, random_state=3, cv=3, min_resources=30),
    ):
        both(search, local, tmp_path, X, Y)
    assert local.n_batches >= 4


def test_parts_of_unions_are_shared_below_different_unions(local: LocalRun, tmp_path: Path) -> None:
    union = FeatureUnion(
        [("pca", PCA(random_state=0)), ("best", SelectKBest(f_classif))],
        transformer_weights={"pca": 2.0},
    )
    pipeline = Pipeline(
        [("scale", StandardScaler()), ("both", union), ("clf", LogisticRegression())]
    )
    grid = {"both__pca__n_components": [2, 3], "both__best__k": [1, 2, 3], "clf__C": [0.1, 1.0]}
    both(GridSearchCV(pipeline, grid, return_train_score=True, cv=3), local, tmp_path, X, Y)
    assert "both.pca (PCA): 6 fits instead of 36" in local.notes[0]
    assert "both.best (SelectKBest): 9 fits instead of 36" in local.notes[0]


def test_parts_of_column_transformers_with_pipelines_inside(
    local: LocalRun, tmp_path: Path
) -> None:
    numbers = Pipeline(
        [("impute", SimpleImputer()), ("scale", StandardScaler()), ("pca", PCA(random_state=0))]
    )
    columns = ColumnTransformer(
        [
            ("numbers", numbers, [f"c{i}" for i in range(8)]),
            ("kind", OneHotEncoder(), ["kind"]),
            ("text", TfidfVectorizer(), "text"),
        ]
    )
    pipeline = Pipeline([("columns", columns), ("clf", LogisticRegression())])
    grid = {
        "columns__numbers__pca__n_components": [2, 3],
        "columns__text__ngram_range": [(1, 1), (1, 2)],
        "clf__C": [0.1, 1.0],
    }
    both(GridSearchCV(pipeline, grid, return_train_score=True, cv=3), local, tmp_path, FRAME, Y)
    assert "columns.text (TfidfVectorizer): 6 fits instead of 24" in local.notes[0]
    assert "columns.numbers.impute (SimpleImputer): 3 fits instead of 24" in local.notes[0]


def test_what_a_prefix_draws_at_random_is_not_shared(local: LocalRun, tmp_path: Path) -> None:
    pipeline = Pipeline([("svd", TruncatedSVD(3)), ("clf", LogisticRegression())])
    search = GridSearchCV(pipeline, {"clf__C": [0.1, 1.0, 10.0]}, cv=3)
    with local_fits(tmp_path):
        search.fit(X, Y)
    assert [node.reason for node in local.nodes] == ["random"] * 3
    both(
        search.set_params(estimator__svd__random_state=np.random.RandomState(1)),
        local,
        tmp_path,
        X,
        Y,
    )
    assert [node.reason for node in local.nodes[3:]] == [""] * 3


def test_a_prefix_that_fails_fails_for_every_candidate_that_has_it(
    local: LocalRun, tmp_path: Path
) -> None:
    pipeline = Pipeline([("pca", PCA(random_state=0)), ("clf", LogisticRegression())])
    grid = {"pca__n_components": [2, 500], "clf__C": [0.1, 1.0]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both(GridSearchCV(pipeline, grid, cv=3), local, tmp_path, X, Y)
    assert [node.reason for node in local.nodes].count("failed") == 3
    with pytest.raises(ValueError, match="n_components=500"), local_fits(tmp_path):
        GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(X, Y)


def test_groups_weights_sparse_rows_and_frames(local: LocalRun, tmp_path: Path) -> None:
    groups = np.arange(90) % 6
    weights = np.linspace(0.1, 2.0, 90)
    search = GridSearchCV(steps(), GRID, cv=GroupKFold(3))
    both(search, local, tmp_path, X, Y, groups=groups, clf__sample_weight=weights)
    both(search, local, tmp_path, X, Y, groups=groups, scale__sample_weight=weights)
    both(search, local, tmp_path, pd.DataFrame(X), pd.Series(Y), groups=groups)
    sparse = make_pipeline(SelectKBest(f_classif), LogisticRegression())
    grid = {"selectkbest__k": [2, 3], "logisticregression__C": [0.1, 1.0]}
    both(GridSearchCV(sparse, grid, cv=3), local, tmp_path, sp.csr_matrix(X), Y)


def test_steps_that_do_nothing_and_steps_that_are_searched(local: LocalRun, tmp_path: Path) -> None:
    grid = [
        {"scale": [StandardScaler(), "passthrough"], "clf__C": [0.1, 1.0]},
        {
            "pca": [PCA(2, random_state=0), None],
            "clf": [DecisionTreeClassifier(random_state=0), LinearSVC()],
        },
    ]
    both(GridSearchCV(steps(), grid, cv=3), local, tmp_path, X, Y)


def test_a_scorer_that_looks_inside_finds_the_real_transformers(
    local: LocalRun, tmp_path: Path
) -> None:
    def inside(estimator: Any, rows: Any, y: Any) -> float:
        assert isinstance(estimator["pca"], PCA)
        halfway = estimator[:1].transform(rows)  # a slice wants real outputs, not stand-ins
        ratio = estimator["pca"].explained_variance_ratio_.sum()
        return float(
            ratio + halfway.mean() + estimator["scale"].mean_[0] + estimator.score(rows, y)
        )

    both(GridSearchCV(steps(), GRID, cv=3, scoring=inside), local, tmp_path, X, Y)


def test_returned_estimators_are_whole(local: LocalRun, tmp_path: Path) -> None:
    grid = {"clf__C": [0.1, 1.0]}
    expected = cross_validate(steps(), X, Y, return_estimator=True, cv=3, return_train_score=True)
    with local_fits(tmp_path):
        found = cross_validate(steps(), X, Y, return_estimator=True, cv=3, return_train_score=True)
        GridSearchCV(steps(), grid, cv=3).fit(X, Y)
    for mine, theirs in zip(found["estimator"], expected["estimator"], strict=True):
        assert type(mine["scale"]) is StandardScaler
        assert mine.memory is None
        np.testing.assert_array_equal(mine.predict_proba(X), theirs.predict_proba(X))
    np.testing.assert_array_equal(found["train_score"], expected["train_score"])


def test_cross_validation_and_curves(local: LocalRun, tmp_path: Path) -> None:
    def everything() -> list[Any]:
        return [
            cross_val_score(steps(), X, Y, cv=4),
            cross_val_predict(steps(), X, Y, cv=4, method="predict_proba"),
            *learning_curve(steps(), X, Y, cv=3, train_sizes=[0.5, 1.0]),
            *validation_curve(steps(), X, Y, param_name="clf__C", param_range=[0.1, 1.0], cv=3),
        ]

    expected = everything()
    with local_fits(tmp_path):
        found = everything()
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert local.n_batches == 4


def test_ensembles_and_one_vs_rest(local: LocalRun, tmp_path: Path) -> None:
    def everything() -> list[Any]:
        tree = DecisionTreeClassifier(random_state=0)
        models = [
            RandomForestClassifier(12, random_state=0, n_jobs=2),
            VotingClassifier([("a", tree), ("b", LogisticRegression())], voting="soft", n_jobs=2),
            StackingClassifier([("a", tree), ("b", LogisticRegression())], cv=3, n_jobs=2),
            OneVsRestClassifier(LinearSVC(), n_jobs=2),
        ]
        return [model.fit(X, Y).predict(X) for model in models]

    expected = everything()
    with local_fits(tmp_path):
        found = everything()
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert local.n_batches >= 4


def test_regression_and_functions_of_the_test(local: LocalRun, tmp_path: Path) -> None:
    doubled = FunctionTransformer(lambda rows: rows * 2)
    pipeline = make_pipeline(doubled, StandardScaler(), Ridge())
    both(
        GridSearchCV(pipeline, {"ridge__alpha": [0.1, 1.0, 9.0]}, cv=3), local, tmp_path, X, X[:, 0]
    )


def test_outputs_beyond_the_bound_are_spilled_or_computed_again(
    local: LocalRun, tmp_path: Path
) -> None:
    local.bound_bytes = 0
    both(GridSearchCV(steps(), GRID, cv=3), local, tmp_path, X, Y)
    assert {node.where for node in local.nodes} <= {"disk", "nowhere"}


def test_multinomial_counts(local: LocalRun, tmp_path: Path) -> None:
    pipeline = make_pipeline(CountVectorizer(), MultinomialNB())
    grid = {"countvectorizer__binary": [True, False], "multinomialnb__alpha": [0.1, 1.0]}
    both(
        GridSearchCV(pipeline, grid, cv=3, return_train_score=True), local, tmp_path, TEXTS, Y[:60]
    )
