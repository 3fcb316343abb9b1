"""Distributions as values: ``jupyter_ddl.dist.loguniform(1e-4, 1e-1)`` for ``--space``.

In a cell the functions of the same names return a plain default, so a notebook's dict of
them would hold plain numbers.  These return the specs; the reader of cells uses them too, so
a distribution is checked in one place only.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jupyter_ddl.errors import SpaceError
from jupyter_ddl.formats import shortened
from jupyter_ddl.protocol.space import (
    Choice,
    Distribution,
    ParamValue,
    RandInt,
    Uniform,
    validate_distribution,
)

__all__ = [
    "FUNCTIONS",
    "build",
    "choice",
    "choice_values",
    "label_of",
    "loguniform",
    "plain_scalar",
    "randint",
    "recorded",
    "uniform",
]

_LABEL_LENGTH = 40


def uniform(
    low: float, high: float, *, default: float | None = None, step: float | None = None
) -> Uniform:
    """A float in ``[low, high]``, or one of ``low + k * step``.

    Raises
    ------
    SpaceError
        When nothing can be drawn from it, or ``default`` lies outside.
    """
    return _uniform("uniform()", low, high, default=default, step=step)


def loguniform(low: float, high: float, *, default: float | None = None) -> Uniform:
    """A float in ``[low, high]`` whose logarithm is even; ``low`` must be above 0.

    Raises
    ------
    SpaceError
        As for :func:`uniform`.
    """
    return _loguniform("loguniform()", low, high, default=default)


def randint(
    low: int, high: int, *, default: int | None = None, log: bool = False, step: int = 1
) -> RandInt:
    """An integer in ``[low, high]``, both ends included.

    Raises
    ------
    SpaceError
        As for :func:`uniform`, and for numbers that are not whole.
    """
    return _randint("randint()", low, high, default=default, log=log, step=step)


def choice(*values: Any, default: Any = None) -> Choice:
    """One of several values; a single list or tuple stands for its elements.

    Values that are not scalars are recorded by labels, and a rank picks them by position.

    Raises
    ------
    SpaceError
        For no values, equal values, or a ``default`` that is none of them.
    """
    return _choice("choice()", *values, default=default)


def choice_values(values: Sequence[Any]) -> tuple[Any, ...]:
    """The values that ``choice(*values)`` chooses from: ``choice([a, b])`` is ``choice(a, b)``."""
    if len(values) == 1 and isinstance(values[0], list | tuple):
        return tuple(values[0])
    return tuple(values)


def build(
    function: str, name: str, args: Sequence[Any], keywords: Mapping[str, Any]
) -> Distribution:
    """The distribution that a call of ``function`` declares for the hyper-parameter ``name``.

    Raises
    ------
    SpaceError
        For wrong arguments; the message names ``name``.
    """
    try:
        return FUNCTIONS[function](name, *args, **keywords)
    except TypeError as error:
        raise SpaceError(f"{name}: {_plain_signature_error(function, error)}") from None


def plain_scalar(value: Any) -> Any:
    """``value`` with a numpy scalar turned into the Python scalar that it stands for."""
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    return value


def label_of(value: Any) -> str:
    """A short text that stands for a value which cannot be recorded itself."""
    name = getattr(value, "__name__", None)
    text = name if isinstance(name, str) else " ".join(repr(value).split())
    return shortened(text, _LABEL_LENGTH)


def recorded(value: Any) -> ParamValue:
    """What stands for a choice in records: a scalar itself, anything else by its label."""
    plain = plain_scalar(value)
    return plain if _is_scalar(plain) else label_of(plain)


def _uniform(
    name: str, low: Any, high: Any, *, default: Any = None, step: Any = None, log: bool = False
) -> Uniform:
    dist = Uniform(
        low=_number(name, "low", low),
        high=_number(name, "high", high),
        default=None if default is None else _number(name, "default", default),
        step=None if step is None else _number(name, "step", step),
        log=log,
    )
    validate_distribution(name, dist)
    _check_default(name, dist)
    return dist


def _loguniform(name: str, low: Any, high: Any, *, default: Any = None) -> Uniform:
    return _uniform(name, low, high, default=default, log=True)


def _randint(
    name: str, low: Any, high: Any, *, default: Any = None, log: Any = False, step: Any = 1
) -> RandInt:
    dist = RandInt(
        low=_whole(name, "low", low),
        high=_whole(name, "high", high),
        default=None if default is None else _whole(name, "default", default),
        log=bool(log),
        step=_whole(name, "step", step),
    )
    validate_distribution(name, dist)
    _check_default(name, dist)
    return dist


def _choice(name: str, *values: Any, default: Any = None) -> Choice:
    items = tuple(plain_scalar(value) for value in choice_values(values))
    by_index = not all(_is_scalar(item) for item in items)
    labels = tuple(map(recorded, items))
    for position, item in enumerate(labels):
        if item in labels[:position]:
            raise SpaceError(
                f"{name}: choice() has the value {item!r} twice; values (or, for objects, "
                f"their names) must differ"
            )
    chosen = None if default is None else _recorded_default(name, default, items, labels)
    dist = Choice(values=labels, default=chosen, by_index=by_index)
    validate_distribution(name, dist)
    return dist


def _recorded_default(
    name: str, default: Any, items: tuple[Any, ...], labels: tuple[ParamValue, ...]
) -> ParamValue:
    wanted = plain_scalar(default)
    for item, label in zip(items, labels, strict=True):
        if item is wanted or (_is_scalar(wanted) and _is_scalar(item) and item == wanted):
            return label
        # Containers are compared by what they show: == of arrays is not a single answer.
        if not _is_scalar(wanted) and label_of(wanted) == label:
            return label
    shown = ", ".join(str(label) for label in labels)
    raise SpaceError(f"{name}: default {label_of(default)} is not one of the values {shown}")


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _number(name: str, what: str, value: Any) -> float:
    plain = plain_scalar(value)
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        raise SpaceError(f"{name}: {what} is {label_of(value)}; expected a number")
    return float(plain)


def _whole(name: str, what: str, value: Any) -> int:
    plain = plain_scalar(value)
    if isinstance(plain, float) and math.isfinite(plain) and plain == int(plain):
        return int(plain)
    if isinstance(plain, bool | float):
        raise SpaceError(f"{name}: {what} is {plain!r}; randint expects a whole number")
    try:
        return operator.index(plain)
    except TypeError:
        raise SpaceError(
            f"{name}: {what} is {label_of(value)}; randint expects a whole number"
        ) from None


def _check_default(name: str, dist: Uniform | RandInt) -> None:
    if dist.default is not None and not dist.low <= dist.default <= dist.high:
        raise SpaceError(
            f"{name}: default {dist.default} lies outside {dist.low} … {dist.high}; "
            f"move it inside or widen the range"
        )


def _plain_signature_error(function: str, error: TypeError) -> str:
    """The interpreter's sentence about a wrong call, with the name that the user wrote."""
    text = str(error)
    return text.replace(f"_{function}()", f"{function}()").replace("missing 1 required", "needs 1")


FUNCTIONS: dict[str, Callable[..., Distribution]] = {
    "uniform": _uniform,
    "loguniform": _loguniform,
    "randint": _randint,
    "choice": _choice,
}
"""Declaring functions by name; each takes the hyper-parameter's name first."""
