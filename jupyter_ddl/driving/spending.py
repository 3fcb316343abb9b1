"""What a run has spent over all of its sessions, and when its budget is.  Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from jupyter_ddl.driving.machine import Now, earliest
from jupyter_ddl.formats import format_held, format_money
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.spending import spending_rows
from jupyter_ddl.protocol.events import Spent
from jupyter_ddl.protocol.prices import Budget, Held, Reading
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.snapshot import SpendingRow

__all__ = ["Spending", "budget_text"]

_RECORD_S = 60.0
"""What a run holds stands in its record as often: a controller that is killed forgets no more."""
_LEAST_WAIT_S = 0.05
"""A budget is spent a little later than its rate says: nobody looks more often than this."""
_HOUR_S = 3600.0


class Spending:
    """The meter of one run in one session.

    Parameters
    ----------
    read : callable
        The meter now; None where nobody measures.
    """

    def __init__(self, spec: RunSpec, read: Callable[[], Reading | None]) -> None:
        self._spec = spec
        self._read = read
        self._before = Held()
        """Of the sessions before."""
        self._base: Held | None = None
        """What the meter stood at when this session began; None where nothing is counted."""
        self._budget: Budget | None = None
        self._record_at_s: float | None = None

    def begin(self, state: RunState, now: Now) -> None:
        """Go on from what the record tells of the sessions before."""
        budget = state.budget
        self._budget = None if isinstance(budget, msgspec.UnsetType) else budget
        if self._budget is None and self._spec.prices is msgspec.UNSET:
            return
        self._before = state.spent
        self._base = self._reading().held
        self._record_at_s = now.mono_s + _RECORD_S

    def total(self) -> Held | msgspec.UnsetType:
        """Of all sessions; unset where nothing counts it."""
        return msgspec.UNSET if self._base is None else self._total(self._base, self._reading())

    def look(self, now: Now) -> tuple[tuple[Spent, ...], str]:
        """What is to be written down by now, and why the run is to end: its budget is spent.

        It is written once a minute, and before the stop: one whose cause is not on record would
        end the next session for nothing.
        """
        if self._base is None or self._record_at_s is None:
            return (), ""
        total = self._total(self._base, self._reading())
        reason = self._reason_to_end(total)
        if now.mono_s < self._record_at_s and not reason:
            return (), ""
        self._record_at_s = now.mono_s + _RECORD_S
        return (Spent(now.wall_s, total),), reason

    def due_s(self, now: Now) -> float | None:
        """When there is something to write down, or the budget will be spent at this rate."""
        if self._base is None:
            return None
        return earliest(self._record_at_s, self._spent_at_s(self._base, now))

    def rows(self, state: RunState, now: Now) -> tuple[SpendingRow, ...]:
        """For snapshots; they stay true as long as it holds what it holds now."""
        if self._base is None:
            return ()
        reading = self._reading()
        total = self._total(self._base, reading)
        return spending_rows(state, total, reading.per_hour, now.wall_s)

    @property
    def mark(self) -> object:
        """What the rows of a snapshot would differ by, but for the time that has passed."""
        return None if self._base is None else self._reading().per_hour

    def _spent_at_s(self, base: Held, now: Now) -> float | None:
        reading, budget = self._reading(), self._budget
        if budget is None or reading.per_hour.value(budget.unit) <= 0:
            return None
        left = budget.amount - self._total(base, reading).value(budget.unit)
        left_s = left / reading.per_hour.value(budget.unit) * _HOUR_S
        return now.mono_s + max(left_s, _LEAST_WAIT_S)

    def _reason_to_end(self, total: Held) -> str:
        budget, prices = self._budget, self._spec.prices
        if budget is None or total.value(budget.unit) < budget.amount:
            return ""
        currency = "" if isinstance(prices, msgspec.UnsetType) else prices.currency
        return f"stopped by its budget of {budget_text(budget, currency)}, which is spent"

    def _total(self, base: Held, reading: Reading) -> Held:
        return self._before + reading.held.beyond(base)

    def _reading(self) -> Reading:
        return self._read() or Reading(Held(), Held())


def budget_text(budget: Budget, currency: str) -> str:
    """A budget as people read it."""
    if budget.unit == "money":
        return format_money(budget.amount, currency)
    return format_held(budget.amount, "CPU" if budget.unit == "cpuh" else "GPU")
