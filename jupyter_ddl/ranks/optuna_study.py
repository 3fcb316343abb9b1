"""An Optuna sampler behind ask and tell: the same in a rank process and in the controller.

``SamplerHost`` drives a notebook's Optuna sampler through it, ``studies/samplers_optuna`` those
that are known by name.  Optuna is imported by name when it is needed: most rank processes never do.
"""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.sampling import Mode, TrialRecord
from jupyter_ddl.protocol.space import (
    Choice,
    Distribution,
    ParamValue,
    RandInt,
    active_params,
    is_active,
)

__all__ = ["OptunaStudy", "knows_branches", "load_optuna"]

_NEED_ALL = frozenset({"CmaEsSampler", "GPSampler", "QMCSampler"})
"""They search the parameters that all trials have, and would draw those of branches at random."""


def load_optuna() -> Any:
    """Optuna, told to log warnings only."""
    optuna = importlib.import_module("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def knows_branches(sampler: Any) -> bool:
    """Whether an Optuna sampler learns of trials that lack some parameters."""
    return not any(kind.__name__ in _NEED_ALL for kind in type(sampler).__mro__)


class OptunaStudy:
    """An Optuna sampler and the in-memory study that it reads.

    Its state depends only on the order of the calls.  Trials that were asked and not told are
    running trials to the sampler.  Parameters told for a trial win over those proposed.
    A sampler that does not know branches is asked for all parameters, and learns of them as of the
    others, whether the trial has taken them or not.
    """

    def __init__(self, sampler: Any, space: Mapping[str, Distribution], mode: Mode) -> None:
        self._optuna = load_optuna()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental-feature notes of Optuna
            self._study = self._optuna.create_study(
                sampler=sampler,
                pruner=self._optuna.pruners.NopPruner(),
                direction="maximize" if mode == "max" else "minimize",
            )
        whens = ((name, dist.when) for name, dist in space.items())
        self._whens = tuple(whens)
        self._asks_all = not knows_branches(sampler)
        self._distributions = {
            name: _optuna_distribution(self._optuna, name, dist) for name, dist in space.items()
        }
        self._by_index = {
            name: dist.values
            for name, dist in space.items()
            if isinstance(dist, Choice) and not _distinct(dist)
        }
        self._trials: dict[int, Any] = {}

    def anchor(self) -> None:
        """Add one finished trial: some samplers read the space off the first one."""
        params = {name: _any_value(dist) for name, dist in self._distributions.items()}
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params=params, distributions=self._distributions, value=0.0
            )
        )

    def ask(self, number: int) -> dict[str, ParamValue]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self._asks_all:
                trial = self._study.ask(self._distributions)
            else:
                trial = self._study.ask()
                self._suggest_active(trial)
        self._trials[number] = trial
        return self._active(trial)

    def tell(self, record: TrialRecord) -> None:
        trial = self._trials.pop(record.number)
        states = self._optuna.trial.TrialState
        state, value = self._ending(record)
        step = record.step or 0
        if self._active(trial) != record.params:
            self._study.tell(trial, state=states.FAIL)
            if state == states.FAIL:
                return
            reported = state == states.PRUNED and value is not None
            params = self._encoded(record.params)
            if self._asks_all:
                params = {**trial.params, **params}
            self._study.add_trial(
                self._optuna.trial.create_trial(
                    state=state,
                    params=params,
                    distributions={name: self._distributions[name] for name in params},
                    value=value,
                    intermediate_values={step: value} if reported else None,
                )
            )
            return
        if state == states.PRUNED and value is not None:
            trial.report(value, step)
        self._study.tell(trial, value if state == states.COMPLETE else None, state)

    def learn(self, trials: Iterable[tuple[Mapping[str, ParamValue], float]]) -> None:
        """Take in trials that are complete, whoever proposed them."""
        add, create = self._study.add_trial, self._optuna.trial.create_trial
        for params, value in trials:
            encoded = self._encoded(params)
            kinds = {name: self._distributions[name] for name in encoded}
            add(create(params=encoded, distributions=kinds, value=value))

    def importances(self) -> dict[str, float]:
        """Each parameter's share in what makes a trial one of the best, by PED-ANOVA.

        Parameters that only some trials have are there where this release of Optuna can tell.
        """
        importance = self._optuna.importance
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental-feature notes of Optuna
            evaluator = importance.PedAnovaImportanceEvaluator()
            found: dict[str, float] = importance.get_param_importances(
                self._study, evaluator=evaluator
            )
        return found

    def _suggest_active(self, trial: Any) -> None:
        """Ask for one parameter after the other, as an objective with branches would."""
        known: dict[str, ParamValue] = {}
        for name, when in self._whens:
            if is_active(when, known):
                known[name] = self._plain(name, _suggest(trial, name, self._distributions[name]))

    def _active(self, trial: Any) -> dict[str, ParamValue]:
        params = {name: self._plain(name, value) for name, value in trial.params.items()}
        return active_params(self._whens, params)

    def _ending(self, record: TrialRecord) -> tuple[Any, float | None]:
        """State and value as Optuna knows them: one without a finite value has failed."""
        states = self._optuna.trial.TrialState
        finite = record.value is not None and math.isfinite(record.value)
        if record.state == "complete" and finite:
            return states.COMPLETE, record.value
        if record.state == "pruned":
            return states.PRUNED, record.value if finite else None
        return states.FAIL, None

    def _plain(self, name: str, value: Any) -> ParamValue:
        """A value as the space has it."""
        values = self._by_index.get(name)
        plain: ParamValue = value if values is None else values[value]
        return plain

    def _encoded(self, params: Mapping[str, ParamValue]) -> dict[str, Any]:
        encoded: dict[str, Any] = dict(params)
        for name in self._by_index.keys() & params.keys():
            encoded[name] = self._by_index[name].index(params[name])
        return encoded


def _suggest(trial: Any, name: str, dist: Any) -> Any:
    if hasattr(dist, "choices"):
        return trial.suggest_categorical(name, dist.choices)
    suggest = trial.suggest_int if isinstance(dist.low, int) else trial.suggest_float
    return suggest(name, dist.low, dist.high, step=dist.step, log=dist.log)


def _optuna_distribution(optuna: Any, name: str, dist: Distribution) -> Any:
    kinds = optuna.distributions
    if isinstance(dist, Choice):
        choices = dist.values if _distinct(dist) else range(len(dist.values))
        return kinds.CategoricalDistribution(tuple(choices))
    if dist.log and dist.step not in (None, 1):
        raise SpecError(
            f"{name}: Optuna's samplers take no step on a log scale, and the step is "
            f"{dist.step}; leave one of the two out, or use --sampler random or de"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a range that its step does not divide is cut
        if isinstance(dist, RandInt):
            return kinds.IntDistribution(dist.low, dist.high, log=dist.log, step=dist.step)
        return kinds.FloatDistribution(dist.low, dist.high, log=dist.log, step=dist.step)


def _distinct(dist: Choice) -> bool:
    """Whether Optuna can tell the values apart (it compares 1, 1.0 and True as equal)."""
    return len(set(dist.values)) == len(dist.values)


def _any_value(dist: Any) -> Any:
    return dist.choices[0] if hasattr(dist, "choices") else dist.low
