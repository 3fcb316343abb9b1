"""How many workers an adaptive cluster should have.  Pure."""

from __future__ import annotations

__all__ = ["wanted_workers"]

_SHRINK_AFTER_S = 30.0
"""Surplus workers stay this long: starting one costs more than keeping it."""


def wanted_workers(
    demand_slots: int, current: int, minimum: int, maximum: int, surplus_for_s: float
) -> int:
    """Number of one-slot workers to ask for.

    Parameters
    ----------
    demand_slots
        Trials that could run at once.
    surplus_for_s
        Seconds for which demand has been below ``current``.
    """
    target = min(max(demand_slots, minimum), maximum)
    if target >= current or surplus_for_s >= _SHRINK_AFTER_S:
        return target
    return min(current, maximum)
