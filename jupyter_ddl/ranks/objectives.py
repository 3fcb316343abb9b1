"""Calls of an objective on a rank, in the form in which it was written for another tool."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jupyter_ddl import dist
from jupyter_ddl.errors import SpecError
from jupyter_ddl.ranks import incell
from jupyter_ddl.ranks.metrics import ReportError, as_number, shown

__all__ = ["Trial", "by_config", "by_keywords", "by_trial"]

Objective = Callable[..., Any]
Params = Mapping[str, Any]


def by_keywords(function: Objective, params: Params, metric: str) -> Any:
    """``function(lr=…, width=…)``, and what it is judged by."""
    return _judged(function(**params), metric)


def by_config(function: Objective, params: Params, metric: str) -> Any:
    """``function({"lr": …})``, as Ray Tune and hyperopt call it."""
    return _judged(function(dict(params)), metric)


def by_trial(function: Objective, params: Params, metric: str) -> Any:
    """``function(trial)``, as Optuna calls it."""
    return _judged(function(Trial(dict(params), metric)), metric)


def _judged(result: Any, metric: str) -> Any:
    """The objective in what a function returned; the other numbers of a dict are reported."""
    if not isinstance(result, Mapping):
        return result
    if result.get("status") == "fail":
        raise ReportError("the objective returned the status 'fail'")
    numbers = {str(key): value for key, value in result.items() if as_number(value) is not None}
    if metric not in numbers:
        if len(numbers) != 1:
            raise ReportError(
                f"the objective returned {shown(dict(result))} without {metric!r}; name one of "
                f"{', '.join(numbers) or 'its numbers'} with metric=…",
                metric=metric,
            )
        numbers = {metric: next(iter(numbers.values()))}
    incell.report(**numbers)
    return numbers[metric]


class Trial:
    """What an objective that was written for Optuna asks for its hyper-parameters.

    The values were proposed before the function is called; ``suggest_*`` only look them up.
    """

    def __init__(self, params: dict[str, Any], metric: str) -> None:
        self.params = params
        self.user_attrs: dict[str, Any] = {}
        self._metric = metric

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        return float(self._value(name))

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        return int(self._value(name))

    def suggest_categorical(self, name: str, choices: Iterable[Any]) -> Any:
        value = self._value(name)
        for each in choices:
            if dist.recorded(each) == value:
                return each
        raise SpecError(f"trial.suggest_categorical({name!r}): {value!r} is not one of its choices")

    def report(self, value: float, step: int) -> None:
        """Report the objective at a step; a pruned trial ends here."""
        metrics: dict[str, Any] = {self._metric: value}
        incell.report(step, **metrics)

    def should_prune(self) -> bool:
        """Never: :meth:`report` has not returned if the trial is pruned."""
        return False

    def set_user_attr(self, key: str, value: Any) -> None:
        self.user_attrs[key] = value

    def _value(self, name: str) -> Any:
        if name not in self.params:
            raise SpecError(
                f"trial.suggest_…({name!r}) was not seen when the search began; call it with a "
                f"plain text in the objective itself, outside of loops, at its top level or below "
                f"tests of a categorical one"
            )
        return self.params[name]
