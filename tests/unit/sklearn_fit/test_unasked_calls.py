"""Calls with ``n_jobs`` left out that are no folds: made here, unless they are seen to be long."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.decomposition import sparse_encode
from sklearn.ensemble import VotingClassifier
from sklearn.pipeline import make_union
from sklearn.preprocessing import StandardScaler

from jupyter_ddl.sklearn_fit import context
from tests.unit.sklearn_fit.local_fits import LocalRun, local_fits

X = np.arange(24.0).reshape(8, 3)
Y = np.array([0, 1] * 4)


class Clock:
    """The time as fits here spend it."""

    now_s = 0.0


class Slow(TransformerMixin, ClassifierMixin, BaseEstimator):
    """Takes its time to fit."""

    def __init__(self, seconds: float = 1.5) -> None:
        self.seconds = seconds

    def fit(self, rows: Any, y: Any = None) -> Slow:
        Clock.now_s += self.seconds
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, rows: Any) -> Any:
        return np.zeros(len(rows), int)

    def transform(self, rows: Any) -> Any:
        return rows


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock.now_s = 0.0
    monkeypatch.setattr(context, "time", SimpleNamespace(monotonic=lambda: Clock.now_s))


def _voting(seconds: float, n_jobs: int | None = None) -> VotingClassifier:
    return VotingClassifier([(name, Slow(seconds)) for name in "abcd"], n_jobs=n_jobs)


def test_nothing_takes_a_parallel_path_unasked(local: LocalRun, tmp_path: Path) -> None:
    scaler, seen = StandardScaler(), []
    rows, words = X.astype(np.float32), np.eye(3, dtype=np.float32)
    expected = sparse_encode(rows, words, algorithm="lasso_cd")
    with local_fits(tmp_path):
        make_union(scaler).fit(X)
        found = sparse_encode(rows, words, algorithm="lasso_cd")
        joblib.Parallel()(joblib.delayed(seen.append)(number) for number in range(3))
        assert joblib.effective_n_jobs(None) == 1
    np.testing.assert_array_equal(scaler.mean_, X.mean(axis=0))
    assert found.dtype == expected.dtype
    assert seen == [0, 1, 2]
    assert local.n_batches == 0


@pytest.mark.parametrize(
    ("seconds", "n_jobs", "n_sent"), [(1.5, None, 3), (0.5, None, 0), (1.5, 1, 0), (0.1, 2, 4)]
)
def test_what_is_left_of_long_calls_goes(
    seconds: float, n_jobs: int | None, n_sent: int, local: LocalRun, tmp_path: Path
) -> None:
    with local_fits(tmp_path):
        voting = _voting(seconds, n_jobs).fit(X, Y)
    assert [type(each) for each in voting.estimators_] == [Slow] * 4
    np.testing.assert_array_equal(voting.predict(X), np.zeros(8))
    assert sum(len(batch.units) for batch in local.batches) == n_sent


def test_a_union_fits_the_transformers_that_it_was_given(local: LocalRun, tmp_path: Path) -> None:
    parts = [Slow(), Slow(9.0), Slow()]
    with local_fits(tmp_path):
        make_union(*parts).fit(X)
    assert all(hasattr(part, "classes_") for part in parts)
    assert local.n_batches == 0
