"""Which sampler a spec means, and the two that need no history: grid and random.

Built-in samplers derive from :class:`LocalSampler`.  One of a package is user code: it derives from
:class:`jupyter_ddl.Sampler` (in ``protocol/sampling.py``), and runs in a rank process.

The study asks and tells a sampler in an order that depends on trial numbers only (see
``study``), so every sampler here gives the same trial list for the same spec and seed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from jupyter_ddl.plugins import SAMPLERS
from jupyter_ddl.protocol.grid import Grid
from jupyter_ddl.protocol.sampling import SamplerSpec, StudySpec, TrialRecord
from jupyter_ddl.protocol.space import ParamValue, Space
from jupyter_ddl.studies.axes import counter_draws, make_axes
from jupyter_ddl.studies.options import read_options

__all__ = [
    "GridSampler",
    "LocalSampler",
    "RandomSampler",
    "RemoteSampler",
    "independence",
    "is_remote",
    "make_sampler",
]


class LocalSampler(ABC):
    """A built-in sampler, which runs in the controller.

    A package adds one by the entry point group ``jupyter_ddl.samplers``, as
    :class:`jupyter_ddl.Sampler` says: user code, which runs in a rank process.

    The study calls ``tell`` in the order of the numbers, each number once, and ``ask(n)``
    after exactly the trials up to ``horizon(n)`` have been told.  All calls come one at a time, in
    a thread of their own where the sampler is slow.
    """

    history_free: bool = False
    """Whether results are ignored: then ``tell`` is never called."""
    slow: bool = False
    """Whether an ask may take longer than about 10 ms."""
    notices: tuple[str, ...] = ()
    """Sentences the user should see."""
    n_points: int | None = None
    """How many trials there can be at most; None: any number."""

    @abstractmethod
    def __init__(self, spec: StudySpec, seed: int, window: int) -> None:
        """Begin a search.

        Raises
        ------
        SpecError
            An option is unknown, or has a wrong value.
        SpaceError
            The sampler can't search this space.
        """

    @abstractmethod
    def horizon(self, number: int) -> int:
        """The last trial whose result ``ask(number)`` needs; -1 for none."""

    @abstractmethod
    def ask(self, number: int) -> dict[str, ParamValue]:
        """The parameters of a trial.  Numbers come in order, from 0.

        Where branches have parameters of their own, values of those that the trial does not take
        may be left out; the study drops them.  What is told then lacks them.
        """

    def tell(self, record: TrialRecord) -> None:
        """How a trial ended."""
        raise NotImplementedError(f"{type(self).__name__} learns nothing from results")


class GridSampler(LocalSampler):
    """Every combination once, the last parameter changing fastest; nothing is listed."""

    history_free = True

    def __init__(self, spec: StudySpec, seed: int, window: int) -> None:
        read_options("sampler grid", spec.sampler.options, {})
        self._grid = Grid(spec.space)
        self.n_points = self._grid.n_points

    def horizon(self, number: int) -> int:
        return -1

    def ask(self, number: int) -> dict[str, ParamValue]:
        return self._grid.point(number)


class RandomSampler(LocalSampler):
    """Independent draws; trial n is a pure function of (seed, n)."""

    history_free = True

    def __init__(self, spec: StudySpec, seed: int, window: int) -> None:
        read_options("sampler random", spec.sampler.options, {})
        self._axes = make_axes(spec.space)
        self._seed = seed

    def horizon(self, number: int) -> int:
        return -1

    def ask(self, number: int) -> dict[str, ParamValue]:
        draws = counter_draws(self._seed, number, len(self._axes))
        return {
            axis.name: axis.from_unit(draw) for axis, draw in zip(self._axes, draws, strict=True)
        }


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


def independence(name: str, space: Space) -> tuple[str, ...]:
    """What the user should know of a sampler that does not know branches, if the space has some."""
    inside = [key for key, dist in space.items() if dist.when]
    if not inside:
        return ()
    return (
        f"sampler {name} does not know branches: it proposes {', '.join(inside)} for every trial, "
        "and trials take what their branch has; tpe, random and grid propose only that",
    )


def make_sampler(spec: StudySpec, seed: int, window: int) -> LocalSampler | RemoteSampler:
    """The sampler of a search.

    Raises
    ------
    OptionError
        There is no sampler of this name.
    SpecError
        An option is unknown, or has a wrong value.
    SpaceError
        A grid over a continuous range.
    """
    if is_remote(spec.sampler):
        return RemoteSampler(window)
    # Optuna costs half a second to import; only searches that use it pay.
    name = "tpe" if ":" in spec.sampler.name else spec.sampler.name
    kind: type[LocalSampler] = SAMPLERS.load(name)
    return kind(spec, seed, window)
