"""What units sent back, made into what scikit-learn and joblib expect of their calls."""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from jupyter_ddl.errors import FitError, FitStoppedError
from jupyter_ddl.protocol.events import Failure
from jupyter_ddl.protocol.fit_results import TakenUnit
from jupyter_ddl.sklearn_fit.batches import Batch

__all__ = ["Outcomes", "SearchRecord", "StoppedFold"]


# What a stopped search keeps: results of the candidates that were finished on all folds.


def without_stopped(original: Any) -> Any:
    """What takes the place of a search's ``_format_results``: candidates that were stopped alone
    are left out, as those are that a stopped search has not finished.
    """

    @functools.wraps(original)
    def format_results(
        search: Any, candidates: Any, n_splits: int, out: Any, more_results: Any = None
    ) -> Any:
        kept = [
            number
            for number in range(len(candidates))
            if not any(
                isinstance(fold, StoppedFold)
                for fold in out[number * n_splits : (number + 1) * n_splits]
            )
        ]
        if len(kept) == len(candidates):
            return original(search, candidates, n_splits, out, more_results)
        if not kept:
            raise FitStoppedError("the fit was stopped: all its candidates were")
        return original(
            search,
            [candidates[number] for number in kept],
            n_splits,
            [fold for n in kept for fold in out[n * n_splits : (n + 1) * n_splits]],
            {name: [each[n] for n in kept] for name, each in (more_results or {}).items()},
        )

    return format_results


class SearchRecord:
    """Follows one search from outside, batch by batch."""

    def __init__(self, search: Any) -> None:
        self._search = search
        self._parameters: list[Any] = []
        self._results: list[Any] = []
        self._n_splits = 0

    def add(self, batch: Batch, values: Sequence[Any]) -> None:
        """A batch that was computed to its end."""
        if batch.kind == "score":
            self._n_splits = len(batch.values["folds"])
            self._parameters += batch.parameters
            self._results += values

    def add_part(self, batch: Batch, done: dict[int, TakenUnit], outcomes: Outcomes) -> None:
        """A batch that was stopped."""
        if batch.kind != "score":
            return
        units: dict[int, list[int]] = {}
        for number, unit in enumerate(batch.units):
            units.setdefault(unit.candidate, []).append(number)
        for candidate, numbers in units.items():
            units_done = [done[number] for number in numbers if number in done]
            if len(units_done) == len(numbers) and not any(
                unit.has_raised or unit.is_stopped for unit in units_done
            ):
                self._n_splits = len(numbers)
                self._parameters.append(batch.parameters[candidate])
                self._results += [outcomes.value(done[number]) for number in numbers]

    def leave(self) -> None:
        """Give the search what there is: results, and the best candidate of them."""
        search = self._search
        if not self._parameters:
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a mean of scores that are all missing
            results = search._format_results(self._parameters, self._n_splits, self._results)
        search.cv_results_ = results
        search.n_splits_ = self._n_splits
        search.multimetric_ = isinstance(self._results[0]["test_scores"], dict)
        metric = search.refit if search.multimetric_ else "score"
        # Without a metric to go by (several, and no refit), or with a refit of the user's that
        # wants columns of a whole search, there is no best one.
        with contextlib.suppress(Exception):
            search.best_index_ = search._select_best_index(search.refit, metric, results)
            search.best_params_ = results["params"][search.best_index_]
            search.best_score_ = results[f"mean_test_{metric}"][search.best_index_]


class _RemoteError(Exception):
    """The traceback of a unit, as the cause of the exception that it raised."""

    def __init__(self, text: str) -> None:
        super().__init__(f"\n{text}")


class StoppedFold(dict[str, Any]):
    """The result of a fold whose candidate was stopped: no score, and no error either."""


