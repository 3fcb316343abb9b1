"""Parameter distributions: what ``loguniform(1e-4, 1e-1)`` in a cell means.

Names and meaning follow Optuna's distributions
(https://optuna.readthedocs.io/en/stable/reference/distributions.html).
"""

from __future__ import annotations

import math
from typing import TypeAlias

import msgspec

from jupyter_ddl.errors import SpaceError

__all__ = [
    "Choice",
    "Distribution",
    "ParamValue",
    "RandInt",
    "Space",
    "Uniform",
    "grid_values",
    "n_grid_points",
    "validate_distribution",
]

ParamValue: TypeAlias = bool | int | float | str | None
"""A parameter as it is recorded, shown and given to samplers."""


class Uniform(msgspec.Struct, frozen=True, tag="uniform"):
    """A float in ``[low, high]``; ``log`` samples its logarithm evenly.

    With ``step`` the value is ``low + k * step``.
    """

    low: float
    high: float
    default: float | None = None
    log: bool = False
    step: float | None = None


class RandInt(msgspec.Struct, frozen=True, tag="randint"):
    """An integer in ``[low, high]``, both ends included (as ``random.randint``)."""

    low: int
    high: int
    default: int | None = None
    log: bool = False
    step: int = 1


class Choice(msgspec.Struct, frozen=True, tag="choice"):
    """One of several values.

    ``values`` are what is recorded and shown.  Where the real values are not scalars
    (tuples, functions, classes), ``values`` holds their distinct labels, ``by_index`` is
    true, and the rank picks the object at the label's position.
    """

    values: tuple[ParamValue, ...]
    default: ParamValue = None
    by_index: bool = False


Distribution: TypeAlias = Uniform | RandInt | Choice
Space: TypeAlias = dict[str, Distribution]


def validate_distribution(name: str, dist: Distribution) -> None:
    """Refuse a distribution that nothing can be drawn from.

    Raises
    ------
    SpaceError
        ``low > high``, a log scale that reaches zero, a non-finite bound, a step that is
        not positive, or no values; the message names ``name``.
    """
    if isinstance(dist, Choice):
        if not dist.values:
            raise SpaceError(f"{name}: choice() has no values; give at least one")
        return
    low, high = dist.low, dist.high
    if not (math.isfinite(low) and math.isfinite(high)):
        raise SpaceError(f"{name}: bounds are {low} and {high}; both must be finite numbers")
    if low > high:
        raise SpaceError(f"{name}: low {low} is greater than high {high}; swap them")
    if dist.log and low <= 0:
        raise SpaceError(f"{name}: low is {low}; a log scale needs low > 0")
    if dist.step is not None and dist.step <= 0:
        raise SpaceError(f"{name}: step is {dist.step}; it must be greater than 0")


def grid_values(name: str, dist: Distribution) -> tuple[ParamValue, ...]:
    """All values of a distribution that has finitely many.

    Raises
    ------
    SpaceError
        For a continuous distribution without ``step``.
    """
    if isinstance(dist, Choice):
        return dist.values
    if isinstance(dist, RandInt):
        return tuple(range(dist.low, dist.high + 1, dist.step))
    if dist.step is None:
        raise SpaceError(
            f"{name}: a grid needs finitely many values, and this range is continuous; "
            f"use choice(…), step=…, or --sampler random"
        )
    n_values = math.floor((dist.high - dist.low) / dist.step + 1e-9) + 1
    return tuple(dist.low + k * dist.step for k in range(n_values))


def n_grid_points(space: Space) -> int:
    """Number of combinations of a finite space, computed without listing a range."""
    total = 1
    for name, dist in space.items():
        if isinstance(dist, RandInt):
            total *= len(range(dist.low, dist.high + 1, dist.step))
        elif isinstance(dist, Uniform) and dist.step is not None:
            total *= math.floor((dist.high - dist.low) / dist.step + 1e-9) + 1
        else:
            total *= len(grid_values(name, dist))
    return total
