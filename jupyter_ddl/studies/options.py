"""Options of our own samplers and pruners: known names, numbers in range, defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from jupyter_ddl.errors import SpecError
from jupyter_ddl.nearest import did_you_mean

__all__ = ["NumberOption", "read_options", "unknown_name"]


class NumberOption(msgspec.Struct, frozen=True):
    """One option: a number in ``[low, high]``, an integer unless ``real``."""

    default: float | None
    low: float
    high: float = float("inf")
    real: bool = False


def read_options(
    owner: str, given: Mapping[str, object], allowed: Mapping[str, NumberOption]
) -> dict[str, float | None]:
    """The value of every allowed option: as given, or its default.

    Raises
    ------
    SpecError
        An option is unknown, or its value is not a number in range.
    """
    for name in given:
        if name not in allowed:
            raise unknown_name(f"{owner}: unknown option", name, allowed, "it takes")
    values: dict[str, float | None] = {}
    for name, option in allowed.items():
        value = given.get(name)
        values[name] = option.default if value is None else _checked(owner, name, value, option)
    return values


def unknown_name(what: str, name: str, known: Iterable[str], lead: str) -> SpecError:
    """The error for a name that is not among ``known``, with the nearest one."""
    names = list(known)
    listed = ", ".join(names) or "no options"
    return SpecError(f"{what} {name!r}; {lead} {listed}{did_you_mean(name, names)}")


def _checked(owner: str, name: str, value: object, option: NumberOption) -> float:
    kind = "a number" if option.real else "an integer"
    top = "" if option.high == float("inf") else f" and <= {option.high:g}"
    wanted = f"{kind} >= {option.low:g}{top}"
    types = int | float if option.real else int
    if (
        not isinstance(value, types)
        or isinstance(value, bool)
        or not option.low <= value <= option.high
    ):
        raise SpecError(f"{owner}: option {name} is {value!r}; it must be {wanted}")
    return value