class Outcomes:
    """Unpickles the outcomes of one batch; they are objects of the notebook's own making.

    Parameters
    ----------
    find_file : callable
        Where the file of a large outcome lies, by its name.
    """

    def __init__(self, batch: Batch, find_file: Callable[[str], Path]) -> None:
        self._batch = batch
        self._find_file = find_file
        self._registry: dict[Any, Any] = {}

    def values(self, done: dict[int, TakenUnit]) -> list[Any]:
        """Results of all units, in order.  Raises as :meth:`value` does for the first that does."""
        __tracebackhide__ = True
        wanted = range(len(self._batch.units))
        found = {n: self.value(done[n]) for n in wanted if not done[n].is_stopped}
        if len(found) == len(wanted):
            return list(found.values())
        like = next((result["test_scores"] for result in found.values()), None)
        return [found[n] if n in found else self._of_stopped(n, like) for n in wanted]

    def value(self, unit: TakenUnit) -> Any:
        """The result of a unit; what it has warned about is warned about here.

        Raises
        ------
        Exception
            What the unit has raised.
        FitError
            Its process died, and the search was told to raise.
        """
        __tracebackhide__ = True
        if unit.lost is not None:
            return self._of_lost(unit, unit.lost)
        with self._stream(unit) as stream:
            pickle.load(stream)
            value, more = pickle.load(stream)
        if unit.has_raised:
            raise value from _RemoteError(more)
        self._warn(more)
        return value

    def show(self, units: Iterable[TakenUnit]) -> None:
        """Print what units have printed that were told to, as they come in."""
        for unit in units if self._batch.is_verbose else ():
            if unit.lost is None and not unit.is_stopped:
                with self._stream(unit) as stream:
                    sys.stdout.write(pickle.load(stream))

    def _stream(self, unit: TakenUnit) -> IO[bytes]:
        """What the unit has printed, and its result or exception."""
        if unit.file:
            return self._find_file(unit.file).open("rb")
        return io.BytesIO(unit.outcome)

    def _warn(self, warned: Iterable[tuple[Any, type[Warning], str, int]]) -> None:
        for message, category, filename, line in warned:
            warnings.warn_explicit(message, category, filename, line, registry=self._registry)

    def _of_lost(self, unit: TakenUnit, failure: Failure) -> Any:
        """What scikit-learn makes of a fit that fails: the error score, and why."""
        batch = self._batch
        spec = batch.units[unit.unit]
        where = f"fold {spec.fold} of candidate {spec.candidate}"
        if batch.kind != "score":
            where = f"part {spec.fold} of a parallel call"
        text = f"{where} was lost: {failure.type_name}: {failure.message}"
        if batch.kind != "score" or batch.error_score == "raise":
            raise FitError(text, kind=failure.kind)
        names = getattr(batch.values["scoring"], "_scorers", None)
        scores = batch.error_score if names is None else dict.fromkeys(names, batch.error_score)
        return self._without_fit(unit.unit, scores, f"Traceback (most recent call last):\n{text}")

    def _of_stopped(self, unit: int, like: Any) -> StoppedFold:
        """No scores, in the form of those of another fold."""
        names = like or getattr(self._batch.values["scoring"], "_scorers", None)
        scores = dict.fromkeys(names, np.nan) if isinstance(names, dict) else np.nan
        return StoppedFold(self._without_fit(unit, scores, None))

    def _without_fit(self, unit: int, scores: Any, error: str | None) -> dict[str, Any]:
        batch = self._batch
        spec = batch.units[unit]
        found = {
            "fit_error": error,
            "test_scores": scores,
            "train_scores": dict(scores) if isinstance(scores, dict) else scores,
            "n_test_samples": _n_samples(batch.values["folds"][spec.fold][1]),
            "fit_time": 0.0,
            "score_time": 0.0,
            "parameters": batch.parameters[spec.candidate],
            "estimator": batch.values["estimator"],
        }
        return {key: found[key] for key in ("fit_error", *batch.result_keys)}


def _n_samples(indices: Any) -> int:
    array = np.asarray(indices)
    return int(array.sum()) if array.dtype == bool else len(array)
