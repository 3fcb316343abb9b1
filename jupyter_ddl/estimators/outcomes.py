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

__all__ = ["Outcomes"]


class _RemoteError(Exception):
    """The traceback of a unit, as the cause of the exception that it raised."""

    def __init__(self, text: str) -> None:
        super().__init__(f"\n{text}")


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

    def value(self, unit: TakenUnit) -> Any:
        """The result of a unit; what it has warned about is warned about here.

        Raises
        ------
        Exception
            What the unit has raised.
        FitError
            Its process died, and the search was told to raise.
        """
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
        scores: Any = batch.error_score
        names = getattr(batch.values["scoring"], "_scorers", None)
        if names is not None:
            scores = dict.fromkeys(names, batch.error_score)
        found = {
            "fit_error": f"Traceback (most recent call last):\n{text}",
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
