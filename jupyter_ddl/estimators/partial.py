"""What a stopped search keeps: results of the candidates that were finished on all folds."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Sequence
from typing import Any

from jupyter_ddl.errors import FitStoppedError
from jupyter_ddl.estimators.batches import Batch
from jupyter_ddl.estimators.outcomes import Outcomes, StoppedFold
from jupyter_ddl.events.fit_results import TakenUnit

__all__ = ["SearchRecord"]


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
