"""What units sent home, made into what scikit-learn and joblib expect of their calls."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jupyter_ddl.errors import FitError
from jupyter_ddl.estimators.batches import Batch
from jupyter_ddl.events.fit_results import TakenUnit
from jupyter_ddl.events.messages import Failure

__all__ = ["Outcomes", "StoppedFold"]


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
    values_dir : Path
        Where large outcomes lie.
    """

    def __init__(self, batch: Batch, values_dir: Path) -> None:
        self._batch = batch
        self._values_dir = values_dir
        self._registry: dict[Any, Any] = {}

    def values(self, done: dict[int, TakenUnit]) -> list[Any]:
        """Results of all units, in order.  Raises as :meth:`value` does."""
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
        data = unit.outcome
        if unit.file:
            data = (self._values_dir / unit.file).read_bytes()
        value, more = pickle.loads(data)
        if unit.has_raised:
            raise value from _RemoteError(more)
        self._warn(more)
        return value

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
