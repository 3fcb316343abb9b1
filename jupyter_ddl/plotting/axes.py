"""Axes: few round numbers, evenly spaced, that cover the data."""

from __future__ import annotations

import math

import msgspec

from jupyter_ddl.formats import format_number, format_ticks

__all__ = ["Axis", "count_axis", "log_axis", "value_axis"]

_HUGE = 1e300
_ROUNDING = 1e-4
_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)


class Axis(msgspec.Struct, frozen=True):
    """Evenly spaced ticks, ascending; the axis ends at the first and the last one."""

    ticks: tuple[float, ...]
    labels: tuple[str, ...]

    def place(self, value: float) -> float:
        """Position of ``value``: 0 is the first tick, 1 the last one; others lie outside."""
        low, high = self.ticks[0], self.ticks[-1]
        return (value - low) / (high - low)

    def holds(self, value: float) -> bool:
        """Whether ``value`` lies on the axis, up to rounding."""
        return -_ROUNDING <= self.place(value) <= 1 + _ROUNDING


def value_axis(low: float, high: float, n_steps: int = 4) -> Axis:
    """An axis for values between ``low`` and ``high`` in about ``n_steps`` steps.

    Parameters
    ----------
    low, high : float
        Finite, ``low <= high``; a span that is empty or lost in rounding is widened.
    """
    low, high = (min(_HUGE, max(-_HUGE, value)) for value in (low, high))
    least = max(abs(low), abs(high), 1e-290) * 1e-6
    if high - low < least:
        middle, half = (low + high) / 2, max(abs(low) * 0.05, least * 2, 1e-280)
        low, high = middle - half, middle + half
    step = _round_step((high - low) / n_steps)
    first, last = math.floor(low / step), math.ceil(high / step)
    ticks = tuple(k * step for k in range(first, last + 1))
    return Axis(ticks=ticks, labels=format_ticks(ticks, step))


def count_axis(last: int, n_steps: int = 5) -> Axis:
    """An axis of whole numbers from 0 to at least ``last``, which is at least 1."""
    raw = max(1.0, max(1, last) / n_steps)
    scale = 10.0 ** math.floor(math.log10(raw))
    options = (1, 2, 5, 10) if scale == 1 else (1, 2, 2.5, 5, 10)
    step = int(next(f * scale for f in options if f * scale >= raw))
    n_ticks = math.ceil(max(1, last) / step) + 1
    ticks = tuple(float(k * step) for k in range(n_ticks))
    return Axis(ticks=ticks, labels=format_ticks(ticks, step))


def _round_step(raw: float) -> float:
    scale = 10.0 ** math.floor(math.log10(raw))
    return next((f * scale for f in _ROUND if f * scale >= raw * (1 - 1e-9)), 10 * scale)


def log_axis(low: float, high: float) -> Axis:
    """Powers of ten, or of their two- and fivefold, from at most ``low`` to at least ``high``.

    Places are those of logarithms: :meth:`Axis.place` takes ``math.log10(value)``.

    Parameters
    ----------
    low, high : float
        ``0 < low <= high``.
    """
    least, most = math.log10(low), math.log10(high)
    if most - least < 1e-9:
        least, most = least - 0.5, most + 0.5
    first, last = math.floor(least + 1e-9), math.ceil(most - 1e-9)
    step = max(1, math.ceil((last - first) / 5))
    powers = range(first, last + step, step)
    if len(powers) > 2:
        return Axis(tuple(map(float, powers)), tuple(format_number(10.0**k) for k in powers))
    marks = [f * 10.0**k for k in range(first, last) for f in (1, 2, 5)] + [10.0**last]
    below = [at for at, mark in enumerate(marks) if math.log10(mark) <= least + 1e-9]
    above = [at for at, mark in enumerate(marks) if math.log10(mark) >= most - 1e-9]
    kept = marks[below[-1] if below else 0 : (above[0] if above else len(marks) - 1) + 1]
    return Axis(tuple(map(math.log10, kept)), tuple(map(format_number, kept)))
