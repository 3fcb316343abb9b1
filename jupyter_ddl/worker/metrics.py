"""Which values count as a metric, and the objective of a finished attempt."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from jupyter_ddl.errors import TrialError

__all__ = ["MetricError", "ReportError", "as_number", "final_objective", "shown"]

_SHOWN_CHARS = 60
_NAMES_SHOWN = 12


class ReportError(TrialError, ValueError):
    """``report`` or ``checkpoint`` was called with something it cannot record."""


class MetricError(ReportError):
    """The objective is missing or not a finite real number."""


def shown(value: object) -> str:
    """``repr`` of a value, short and safe enough for one line of a message."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a broken __repr__ of the user must not hide the fault
        text = f"<repr failed: {type(error).__name__}>"
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"


def as_number(value: Any) -> float | None:
    """Turn a real number into a float.

    Parameters
    ----------
    value : object
        A Python or numpy number, or an array or tensor with one element (read from its
        device).

    Returns
    -------
    float or None
        None for everything else: bool, complex, str, None, larger arrays.
    """
    kind = type(value)
    if kind is float or kind is int:
        return _to_float(value)
    if kind is bool or value is None or kind is str:
        return None
    if isinstance(value, numbers.Real | Decimal):
        return _to_float(value)
    item = getattr(value, "item", None)
    if not callable(item) or isinstance(value, type):
        return None
    try:
        element = item()
    except (ValueError, RuntimeError, TypeError):  # more than one element
        return None
    if isinstance(element, bool) or not isinstance(element, numbers.Real):
        return None
    return _to_float(element)


def _to_float(value: Any) -> float | None:
    try:
        return float(value)
    except (OverflowError, ValueError, TypeError):
        return None


def final_objective(
    metric: str, reported: Mapping[str, float], namespace: Mapping[str, Any], first_names: set[str]
) -> float:
    """Objective of an attempt that ran to its end.

    The last reported value counts; without one, the final value of the top-level name.

    Parameters
    ----------
    first_names : set of str
        Names that were there before the cell ran, left out of the list in the message.

    Raises
    ------
    MetricError
        When there is no such value, or it is not a finite real number.
    """
    if metric in reported:
        value: Any = reported[metric]
    elif metric in namespace:
        value = namespace[metric]
    else:
        raise MetricError(_missing(metric, reported, namespace, first_names), metric=metric)
    number = as_number(value)
    if number is None or not math.isfinite(number):
        raise MetricError(
            f"metric {metric!r} is {shown(value)} ({type(value).__name__}); "
            f"a finite number was expected",
            metric=metric,
        )
    return number


def _missing(
    metric: str, reported: Mapping[str, float], namespace: Mapping[str, Any], first_names: set[str]
) -> str:
    seen = list(reported)
    seen += [
        name
        for name, value in namespace.items()
        if name not in first_names
        and name not in reported
        and not name.startswith("_")
        # Asking a large tensor for its item would copy nothing, but its names are noise here.
        and as_number(value) is not None
    ]
    if not seen:
        names = "none"
    else:
        more = len(seen) - _NAMES_SHOWN
        names = ", ".join(seen[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"no value named {metric!r} was reported or assigned; names seen: {names}"
