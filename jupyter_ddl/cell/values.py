"""Converters of option values: durations, sizes, names, choices, grids."""

from __future__ import annotations

import argparse
import ast
import keyword
import re
from collections.abc import Callable

from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.protocol.space import ParamValue

__all__ = ["count", "duration_s", "grid", "identifier", "names", "one_of", "size_bytes"]

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY_BYTES = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def duration_s(text: str) -> float:
    """Seconds in ``90``, ``90s``, ``5m``, ``2h``, ``1d`` or a sum of them such as ``1h30m``."""
    stripped = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", stripped):
        total = float(stripped)
    elif re.fullmatch(r"(\d+(\.\d+)?[smhd])+", stripped):
        parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", stripped)
        total = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    else:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a duration; expected e.g. 90s, 5m, 2h or 1d"
        )
    if total <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; it must be above 0")
    return total


def size_bytes(text: str) -> int:
    """Bytes in ``500000``, ``64MB`` or ``2GiB``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; expected e.g. 500MB or 2GiB")
    number, unit, binary = match.groups()
    factor = (_BINARY_BYTES if binary else _BYTES).get(unit.upper() or "B", 1)
    n_bytes = int(float(number) * factor)
    if n_bytes <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; it must be above 0")
    return n_bytes


def count(low: int, high: int | None = None) -> Callable[[str], int]:
    """Converter to a whole number of at least ``low`` (and at most ``high``)."""
    bounds = f"of at least {low}" if high is None else f"from {low} to {high}"

    def convert(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = None
        if number is None or number < low or (high is not None and number > high):
            raise argparse.ArgumentTypeError(f"{text!r}; expected a whole number {bounds}")
        return number

    return convert


def one_of(*allowed: str) -> Callable[[str], str]:
    """Converter that lets only ``allowed`` pass."""

    def convert(text: str) -> str:
        if text not in allowed:
            hint = did_you_mean(text, allowed)
            raise argparse.ArgumentTypeError(
                f"{text!r} is not a choice; expected {', '.join(allowed)}{hint}"
            )
        return text

    return convert


def identifier(text: str) -> str:
    """A name that Python can bind."""
    name = text.strip()
    if not name.isidentifier() or keyword.iskeyword(name):
        raise argparse.ArgumentTypeError(f"{text!r} is not a Python name")
    return name


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas."""
    return tuple(dict.fromkeys(identifier(part) for part in text.split(",") if part.strip()))


def grid(text: str) -> tuple[str, tuple[ParamValue, ...]]:
    """``lr=0.1,0.01`` as a name and its values; bare words are strings."""
    left, equals, right = text.partition("=")
    if not equals or not right.strip():
        raise argparse.ArgumentTypeError(f"{text!r}; expected NAME=VALUE,VALUE,… e.g. lr=0.1,0.01")
    return identifier(left), tuple(_grid_value(part) for part in _split(right.strip()))


def _split(text: str) -> list[str]:
    """Parts between the commas of ``text``, commas in quotes kept."""
    if len(text) > 1 and text[0] in "[(" and text[-1] in "])":
        text = text[1:-1]
    parts = re.findall(r"""(?:"[^"]*"|'[^']*'|[^,])+""", text)
    return [part.strip() for part in parts if part.strip()]


def _grid_value(text: str) -> ParamValue:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        if re.fullmatch(r"[\w.+/:@-]+", text) and text not in ("nan", "inf", "-inf"):
            return text
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a number, a quoted string nor a word"
        ) from None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise argparse.ArgumentTypeError(
        f"{text!r} is a {type(value).__name__}; grid values are numbers, strings, True, False "
        f"or None, so declare the name with choice(…) in the cell"
    )
