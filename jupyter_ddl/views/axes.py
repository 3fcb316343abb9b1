"""Axis ticks: few round numbers, evenly spaced, that cover the data."""

from __future__ import annotations

import math

import msgspec

from jupyter_ddl.views.format import format_number

__all__ = ["Axis", "count_axis", "value_axis"]

_HUGE = 1e300
_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)


class Axis(msgspec.Struct, frozen=True):
    """Evenly spaced ticks, ascending; the axis ends at the first and the last one."""

    ticks: tuple[float, ...]
    labels: tuple[str, ...]

    def place(self, value: float) -> float:
        """Position of ``value`` from 0 (first tick) to 1 (last), clamped to that range."""
        low, high = self.ticks[0], self.ticks[-1]
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def holds(self, value: float) -> bool:
        return self.ticks[0] <= value <= self.ticks[-1]


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
    return Axis(ticks=ticks, labels=_labels(ticks, step))


def count_axis(last: int, n_steps: int = 5) -> Axis:
    """An axis of whole numbers from 0 to at least ``last``, which is at least 1."""
    raw = max(1.0, max(1, last) / n_steps)
    scale = 10.0 ** math.floor(math.log10(raw))
    options = (1, 2, 5, 10) if scale == 1 else (1, 2, 2.5, 5, 10)
    step = int(next(f * scale for f in options if f * scale >= raw))
    n_ticks = math.ceil(max(1, last) / step) + 1
    ticks = tuple(float(k * step) for k in range(n_ticks))
    return Axis(ticks=ticks, labels=tuple(f"{int(tick):,}" for tick in ticks))


def _round_step(raw: float) -> float:
    scale = 10.0 ** math.floor(math.log10(raw))
    return next((f * scale for f in _ROUND if f * scale >= raw * (1 - 1e-9)), 10 * scale)


def _labels(ticks: tuple[float, ...], step: float) -> tuple[str, ...]:
    largest = max(abs(ticks[0]), abs(ticks[-1]))
    if largest >= 1e6 or step < 1e-5:
        n_digits = max(0, math.ceil(math.log10(largest / step)))
        return tuple(_scientific(tick, n_digits) for tick in ticks)
    if step >= 1 and step == int(step):
        return tuple(format_number(int(tick)) for tick in ticks)
    n_decimals = max(0, -math.floor(math.log10(step)))
    if round(step, n_decimals) != round(step, n_decimals + 1):  # a step of 2.5
        n_decimals += 1
    return tuple(f"{tick + 0.0:.{n_decimals}f}" for tick in ticks)


def _scientific(tick: float, n_digits: int) -> str:
    if tick == 0:
        return "0"
    mantissa, _, exponent = f"{tick:.{min(n_digits, 9)}e}".partition("e")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}"
