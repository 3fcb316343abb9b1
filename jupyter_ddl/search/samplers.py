"""Which sampler a spec means, and the two that need no history: grid and random.

The study asks and tells a sampler in an order that depends on trial numbers only (see
``study``), so every sampler here gives the same trial list for the same spec and seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.run import SamplerSpec, SearchSpec
from jupyter_ddl.protocol.sampling import TrialRecord
from jupyter_ddl.protocol.space import Distribution, ParamValue, n_grid_points
from jupyter_ddl.search.axes import counter_draws, make_axes
from jupyter_ddl.search.evolution import EvolutionSampler
from jupyter_ddl.search.options import read_options, unknown_name

__all__ = [
    "SAMPLER_NAMES",
    "GridSampler",
    "LocalSampler",
    "RandomSampler",
    "RemoteSampler",
    "is_remote",
    "make_sampler",
]

_OPTUNA_NAMES = ("tpe", "cmaes", "gp", "qmc")
SAMPLER_NAMES = ("grid", "random", *_OPTUNA_NAMES, "de")
"""The samplers that are known by a short name."""


class LocalSampler(Protocol):
    """A sampler that runs in this process.

    The study calls ``tell`` in the order of the numbers, each number once, and ``ask(n)``
    after exactly the trials up to ``horizon(n)`` have been told.
    """

    @property
    def history_free(self) -> bool:
        """Whether results are ignored: then ``tell`` is never called."""

    @property
    def slow(self) -> bool:
        """Whether an ask may take longer than about 10 ms."""

    @property
    def notices(self) -> tuple[str, ...]:
        """Sentences the user should see."""

    @property
    def n_points(self) -> int | None:
        """How many trials there can be at most; None: any number."""

    def horizon(self, number: int) -> int:
        """The last trial whose result ``ask(number)`` needs; -1 for none."""

    def ask(self, number: int) -> dict[str, ParamValue]:
        """The parameters of a trial.  Numbers come in order, from 0."""

    def tell(self, record: TrialRecord) -> None:
        """How a trial ended."""


class GridSampler:
    """Every combination once, the last parameter changing fastest; nothing is listed."""

    history_free = True
    slow = False
    notices: tuple[str, ...] = ()

    def __init__(self, space: Mapping[str, Distribution], options: Mapping[str, object]) -> None:
        read_options("sampler grid", options, {})
        self.n_points: int | None = n_grid_points(dict(space))
        axes = make_axes(space)
        self._names = [axis.name for axis in axes]
        self._reversed = [(axis, axis.n_values or 1) for axis in reversed(axes)]

    def horizon(self, number: int) -> int:
        return -1

    def ask(self, number: int) -> dict[str, ParamValue]:
        rest = number
        values: dict[str, ParamValue] = {}
        for axis, n_values in self._reversed:
            rest, index = divmod(rest, n_values)
            values[axis.name] = axis.value_at(index)
        return {name: values[name] for name in self._names}

    def tell(self, record: TrialRecord) -> None:
        """Nothing to learn."""


class RandomSampler:
    """Independent draws; trial n is a pure function of (seed, n)."""

    history_free = True
    slow = False
    notices: tuple[str, ...] = ()
    n_points: int | None = None

    def __init__(
        self, space: Mapping[str, Distribution], seed: int, options: Mapping[str, object]
    ) -> None:
        read_options("sampler random", options, {})
        self._axes = make_axes(space)
        self._seed = seed

    def horizon(self, number: int) -> int:
        return -1

    def ask(self, number: int) -> dict[str, ParamValue]:
        draws = counter_draws(self._seed, number, len(self._axes))
        return {
            axis.name: axis.from_unit(draw) for axis, draw in zip(self._axes, draws, strict=True)
        }

    def tell(self, record: TrialRecord) -> None:
        """Nothing to learn."""


class RemoteSampler:
    """Stands for a sampler whose asks the driver carries to another process."""

    history_free = False
    slow = False
    notices: tuple[str, ...] = ()
    n_points: int | None = None

    def __init__(self, window: int) -> None:
        self._window = window

    def horizon(self, number: int) -> int:
        return number - self._window


def is_remote(spec: SamplerSpec) -> bool:
    """Whether the sampler is user code, which only a rank process may run."""
    module = spec.name.partition(":")[0]
    return spec.in_notebook or (":" in spec.name and module.split(".")[0] != "optuna")


def make_sampler(spec: SearchSpec, seed: int, window: int) -> LocalSampler | RemoteSampler:
    """The sampler of a search.

    Raises
    ------
    SpecError
        The name or an option is unknown, or an option has a wrong value.
    SpaceError
        A grid over a continuous range.
    """
    name, options = spec.sampler.name, spec.sampler.options
    if is_remote(spec.sampler):
        return RemoteSampler(window)
    if name == "grid":
        return GridSampler(spec.space, options)
    if name == "random":
        return RandomSampler(spec.space, seed, options)
    if name == "de":
        return EvolutionSampler(
            spec.space, mode=spec.mode, n_trials=spec.n_trials, seed=seed, options=options
        )
    if name in _OPTUNA_NAMES or ":" in name:
        # Optuna costs half a second to import; only searches that use it pay.
        from jupyter_ddl.search.samplers_optuna import OptunaSampler

        return OptunaSampler(spec, seed, window)
    raise _unknown_sampler(name)


def _unknown_sampler(name: str) -> SpecError:
    return unknown_name(
        "unknown sampler",
        name,
        SAMPLER_NAMES,
        "use module:Class, the name of a notebook variable, or one of",
    )
