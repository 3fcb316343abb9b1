"""Estimators for the tests of this folder; they travel to the ranks as a module beside it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin

DEADLINE_S = 120.0


class Trivial(ClassifierMixin, BaseEstimator):
    """Predicts one class; takes no time."""

    def __init__(self, c: float = 1.0) -> None:
        self.c = c

    def fit(self, rows: Any, y: Any) -> Trivial:
        self.classes_ = np.unique(y)
        return self

    def predict(self, rows: Any) -> Any:
        return np.full(len(rows), self.classes_[int(self.c) % len(self.classes_)])


class Talking(Trivial):
    """Says what it is fitted with."""

    def fit(self, rows: Any, y: Any) -> Talking:
        print(f"c is {self.c}, {len(rows)} rows")
        super().fit(rows, y)
        return self


class Verbose(Talking):
    """Says so when it is told to."""

    def __init__(self, c: float = 1.0, verbose: int = 0) -> None:
        super().__init__(c)
        self.verbose = verbose


class Waiting(Trivial):
    """Tells by a file that a fit has begun, and waits for ``go``."""

    def __init__(self, c: float = 1.0, folder: str = "") -> None:
        super().__init__(c)
        self.folder = folder

    def fit(self, rows: Any, y: Any) -> Waiting:
        folder = Path(self.folder)
        (folder / f"begun-{self.c}-{os.getpid()}-{time.monotonic_ns()}").touch()
        deadline = time.monotonic() + DEADLINE_S
        while self.c >= 1 and not (folder / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        super().fit(rows, y)
        return self


class Greedy(Trivial):
    """Candidate 1 takes more memory than a slot has."""

    def fit(self, rows: Any, y: Any) -> Greedy:
        if self.c == 1:
            hoard = []
            deadline = time.monotonic() + DEADLINE_S
            while time.monotonic() < deadline:
                hoard.append(np.ones(4 << 20))
                time.sleep(0.02)
        super().fit(rows, y)
        return self


class Dying(Trivial):
    """Candidate 1 takes its process with it."""

    def fit(self, rows: Any, y: Any) -> Dying:
        if self.c == 1:
            os.abort()
        super().fit(rows, y)
        return self


class Changing(Trivial):
    """Changes what it is given, so scikit-learn refuses to clone it."""

    def __init__(self, c: float = 1.0) -> None:
        self.c = c + 1


class Locked(Trivial):
    """Holds what can't travel, beside its parameters."""

    def __init__(self, c: float = 1.0) -> None:
        super().__init__(c)
        self.lock_ = threading.Lock()


class NotAllowedError(ValueError):
    """Can't be made of its own arguments, as many exceptions can't."""

    def __init__(self, *, c: float) -> None:
        super().__init__(f"{c} is not allowed")
        self.c = c


class Refusing(Trivial):
    """Raises; candidate 0 behind the others."""

    def fit(self, rows: Any, y: Any) -> Refusing:
        time.sleep(2.0 if self.c == 0 else 0.0)
        raise NotAllowedError(c=self.c)


class Counting(TransformerMixin, BaseEstimator):
    """Leaves a file for every fit."""

    def __init__(self, folder: str = "", power: int = 1) -> None:
        self.folder = folder
        self.power = power

    def fit(self, rows: Any, y: Any = None) -> Counting:
        (Path(self.folder) / f"fit-{self.power}-{os.getpid()}-{time.monotonic_ns()}").touch()
        self.n_features_in_ = rows.shape[1]
        return self

    def transform(self, rows: Any) -> Any:
        return np.asarray(rows) ** self.power


def no_number(estimator: Any, rows: Any, y: Any) -> Any:
    """What no scorer may return."""
    return "very good"
