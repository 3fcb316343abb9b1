"""One call of scikit-learn's, made in a rank: what it returns, raises and warns about."""

from __future__ import annotations

import contextlib
import math
import numbers
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from jupyter_ddl.protocol.events import Failure
from jupyter_ddl.protocol.fit_results import UnitResult
from jupyter_ddl.ranks.fit.node_store import StoredNode
from jupyter_ddl.ranks.fit.step_cache import StepMemory
from jupyter_ddl.ranks.fit.table import LoadedTable
from jupyter_ddl.ranks.stopping import TrialStopped
from jupyter_ddl.store.exceptions import pickled

__all__ = ["cut", "marked_folds", "run_call", "run_score"]


# The rows of a fold as scikit-learn cuts them, recognised when they come back.


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


_MAX_WARNINGS = 50
_MAX_ERROR = 500


def run_score(
    table: LoadedTable, candidate: int, fold: int, kept: tuple[int, StoredNode] | None
) -> UnitResult:
    """``_fit_and_score`` for a candidate on a fold.

    Parameters
    ----------
    kept : tuple of int and StoredNode, optional
        Number of leading steps that were computed before, and their outputs.
    """
    from sklearn.base import clone

    values = table.values
    train, test = values["folds"][fold]
    parameters = values["candidates"][candidate]
    estimator = clone(values["estimator"])
    kwargs = {**values["arguments"], "scorer": values["scoring"]}
    kwargs |= {"train": train, "test": test, "parameters": parameters}
    if values["has_progress"]:
        kwargs["split_progress"] = fold, len(values["folds"])
        kwargs["candidate_progress"] = candidate, len(values["candidates"])

    def call() -> Any:
        return values["function"](estimator, values["X"], values["y"], **kwargs)

    if kept is None:
        return _outcome(call, values["shown"])
    original = estimator.memory
    memory = estimator.memory = StepMemory(estimator, *kept)

    def remembering() -> Any:
        with marked_folds(memory):
            result = call()
        if kwargs.get("return_estimator"):
            memory.make_real()
        estimator.memory = original
        return result

    return _outcome(remembering, values["shown"])


def run_call(table: LoadedTable, number: int) -> UnitResult:
    """Any other call of a parallel section."""

    def call() -> Any:
        function, args, kwargs = table.call(number)
        return function(*args, **kwargs)

    return _outcome(call, None)


def _outcome(call: Callable[[], Any], shown: str | None) -> UnitResult:
    """Pickled ``(result, warnings)``, or the pickled exception."""
    with warnings.catch_warnings(record=True) as caught:
        try:
            result = call()
        except TrialStopped:
            raise
        except Exception as error:  # noqa: BLE001 - the wall around the user's code
            return _raised(error)
    warned = [(w.message, w.category, w.filename, w.lineno) for w in caught[:_MAX_WARNINGS]]
    try:
        data = pickled((result, warned))
    except Exception as error:  # noqa: BLE001 - pickling runs the user's code
        return _raised(error)
    if not isinstance(result, dict) or "test_scores" not in result:
        return UnitResult(data)
    score = _score(result["test_scores"], shown)
    return UnitResult(data, score=score, failure=_failure(result.get("fit_error"), score))


def _raised(error: Exception) -> UnitResult:
    text = "".join(traceback.format_exception(error))
    try:
        data = pickled((error, text))
    except Exception:  # noqa: BLE001 - pickling runs the user's code
        data = pickled((RuntimeError(f"{type(error).__name__}: {error}"), text))
    failure = Failure("exception", type(error).__name__, str(error)[:_MAX_ERROR], text[-4000:])
    return UnitResult(data, failure=failure, has_raised=True)


def _score(scores: Any, shown: str | None) -> float | None:
    """The number that views show; of several metrics the one that the search goes by."""
    if isinstance(scores, dict):
        scores = scores.get(shown, next(iter(scores.values()), None))
    if not isinstance(scores, numbers.Real):
        return None
    number = float(scores)
    return number if math.isfinite(number) else None


def _failure(fit_error: str | None, score: float | None) -> Failure | None:
    if fit_error is None:
        return None if score is not None else _NO_SCORE
    last = fit_error.strip().rsplit("\n", 1)[-1]
    name, _, message = last.partition(":")
    return Failure("exception", name.rpartition(".")[2], message.strip()[:_MAX_ERROR], fit_error)


_NO_SCORE = Failure("metric", "NoScore", "the score of this fold is not a finite number")
