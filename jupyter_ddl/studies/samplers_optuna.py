"""Optuna's own samplers, in the controller: the only file of this package that knows Optuna."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import warnings
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.sampling import StudySpec, TrialRecord
from jupyter_ddl.protocol.space import Choice, Distribution, ParamValue, has_conditions
from jupyter_ddl.ranks.optuna_study import OptunaStudy, knows_branches, load_optuna
from jupyter_ddl.studies.options import unknown_name
from jupyter_ddl.studies.samplers import LocalSampler, independence

__all__ = ["OptunaSampler"]

_CLASSES = {
    "tpe": "optuna.samplers:TPESampler",
    "cmaes": "optuna.samplers:CmaEsSampler",
    "gp": "optuna.samplers:GPSampler",
    "qmc": "optuna.samplers:QMCSampler",
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    # The window makes proposals deterministic; a liar would only make them slower.
    "tpe": {"multivariate": True, "constant_liar": False, "warn_independent_sampling": False},
    "cmaes": {"warn_independent_sampling": False},
    "gp": {"warn_independent_sampling": False},
    "qmc": {
        "scramble": True,
        "warn_asynchronous_seeding": False,
        "warn_independent_sampling": False,
    },
}
_NEEDS = {"gp": ("torch", "torch"), "cmaes": ("cmaes", ""), "qmc": ("scipy", "")}
"""Package that a sampler needs, and the extra that brings it."""


class OptunaSampler(LocalSampler):
    """An Optuna sampler, asked and told in an order that depends on trial numbers only.

    Raises
    ------
    SpecError
        The class or an option is unknown, a package is missing, or Optuna refuses a value.
    """

    def __init__(self, spec: StudySpec, seed: int, window: int) -> None:
        name = spec.sampler.name
        self._name = name
        self._window = window
        self.history_free = name == "qmc"
        self.slow = name != "qmc"
        self._n_told = 0
        _check_installed(name)
        load_optuna()
        options = dict(spec.sampler.options)
        if name == "tpe" and has_conditions(spec.space) and options.get("multivariate", True):
            options.setdefault("group", True)  # parameters of one branch are learnt together
        made = _make(name, options, seed)
        self.notices = _fallback_notices(name, spec.space)
        if not knows_branches(made):
            self.notices += independence(name, spec.space)
        self._study = OptunaStudy(made, spec.space, spec.mode)
        if name == "qmc":
            self._study.anchor()

    def horizon(self, number: int) -> int:
        return -1 if self.history_free else number - self._window

    def ask(self, number: int) -> dict[str, ParamValue]:
        try:
            return self._study.ask(number)
        except Exception as error:  # a third party's code
            raise self._refusal(f"proposing trial {number}", error) from error

    def tell(self, record: TrialRecord) -> None:
        try:
            self._study.tell(record)
        except Exception as error:
            raise self._refusal(f"learning the result of trial {record.number}", error) from error
        self._n_told += 1

    def _refusal(self, what: str, error: Exception) -> SpecError:
        if isinstance(error, SpecError):
            return error
        return SpecError(
            f"sampler {self._name}: {what}, after {self._n_told} results, Optuna raised "
            f"{type(error).__name__}: {error}; check the sampler's options or use --sampler random"
        )


def _check_installed(name: str) -> None:
    package, extra = _NEEDS.get(name, ("", ""))
    if package and importlib.util.find_spec(package) is None:
        wanted = f"'jupyter_ddl[{extra}]'" if extra else package
        raise SpecError(
            f"sampler {name} needs {package}, which is not installed where the cluster's "
            f"controller runs; pip install {wanted}, or use --sampler tpe"
        )


def _make(name: str, options: Mapping[str, object], seed: int) -> Any:
    kind = _load_class(_CLASSES.get(name, name))
    allowed = list(inspect.signature(kind).parameters)
    for option in options:
        if option not in allowed:
            raise unknown_name(f"sampler {name}: unknown option", option, allowed, "it takes")
    arguments: dict[str, Any] = {**_DEFAULTS.get(name, {}), **options}
    # Older and newer releases of Optuna differ in a few switches.
    arguments = {key: value for key, value in arguments.items() if key in allowed}
    if "seed" in allowed:
        arguments.setdefault("seed", _seed32(seed))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental-feature notes of Optuna
            return kind(**arguments)
    except (TypeError, ValueError, AttributeError) as error:
        raise SpecError(
            f"sampler {name}: Optuna refused its options ({error}); a sampler that needs more "
            f"than numbers and words can be made in the notebook and passed by name"
        ) from error


def _load_class(path: str) -> Any:
    module_name, _, class_name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        samplers = importlib.import_module("optuna.samplers")
        known = [name for name in samplers.__all__ if name.endswith("Sampler")]
        raise unknown_name("unknown sampler", path, known, "optuna.samplers has") from error
    base = importlib.import_module("optuna.samplers").BaseSampler
    if not (isinstance(found, type) and issubclass(found, base)):
        raise SpecError(f"{path} is not an Optuna sampler; expected a class such as TPESampler")
    return found


def _seed32(seed: int) -> int:
    """Optuna's generators take 32 bits; a run's seed may have more."""
    return int.from_bytes(blake2b(b"%d" % seed, digest_size=4).digest(), "little")


def _fallback_notices(name: str, space: Mapping[str, Distribution]) -> tuple[str, ...]:
    if name != "cmaes":
        return ()
    numbers = [key for key, dist in space.items() if not isinstance(dist, Choice)]
    choices = [key for key, dist in space.items() if isinstance(dist, Choice)]
    if len(numbers) < 2:
        return (
            "cmaes needs two numeric parameters or more, and this search has "
            f"{len(numbers)}: all values are drawn at random",
        )
    if choices:
        return (f"cmaes cannot learn choices: {', '.join(choices)} are drawn at random",)
    return ()
