"""What a run has spent, as its snapshots and lists show it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from jupyter_ddl.formats import format_held, format_money
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.prices import Budget, BudgetUnit, Held
from jupyter_ddl.protocol.snapshot import SpendingRow

__all__ = ["Cost", "cost_of", "currency_of", "spending_rows"]


class Cost(NamedTuple):
    """What a run has cost and held, in all of its sessions."""

    amount: float | None
    """None: there was no table of prices when it was submitted."""
    currency: str
    cpu_hours: float
    gpu_hours: float

    def __str__(self) -> str:
        held = format_held(self.cpu_hours, "CPU")
        if self.gpu_hours:
            held += f", {format_held(self.gpu_hours, 'GPU')}"
        return held if self.amount is None else format_money(self.amount, self.currency)


def cost_of(state: RunState) -> Cost:
    """As far as a run's record tells."""
    spent, end = state.spent, state.end
    if end is not None and end.usage is not None and not spent.cpu_hours:
        # Without prices and budget only the end tells what was held.
        return Cost(None, "", end.usage.cpu_hours, end.usage.gpu_hours)
    return Cost(spent.amount, currency_of(state), spent.cpu_hours, spent.gpu_hours)


def currency_of(state: RunState) -> str:
    """Of the run's prices; empty where it has none."""
    prices = msgspec.UNSET if state.spec is None else state.spec.prices
    return "" if isinstance(prices, msgspec.UnsetType) else prices.currency


def spending_rows(
    state: RunState, total: Held, per_hour: Held, at_s: float
) -> tuple[SpendingRow, ...]:
    """Money, where there are prices, and the hours of a budget in hours.

    Parameters
    ----------
    at_s : float
        Unix seconds at which ``total`` held; ``per_hour`` comes on top of it since.
    """
    units: list[BudgetUnit] = []
    if currency := currency_of(state):
        units.append("money")
    budget = state.budget
    if isinstance(budget, Budget) and budget.unit not in units:
        units.append(budget.unit)
    return tuple(
        SpendingRow(
            unit=unit,
            currency=currency if unit == "money" else "",
            amount=total.value(unit),
            at_s=at_s,
            per_hour=per_hour.value(unit),
            budget=budget.amount if isinstance(budget, Budget) and budget.unit == unit else None,
        )
        for unit in units
    )
