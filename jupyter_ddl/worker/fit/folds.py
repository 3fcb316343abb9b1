"""The rows of a fold as scikit-learn cuts them, recognised when they come back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from jupyter_ddl.worker.fit.remembering import StepMemory

__all__ = ["cut", "marked_folds"]


def cut(estimator: Any, rows: Any, y: Any, indices: Any, train: Any = None) -> tuple[Any, Any]:
    """Rows and targets at ``indices``, as ``_fit_and_score`` takes them."""
    from sklearn.utils.metaestimators import _safe_split

    found: tuple[Any, Any] = _safe_split(estimator, rows, y, indices, train)
    return found


@contextlib.contextmanager
def marked_folds(memory: StepMemory) -> Iterator[None]:
    """Have ``memory`` told which object holds the train and which the test rows of the fold.

    ``_fit_and_score`` cuts the rows itself and gives nobody else a hand in it; so the function that
    it cuts with is wrapped while it runs, in this rank only.  Where a version of scikit-learn has
    no such function, nothing is recognised and transformers do their work again.
    """
    from sklearn.model_selection import _validation

    original = getattr(_validation, "_safe_split", None)
    if original is None:
        yield
        return

    def split(estimator: Any, rows: Any, y: Any, indices: Any, train: Any = None) -> Any:
        found = original(estimator, rows, y, indices, train)
        memory.mark(found[0], "train" if train is None else "test")
        return found

    _validation._safe_split = split
    try:
        yield
    finally:
        _validation._safe_split = original
