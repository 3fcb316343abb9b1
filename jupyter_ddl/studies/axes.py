"""One parameter as a sampler handles it: drawn from [0, 1], counted on a grid, checked.

``counter_draws`` makes the numbers: a pure function of (seed, trial number), so trial n
has the same parameters whenever, wherever and in whatever order it is asked.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TypeAlias

from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.space import (
    Choice,
    Distribution,
    ParamValue,
    RandInt,
    Uniform,
    active_params,
    is_active,
    n_values,
)

__all__ = [
    "Axis",
    "ChoiceAxis",
    "FloatAxis",
    "IntAxis",
    "active",
    "check_params",
    "counter_draws",
    "make_axes",
]

_BLOCK = struct.Struct("<8Q")
_STEP_TOLERANCE = 1e-6
"""Share of a step by which a float may miss its grid point."""


def counter_draws(seed: int, number: int, n_draws: int) -> list[float]:
    """``n_draws`` even floats in ``[0, 1)`` that depend on ``(seed, number)`` only."""
    draws: list[float] = []
    for block in range((n_draws + 7) // 8):
        digest = blake2b(b"%d:%d:%d" % (seed, number, block)).digest()
        draws += [(bits >> 11) * 2.0**-53 for bits in _BLOCK.unpack(digest)]
    return draws[:n_draws]


class ChoiceAxis:
    """One of several values, by index."""

    def __init__(self, name: str, dist: Choice) -> None:
        self.name = name
        self.when = dist.when
        self.n_values: int | None = len(dist.values)
        self._values = dist.values

    def from_unit(self, unit: float) -> ParamValue:
        n = len(self._values)
        return self._values[min(int(unit * n), n - 1)]

    def to_unit(self, value: ParamValue) -> float:
        return (self._values.index(value) + 0.5) / len(self._values)

    def check(self, value: object) -> ParamValue:
        for known in self._values:
            if type(known) is type(value) and known == value:
                return known
        shown = ", ".join(map(repr, self._values[:8])) + (", …" if len(self._values) > 8 else "")
        raise _refused(self.name, value, f"one of {shown}")


class IntAxis:
    """An integer range."""

    def __init__(self, name: str, dist: RandInt) -> None:
        self.name = name
        self.when = dist.when
        self._low, self._high, self._step = dist.low, dist.high, dist.step
        self._n = len(range(dist.low, dist.high + 1, dist.step))
        self.n_values: int | None = self._n
        # Half a unit beyond both ends gives the ends their full share of a log scale.
        self._log = (math.log(dist.low - 0.5), math.log(dist.high + 0.5)) if dist.log else None

    def from_unit(self, unit: float) -> ParamValue:
        if self._log is None:
            index = int(unit * self._n)
        else:
            low, high = self._log
            index = round((math.exp(low + unit * (high - low)) - self._low) / self._step)
        return self._low + max(0, min(index, self._n - 1)) * self._step

    def to_unit(self, value: ParamValue) -> float:
        number = _number(value)
        if self._log is None:
            return ((number - self._low) / self._step + 0.5) / self._n
        low, high = self._log
        return (math.log(number) - low) / (high - low)

    def check(self, value: object) -> ParamValue:
        wanted = f"an integer in [{self._low}, {self._high}]"
        if self._step != 1:
            wanted += f" in steps of {self._step}"
        if not isinstance(value, int) or isinstance(value, bool):
            raise _refused(self.name, value, wanted)
        index, rest = divmod(value - self._low, self._step)
        if rest or not 0 <= index < self._n:
            raise _refused(self.name, value, wanted)
        return value


class FloatAxis:
    """A float range, continuous or in steps."""

    def __init__(self, name: str, dist: Uniform) -> None:
        self.name = name
        self.when = dist.when
        self._low, self._high, self._step = dist.low, dist.high, dist.step
        self._log = (math.log(dist.low), math.log(dist.high)) if dist.log else None
        self.n_values: int | None = None
        if dist.step is not None:
            self.n_values = n_values(name, dist)

    def from_unit(self, unit: float) -> ParamValue:
        if self._log is not None:
            low, high = self._log
            value = math.exp(low + unit * (high - low))
            if self._step is not None and self.n_values is not None:
                index = round((value - self._low) / self._step)
                return self._at(max(0, min(index, self.n_values - 1)))
        elif self.n_values is not None:
            return self._at(min(int(unit * self.n_values), self.n_values - 1))
        else:
            value = self._low * (1.0 - unit) + self._high * unit  # no overflow of high - low
        return min(max(value, self._low), self._high)

    def to_unit(self, value: ParamValue) -> float:
        number = _number(value)
        if self._log is not None:
            low, high = self._log
            return (math.log(number) - low) / (high - low) if high > low else 0.5
        if self._step is not None and self.n_values is not None:
            return (round((number - self._low) / self._step) + 0.5) / self.n_values
        span = self._high / 2 - self._low / 2
        return (number / 2 - self._low / 2) / span if span else 0.5

    def _at(self, index: int) -> float:
        return self._low + index * (self._step or 0.0)

    def check(self, value: object) -> ParamValue:
        wanted = f"a number in [{self._low}, {self._high}]"
        if self._step is not None:
            wanted += f" in steps of {self._step}"
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _refused(self.name, value, wanted)
        number = float(value)
        slack = (self._step or 0.0) * _STEP_TOLERANCE
        if not self._low - slack <= number <= self._high + slack:  # NaN is refused here, too
            raise _refused(self.name, value, wanted)
        if self._step is not None:
            steps = (number - self._low) / self._step
            if abs(steps - round(steps)) > _STEP_TOLERANCE:
                raise _refused(self.name, value, wanted)
        return number


Axis: TypeAlias = ChoiceAxis | IntAxis | FloatAxis


def make_axes(space: Mapping[str, Distribution]) -> tuple[Axis, ...]:
    """The axes of a space, in declaration order."""
    return tuple(_make_axis(name, dist) for name, dist in space.items())


def _make_axis(name: str, dist: Distribution) -> Axis:
    if isinstance(dist, Choice):
        return ChoiceAxis(name, dist)
    if isinstance(dist, RandInt):
        return IntAxis(name, dist)
    return FloatAxis(name, dist)


def active(axes: Sequence[Axis], params: Mapping[str, ParamValue]) -> dict[str, ParamValue]:
    """Those of ``params`` that a trial has, in declaration order."""
    return active_params(((axis.name, axis.when) for axis in axes), params)


def check_params(axes: Sequence[Axis], params: Mapping[str, object]) -> dict[str, ParamValue]:
    """What a sampler proposed, in declaration order, if a trial can be run with it.

    Parameters of branches that the trial does not take are left out.

    Raises
    ------
    SpecError
        A parameter is missing, unknown, out of range or of a wrong type; the message
        names it.
    """
    names = [axis.name for axis in axes]
    for name in params:
        if name not in names:
            raise SpecError(
                f"the sampler proposed {name!r}, which is not a parameter of this search; "
                f"propose exactly {', '.join(names)}"
            )
    checked: dict[str, ParamValue] = {}
    for axis in axes:
        if not is_active(axis.when, checked):
            continue
        if axis.name not in params:
            raise SpecError(
                f"the sampler proposed no value for {axis.name!r}; propose all of "
                f"{', '.join(names)}" + (", as far as they are active" if axis.when else "")
            )
        checked[axis.name] = axis.check(params[axis.name])
    return checked


def _number(value: ParamValue) -> float:
    if isinstance(value, int | float):
        return value
    raise SpecError(f"{value!r} is not a number; a range needs one")


def _refused(name: str, value: object, wanted: str) -> SpecError:
    shown = repr(value)[:80]
    return SpecError(
        f"the sampler proposed {shown} ({type(value).__name__}) for {name!r}; expected {wanted}"
    )
