"""Parameter distributions: what ``loguniform(1e-4, 1e-1)`` in a cell means.

Names and meaning follow Optuna's distributions
(https://optuna.readthedocs.io/en/stable/reference/distributions.html).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from jupyter_ddl.errors import SpaceError

__all__ = [
    "Choice",
    "Distribution",
    "OneOf",
    "ParamValue",
    "RandInt",
    "Space",
    "Uniform",
    "When",
    "active_params",
    "grid_value",
    "grid_values",
    "has_conditions",
    "is_active",
    "n_values",
    "validate_distribution",
    "variable_of",
    "when_text",
]

ParamValue: TypeAlias = bool | int | float | str | None
"""A parameter as it is recorded, shown and given to samplers."""


class OneOf(msgspec.Struct, frozen=True):
    """That a parameter is active and has one of these values."""

    name: str
    values: tuple[ParamValue, ...]


When: TypeAlias = tuple[tuple[OneOf, ...], ...]
"""When a parameter is active: where all parts of one of these alternatives hold.  Empty: always.
Its parts name parameters that stand before it in the space."""


class Uniform(msgspec.Struct, frozen=True, tag="uniform"):
    """A float in ``[low, high]``; ``log`` samples its logarithm evenly.

    With ``step`` the value is ``low + k * step``.
    """

    low: float
    high: float
    default: float | None = None
    log: bool = False
    step: float | None = None
    when: When = ()


class RandInt(msgspec.Struct, frozen=True, tag="randint"):
    """An integer in ``[low, high]``, both ends included (as ``random.randint``)."""

    low: int
    high: int
    default: int | None = None
    log: bool = False
    step: int = 1
    when: When = ()


class Choice(msgspec.Struct, frozen=True, tag="choice"):
    """One of several values.

    ``values`` are what is recorded and shown.  Where the real values are not scalars
    (tuples, functions, classes), ``values`` holds their distinct labels, ``by_index`` is
    true, and the rank picks the object at the label's position.
    """

    values: tuple[ParamValue, ...]
    default: ParamValue = None
    by_index: bool = False
    when: When = ()


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


def is_active(when: When, params: Mapping[str, ParamValue]) -> bool:
    """Whether a parameter of this condition belongs to a trial with these values."""
    return not when or any(
        all(part.name in params and params[part.name] in part.values for part in alternative)
        for alternative in when
    )


def has_conditions(space: Mapping[str, Distribution]) -> bool:
    """Whether some parameters of a space are not in every trial."""
    return any(dist.when for dist in space.values())


def active_params(
    whens: Iterable[tuple[str, When]], params: Mapping[str, ParamValue]
) -> dict[str, ParamValue]:
    """Those of ``params`` that a trial has, in the order of ``whens``.

    Parameters
    ----------
    whens
        Names of all parameters with their conditions, in the order of the space.
    """
    active: dict[str, ParamValue] = {}
    for name, when in whens:
        if name in params and is_active(when, active):
            active[name] = params[name]
    return active


def variable_of(name: str) -> str:
    """The variable that a parameter is assigned to: ``C`` of ``C[svm]``.

    Branches that exclude each other may declare one variable differently; then each has a
    parameter of its own, with the branch in brackets.
    """
    return name.partition("[")[0]


def when_text(when: When) -> str:
    """A condition for people: ``model = svm, kernel = rbf``; alternatives with ``or``."""
    return " or ".join(", ".join(map(_part_text, alternative)) for alternative in when)


def _part_text(part: OneOf) -> str:
    return f"{part.name} = {'|'.join(map(str, part.values))}"


def n_values(name: str, dist: Distribution) -> int:
    """How many values a distribution has.

    Raises
    ------
    SpaceError
        For a continuous distribution without ``step``.
    """
    if isinstance(dist, Choice):
        return len(dist.values)
    if isinstance(dist, RandInt):
        return len(range(dist.low, dist.high + 1, dist.step))
    if dist.step is None:
        raise SpaceError(
            f"{name}: a grid needs finitely many values, and this range is continuous; "
            f"use choice(…), step=…, or --sampler random"
        )
    return math.floor((dist.high - dist.low) / dist.step + 1e-9) + 1


def grid_value(dist: Distribution, index: int) -> ParamValue:
    """One of the values that :func:`n_values` counts."""
    if isinstance(dist, Choice):
        return dist.values[index]
    return dist.low + index * (dist.step or 0)


def grid_values(name: str, dist: Distribution) -> tuple[ParamValue, ...]:
    """All of them; raises as :func:`n_values` does."""
    return tuple(grid_value(dist, index) for index in range(n_values(name, dist)))
