"""Whatever pipeline is searched, the answer is that of scikit-learn on one process."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from jupyter_ddl.sklearn_fit import context
from tests.unit.sklearn_fit.local_fits import LocalRun, assert_same_results, local_fits

X, Y = make_classification(n_samples=48, n_features=6, random_state=1)

LEAVES = st.sampled_from(
    [
        (StandardScaler(), {"with_mean": [True, False]}),
        (MinMaxScaler(), {"clip": [False, True]}),
        (PCA(random_state=0), {"n_components": [1, 2]}),
        (SelectKBest(), {"k": [1, 2]}),
        (PolynomialFeatures(), {"degree": [1, 2]}),
    ]
)


def _prefixed(name: str, grid: dict[str, Any]) -> dict[str, Any]:
    return {f"{name}__{key}": values for key, values in grid.items()}


@st.composite
def transformers(draw: Any, depth: int = 2) -> tuple[Any, dict[str, Any]]:
    """A transformer and what may be searched in it."""
    kind = draw(st.sampled_from(["leaf", "leaf", "union", "columns", "pipeline"]))
    if kind == "leaf" or not depth:
        return draw(LEAVES)
    inner = draw(st.lists(transformers(depth=depth - 1), min_size=1, max_size=2))
    named = [(f"t{i}", each) for i, (each, _) in enumerate(inner)]
    grid: dict[str, Any] = {}
    for i, (_, each) in enumerate(inner):
        grid |= _prefixed(f"t{i}", each)
    if kind == "union":
        return FeatureUnion(named), grid
    if kind == "pipeline":
        return Pipeline(named), grid
    columns = [([0, 1, 2, 3], slice(2, 6))[i % 2] for i in range(len(named))]
    triples = [(name, each, c) for (name, each), c in zip(named, columns, strict=True)]
    return ColumnTransformer(
        triples, remainder=draw(st.sampled_from(["drop", "passthrough"]))
    ), grid


@st.composite
def searches(draw: Any) -> GridSearchCV:
    steps, grid = [], {}
    for i, (transformer, inner) in enumerate(
        draw(st.lists(transformers(), min_size=1, max_size=3))
    ):
        steps.append((f"s{i}", transformer))
        grid |= _prefixed(f"s{i}", inner)
    final, own = draw(
        st.sampled_from(
            [
                (LogisticRegression(max_iter=50), {"C": [0.1, 1.0]}),
                (DecisionTreeClassifier(random_state=0), {"max_depth": [1, 3]}),
            ]
        )
    )
    steps.append(("final", final))
    # Each squares the number of columns: four in a row would fill the host's memory.
    parts = Pipeline(steps).get_params().values()
    assume(sum(isinstance(part, PolynomialFeatures) for part in parts) <= 2)
    grid |= _prefixed("final", own)
    names = draw(st.lists(st.sampled_from(sorted(grid)), min_size=1, max_size=3, unique=True))
    return GridSearchCV(
        Pipeline(steps),
        {name: grid[name] for name in names},
        cv=2,
        return_train_score=draw(st.booleans()),
        refit=False,
    )


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking fits takes forever
)
@given(search=searches(), bound=st.sampled_from([0, 1 << 40]))
def test_any_search_gives_the_same_results(search: GridSearchCV, bound: int) -> None:
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        expected, error = _fitted(clone(search))
        run = LocalRun(Path(folder), bound)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(context, "FitRun", lambda _: run)
            with local_fits(Path(folder)):
                found, my_error = _fitted(search)
    # Where every fit fails (columns that a step before has dropped), both say so.
    assert my_error.partition("\n")[0] == error.partition("\n")[0]
    if not error:
        assert_same_results(found, expected)


def _fitted(search: GridSearchCV) -> tuple[dict[str, Any], str]:
    try:
        return search.fit(X, Y).cv_results_, ""
    except ValueError as error:
        return {}, str(error).strip()
