"""What a cell may call: ``report``, ``checkpoint``, ``resume``, ``rank`` … and distributions.

The same functions work in plain execution, where no attempt is in progress, so a cell runs
anywhere by changing only its first line.  This module imports nothing heavy.
"""

from __future__ import annotations

import importlib
import math
import operator
import sys
import time
from collections.abc import Mapping
from typing import Any, Protocol

__all__ = [
    "checkpoint",
    "choice",
    "device",
    "local_rank",
    "log",
    "loguniform",
    "prepare",
    "randint",
    "rank",
    "report",
    "resume",
    "uniform",
    "world_size",
]


class AttemptInProgress(Protocol):
    """What these functions need from the attempt that this process executes."""

    rank: int
    world_size: int
    local_rank: int

    def report(self, step: int | None, metrics: Mapping[str, Any]) -> None: ...
    def checkpoint(self, step: int | None, state: Mapping[str, Any]) -> None: ...
    def resume(self) -> dict[str, Any] | None: ...


_attempt: AttemptInProgress | None = None
_plain_step = -1


def set_attempt(attempt: AttemptInProgress | None) -> None:
    """Name the attempt that the following calls belong to; None: plain execution."""
    global _attempt
    _attempt = attempt


def report(step: int | None = None, **metrics: Any) -> None:
    """Record metrics at a step.

    In a run this is also the point at which a pruned or cancelled attempt ends.  In plain
    execution it prints one line.

    Parameters
    ----------
    step : int, optional
        Must grow within an attempt.  Without it, steps count from 0.
    **metrics
        Real numbers, numpy scalars or one-element arrays and tensors.

    Raises
    ------
    ReportError
        A value is not a number, or ``step`` does not grow.
    """
    if _attempt is not None:
        _attempt.report(step, metrics)
        return
    _report_plainly(step, metrics)


def checkpoint(step: int | None = None, **state: Any) -> None:
    """Save state that a later attempt at this trial can go on from.

    The file is whole or absent; the two newest are kept.

    Parameters
    ----------
    step : int, optional
        Step that the state belongs to; by default the last reported one.
    **state
        Numbers, strings, lists, dicts, arrays, tensors, and objects with ``state_dict()``.

    Raises
    ------
    ReportError
        A part of the state is none of these; the message says which.
    """
    if _attempt is not None:
        _attempt.checkpoint(step, state)
        return
    at = "" if step is None else f" step {step}"
    _write_line(f"checkpoint{at}: {', '.join(state)} (not saved: the cell runs without a run)")


def resume() -> dict[str, Any] | None:
    """Return the newest saved state of this trial, ``step`` included, or None."""
    return None if _attempt is None else _attempt.resume()


def rank() -> int:
    """Return the number of this process in its rank group, from 0."""
    return 0 if _attempt is None else _attempt.rank


def world_size() -> int:
    """Return the number of processes in the rank group."""
    return 1 if _attempt is None else _attempt.world_size


def local_rank() -> int:
    """Return the number of this process on its host, from 0."""
    return 0 if _attempt is None else _attempt.local_rank


def device() -> Any:
    """Return this rank's ``torch.device`` (``"cpu"`` as text where torch is not installed)."""
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError:
        return "cpu"
    name = f"cuda:{local_rank()}" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def prepare(*objects: Any) -> Any:
    """Make models, optimizers and loaders ready for this rank.

    Modules move to :func:`device`; everything else comes back as it is.

    Returns
    -------
    object or tuple
        The object, or all of them in order when several were given.
    """
    torch = sys.modules.get("torch")
    ready = tuple(
        each.to(device()) if torch is not None and isinstance(each, torch.nn.Module) else each
        for each in objects
    )
    return ready[0] if len(ready) == 1 else ready


def log(*values: object) -> None:
    """Print values behind the time of day."""
    _write_line(f"{time.strftime('%H:%M:%S')} {' '.join(map(str, values))}")


def display(*values: object) -> None:
    """Print what a notebook would show: IPython's function of this name is not in a rank."""
    for value in values:
        _write_line(str(value))


def get_ipython() -> None:
    """Return None, as IPython's function does where there is no shell."""


def namespace_defaults() -> dict[str, Any]:
    """Names that every cell sees unless it, or the notebook, has its own."""
    functions = {name: globals()[name] for name in (*__all__, "display", "get_ipython")}
    return {"jupyter_ddl": importlib.import_module("jupyter_ddl"), **functions}


def uniform(
    low: float, high: float, *, default: float | None = None, step: float | None = None
) -> float:
    """Return a float in ``[low, high]``: the trial's under ``search``, else the default.

    Without ``default`` the middle of the range.
    """
    _check("uniform", low, high, default=default, step=step)
    if default is not None:
        return default
    middle = low + (high - low) / 2
    return middle if step is None else low + (middle - low) // step * step


def loguniform(low: float, high: float, *, default: float | None = None) -> float:
    """Return a float in ``[low, high]`` whose logarithm is drawn evenly; ``low > 0``.

    Without ``default`` the geometric mean.
    """
    _check("loguniform", low, high, default=default)
    return _geometric_mean(low, high) if default is None else default


def randint(
    low: int, high: int, *, default: int | None = None, log: bool = False, step: int = 1
) -> int:
    """Return an integer in ``[low, high]``, both ends included.

    Without ``default`` the middle of the range (the geometric mean with ``log``).
    """
    _check("randint", low, high, default=default, log=log, step=step)
    if default is not None:
        return default
    middle = round(_geometric_mean(low, high)) if log else low + (high - low) // 2
    return low + (middle - low) // step * step


def choice(*values: Any, default: Any = None) -> Any:
    """Return one of the values: the trial's under ``search``, else the default or the first.

    A single list or tuple stands for its elements.
    """
    _check("choice", *values, default=default)
    if default is not None:
        return default
    first = values[0]
    return first[0] if len(values) == 1 and isinstance(first, list | tuple) else first


def _geometric_mean(low: float, high: float) -> float:
    return math.sqrt(low) * math.sqrt(high)


def _check(function: str, *bounds: Any, **options: Any) -> None:
    """Refuse in plain execution what a search would refuse."""
    # Only here: specs are heavier than all of this module.
    dist = importlib.import_module("jupyter_ddl.dist")
    getattr(dist, function)(*bounds, **options)


def _report_plainly(step: int | None, metrics: Mapping[str, Any]) -> None:
    from jupyter_ddl.worker.metrics import ReportError, as_number, shown

    global _plain_step
    _plain_step = _plain_step + 1 if step is None else operator.index(step)
    parts = [f"step {_plain_step}"]
    for name, value in metrics.items():
        number = as_number(value)
        if number is None:
            raise ReportError(
                f"metric {name!r} is {shown(value)} ({type(value).__name__}); "
                f"a number was expected",
                metric=name,
            )
        parts.append(f"{name}={number:.6g}")
    _write_line("  ".join(parts))


def _write_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
