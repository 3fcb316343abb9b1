"""An estimator that takes its time; it travels to the ranks as a module beside the tests."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin


class Slow(ClassifierMixin, BaseEstimator):
    """Predicts one class after ``wait_s``."""

    def __init__(self, c: int = 0, wait_s: float = 0.0) -> None:
        self.c = c
        self.wait_s = wait_s

    def fit(self, rows: Any, y: Any) -> Slow:
        time.sleep(self.wait_s)
        self.classes_ = np.unique(y)
        return self

    def predict(self, rows: Any) -> Any:
        return np.full(len(rows), self.classes_[self.c % len(self.classes_)])
