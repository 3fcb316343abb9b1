"""Which values count as metrics, and metrics reduced over the ranks of a group."""

from __future__ import annotations

import math
import numbers
import sys
import zlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from jupyter_ddl.errors import TrialError
from jupyter_ddl.formats import shortened

__all__ = [
    "REDUCTIONS",
    "MetricError",
    "ReportError",
    "as_number",
    "check_reduction",
    "final_objective",
    "reduced",
    "shown",
]


# Which values count as a metric, and the objective of a finished attempt.

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
    return shortened(" ".join(text.split()), _SHOWN_CHARS)


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
            f"metric {metric!r} is {shown(value)} ({type(value).__name__}); expected a finite "
            "number",
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


REDUCTIONS = ("mean", "sum", "max", "min")


def check_reduction(how: Any) -> None:
    """Refuse what is none of :data:`REDUCTIONS`."""
    if how is not None and how not in REDUCTIONS:
        raise ReportError(
            f"report(reduce={shown(how)}): expected one of {', '.join(REDUCTIONS)}; "
            f"a metric of your own can't have the name 'reduce'"
        )


def reduced(values: Mapping[str, float], how: str, group: Any = None) -> dict[str, float]:
    """Reduce each metric over a process group's ranks, by default all, in 64 bits.  Collective.

    Raises
    ------
    ReportError
        There is no process group, or ranks gave other names.
    """
    torch: Any = sys.modules.get("torch")
    distributed: Any = sys.modules.get("torch.distributed")
    if torch is None or distributed is None or not distributed.is_initialized():
        raise ReportError(
            f"report(reduce={how!r}) needs torch's process group, which is not initialised; "
            f"import torch in the cell, and call init_process_group() with --no-init"
        )
    names = sorted(values)
    # Ranks that give other names would reduce loss with accuracy: an unequal sum tells.
    mark = float(zlib.crc32("\0".join(names).encode()))
    device = torch.device("cuda" if distributed.get_backend(group) == "nccl" else "cpu")
    numbers = torch.tensor(
        [mark, *(values[name] for name in names)], dtype=torch.float64, device=device
    )
    operation = (
        distributed.ReduceOp.SUM if how == "mean" else getattr(distributed.ReduceOp, how.upper())
    )
    distributed.all_reduce(numbers, op=operation, group=group)
    n_ranks = distributed.get_world_size(group)
    seen, *results = numbers.tolist()
    if seen != (mark * n_ranks if how in ("mean", "sum") else mark):
        raise _other_names(names, how)
    if how == "mean":
        results = [value / n_ranks for value in results]
    return dict(zip(names, results, strict=True))


def combined(found: Sequence[Mapping[str, float]], how: str) -> dict[str, float]:
    """Reduce what ranks have told of each metric, this rank's first, in 64 bits.

    Raises
    ------
    ReportError
        Ranks gave other names.
    """
    names = sorted(found[0])
    if any(sorted(each) != names for each in found):
        raise _other_names(names, how)
    by_name = {name: [each[name] for each in found] for name in names}
    if how in ("max", "min"):
        return {name: (max if how == "max" else min)(each) for name, each in by_name.items()}
    n_ranks = len(found) if how == "mean" else 1
    return {name: sum(each) / n_ranks for name, each in by_name.items()}


def _other_names(names: Sequence[str], how: str) -> ReportError:
    return ReportError(
        f"report(reduce={how!r}) got the metrics {', '.join(names)} on this rank and others on "
        f"another one; every rank must report the same names"
    )
