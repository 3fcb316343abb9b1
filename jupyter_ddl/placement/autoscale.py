"""How many workers an adaptive cluster should have.  Pure."""

from __future__ import annotations

__all__ = ["wanted_workers"]


def wanted_workers(
    demand_slots: int,
    current: int,
    minimum: int,
    maximum: int,
    *,
    may_shrink: bool,
    slots_per_worker: int = 1,
) -> int:
    """Number of workers to ask for.

    Parameters
    ----------
    demand_slots
        Trials that could run at once.
    may_shrink
        Whether demand has been below ``current`` for so long that surplus workers go: starting
        one costs more than keeping it for a while.
    """
    target = min(max(-(-demand_slots // slots_per_worker), minimum), maximum)
    if target >= current or may_shrink:
        return target
    return min(current, maximum)
