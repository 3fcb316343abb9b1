"""``%%distribute fit`` in a real kernel: a cell of the notebook, its view, its errors, a stop."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import jupyter_ddl
from tests.live_kernel import LiveKernel
from tests.until import until

pytestmark = pytest.mark.kernel

SETUP = """
import time
from pathlib import Path
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline

X, y = np.arange(40.0).reshape(20, 2), np.array([0, 1] * 10)
offset = 3

class Shift(TransformerMixin, BaseEstimator):
    def __init__(self, by=0): self.by = by
    def fit(self, X, y=None): return self
    def transform(self, X): return X + self.by + offset

class Constant(ClassifierMixin, BaseEstimator):
    def __init__(self, wait="", c=0): self.wait, self.c = wait, c
    def fit(self, X, y):
        self.classes_, self.low_ = np.unique(y), float(np.min(X))
        if self.wait and self.c:
            Path(self.wait).touch()
            time.sleep(30)
        return self
    def predict(self, X): return np.full(len(X), self.classes_[self.c % 2])

pipe = Pipeline([("shift", Shift()), ("clf", Constant())])
"""


def test_a_cell_runs_here_and_its_fits_on_the_cluster(
    attached_kernel: LiveKernel, tmp_path: Path
) -> None:
    kernel = attached_kernel
    kernel.run(SETUP).check()
    cell = (
        "%%distribute fit -o run\n"
        "search = GridSearchCV(pipe, {'shift__by': [1, 2], 'clf__c': [0, 1, 2]}, cv=4)\n"
        "search.fit(X, y)\n"
        "scores = cross_val_score(pipe, X, y, cv=2)\n"
        "search.best_estimator_['clf'].low_, list(scores)"
    )
    out = kernel.run(cell).check()
    assert out.result == "(4.0, [0.5, 0.5])" or "(4.0" in out.everything
    assert "shift (Shift): 8 fits instead of 24" in out.everything
    assert kernel.value("run.state, len(run.trials)") == "('complete', 7)"
    assert kernel.value("type(search.best_estimator_['shift']) is Shift") == "True"
    assert kernel.value("GridSearchCV.fit.__module__") == "'sklearn.model_selection._search'"
    assert ast.literal_eval(kernel.value("run.id")) in kernel.run("%runs").check().everything

    # An error is the estimator's own, with the cell's line; the next cell works.
    broken = kernel.run("%%distribute fit\nGridSearchCV(pipe, {'clf__d': [1]}).fit(X, y)")
    assert broken.error is not None
    assert broken.error[0] == "FitError"
    assert "did you mean 'clf__c'" in broken.error[1]
    # Scikit-learn's own error comes with its own lines and the cell's, and without ours.
    uneven = kernel.run("%%distribute fit\nGridSearchCV(pipe, {'clf__c': [1]}).fit(X, y[:-1])")
    assert uneven.error is not None
    assert "inconsistent numbers of samples: [20, 19]" in uneven.error[1]
    assert "----> 1 GridSearchCV" in uneven.error[2]
    ours = str(Path(jupyter_ddl.__file__).parent)  # the checkout may have the same name
    assert ours not in uneven.error[2]
    nothing = kernel.run("%%distribute fit\n1 + 1").check()
    assert "nothing went to the cluster" in nothing.everything

    # An interrupt keeps what is done, and --resume computes the rest.
    flag = tmp_path / "begun"
    slow = (
        f"search = GridSearchCV(Constant(wait={str(flag)!r}), {{'c': [0, 1]}}, cv=2, refit=False)\n"
        "search.fit(X, y)\n"
    )
    started = kernel.start("%%distribute fit\n" + slow)
    until(flag.exists, 60, "a fit that waits has begun")
    kernel.interrupt()
    kernel.finish(started, 30, until_text="stopping")
    kernel.interrupt()
    stopped = kernel.finish(started, 60).check()
    assert "Stopped: 2 of 4 fits are done; `--resume " in stopped.everything
    assert kernel.value("search.cv_results_['params']") == "[{'c': 0}]"
    run_id = stopped.everything.partition("--resume ")[2].partition("`")[0]
    kernel.run("Constant.fit = lambda self, X, y: setattr(self, 'classes_', np.unique(y)) or self")
    resumed = kernel.run(f"%%distribute fit --resume {run_id}\n{slow}")
    resumed.check()
    assert kernel.value("len(search.cv_results_['params'])") == "2"
