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

    def __init__(self, spec: RunSpec, read: Callable[[RunSpec], Reading | None]) -> None:
        self._spec = spec
        self._read = read
        self._before = Held()
        """Of the sessions before."""
        self._base: Held | None = None
        """What the meter stood at when this session began."""
        self._budget: Budget | msgspec.UnsetType = spec.limits.budget
        self._record_at_s: float | None = None

    @property
    def _counts(self) -> bool:
        return self._spec.prices is not msgspec.UNSET or self._budget is not msgspec.UNSET

    def begin(self, state: RunState, now: Now) -> None:
        """Go on from what the record tells of the sessions before."""
        self._budget = state.budget
        if not self._counts:
            return
        self._before = state.spent
        self._base = self._held_now()
        self._record_at_s = now.mono_s + _RECORD_S

    def total(self) -> Held | msgspec.UnsetType:
        """Of all sessions; unset where nothing counts it."""
        if self._base is None:
            return msgspec.UNSET
        return self._before + self._held_now().beyond(self._base)

    def is_spent(self) -> bool:
        """Whether the budget is."""
        total, budget = self.total(), self._budget
        if isinstance(total, msgspec.UnsetType) or isinstance(budget, msgspec.UnsetType):
            return False
        return total.value(budget.unit) >= budget.amount

    @property
    def reason(self) -> str:
        """Why a run that has spent its budget ends."""
        return f"stopped by its budget of {self._budget_text}, which is spent"

    @property
    def _budget_text(self) -> str:
        prices, budget = self._spec.prices, self._budget
        if isinstance(budget, msgspec.UnsetType):
            return ""
        currency = "" if isinstance(prices, msgspec.UnsetType) else prices.currency
        return budget_text(budget, currency)

    def to_record(self, now: Now) -> Spent | None:
        """What is to be written down by now: once a minute, and before a budget ends the run.

        A stop whose cause is not on record would end a next session for nothing.
        """
        total, at_s = self.total(), self._record_at_s
        if isinstance(total, msgspec.UnsetType) or at_s is None:
            return None
        if now.mono_s < at_s and not self.is_spent():
            return None
        self._record_at_s = now.mono_s + _RECORD_S
        return Spent(now.wall_s, total)

    def due_s(self, now: Now) -> float | None:
        """When there is something to write down, or the budget will be spent at this rate."""
        return earliest(self._record_at_s, self._spent_at_s(now))

    def _spent_at_s(self, now: Now) -> float | None:
        total, budget = self.total(), self._budget
        if isinstance(total, msgspec.UnsetType) or isinstance(budget, msgspec.UnsetType):
            return None
        per_hour = self._rate().value(budget.unit)
        if per_hour <= 0:
            return None
        left_s = (budget.amount - total.value(budget.unit)) / per_hour * _HOUR_S
        return now.mono_s + max(left_s, _LEAST_WAIT_S)

    def rows(self, state: RunState, now: Now) -> tuple[SpendingRow, ...]:
        """For snapshots; they stay true as long as it holds what it holds now."""
        total = self.total()
        if isinstance(total, msgspec.UnsetType):
            return ()
        return spending_rows(state, total, self._rate(), now.wall_s)

    @property
    def mark(self) -> object:
        """What the rows of a snapshot would differ by, but for the time that has passed."""
        return self._rate() if self._base is not None else None

    def _rate(self) -> Held:
        reading = self._read(self._spec)
        return Held() if reading is None else reading.per_hour

    def _held_now(self) -> Held:
        reading = self._read(self._spec)
        return Held() if reading is None else reading.held


def budget_text(budget: Budget, currency: str) -> str:
    """A budget as people read it."""
    if budget.unit == "money":
        return format_money(budget.amount, currency)
    return format_held(budget.amount, "CPU" if budget.unit == "cpuh" else "GPU")
