"""A run's meter in virtual time: what it spends, when its budget ends it, what goes on record."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_ddl.driving.machine import (
    Begun,
    Committed,
    Ended,
    Instruction,
    Now,
    Record,
    WaitUntil,
    Woken,
)
from jupyter_ddl.driving.spending import Spending
from jupyter_ddl.driving.trials import TrialMachine
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.events import (
    BudgetSet,
    Event,
    RunFinished,
    RunStarted,
    RunSubmitted,
    Spent,
    StopRequested,
)
from jupyter_ddl.protocol.prices import Budget, Held, Prices, Rates, Reading
from jupyter_ddl.protocol.run import Limits, RunSpec
from tests.unit.driving.test_machine import machine_of

EUROS = Prices("EUR", Rates(cpu=36.0))
"""A cent a second for a CPU."""


NOW = Now(0.0, 0.0)


class Meter:
    """What a cluster of one CPU would count, in virtual time."""

    def __init__(self, held_before_s: float = 0.0, *, is_priced: bool = True) -> None:
        self._is_priced = is_priced
        self.now_s = 0.0
        self.n_slots = 1
        self._before_s = held_before_s

    def __call__(self) -> Reading:
        hours = (self._before_s + self.now_s * self.n_slots) / 3600
        return Reading(self._of(hours), self._of(float(self.n_slots)))

    def _of(self, hours: float) -> Held:
        return Held(hours, 0.0, hours * 36.0 if self._is_priced else None)


class Driven:
    """A machine whose world is a meter and a clock; all that it records is committed at once."""

    def __init__(self, limits: Limits, prices: Prices | None = EUROS) -> None:
        self.meter = Meter(is_priced=prices is not None)
        self.machine: TrialMachine = machine_of(limits=limits, prices=prices, read_meter=self.meter)
        self.events: list[Event] = [RunSubmitted(self.machine.spec, 0.0)]
        self.wait_s: float | None = None
        self.handle(Begun())

    def handle(self, event: object) -> None:
        waiting: list[object] = [event]
        while waiting:
            now = Now(self.meter.now_s, 1000.0 + self.meter.now_s)
            for each in self.machine.handle(waiting.pop(0), now):  # type: ignore[arg-type]
                self._do(each, waiting)

    def _do(self, instruction: Instruction, waiting: list[object]) -> None:
        if isinstance(instruction, Record):
            self.events += instruction.events
            waiting.append(Committed(instruction.events))
        elif isinstance(instruction, WaitUntil):
            self.wait_s = instruction.at_s

    def run_until(self, end_s: float) -> None:
        """Wake the machine whenever it wants to be woken."""
        while self.wait_s is not None and self.wait_s <= end_s:
            self.meter.now_s = self.wait_s
            self.handle(Woken())
        self.meter.now_s = end_s

    def recorded(self, kind: type[Event]) -> list[Event]:
        return [each for each in self.events if isinstance(each, kind)]


def test_a_run_ends_after_the_next_reports_once_its_budget_is_spent() -> None:
    driven = Driven(Limits(budget=Budget(0.25)))
    driven.run_until(24.0)
    assert not driven.recorded(StopRequested)
    driven.run_until(26.0)
    (stop,) = driven.recorded(StopRequested)
    assert isinstance(stop, StopRequested)
    assert (stop.when, stop.by) == ("next_report", "budget")
    assert stop.at_s == pytest.approx(1025.0, abs=0.2)
    driven.handle(Ended("r1-1-1"))
    end = driven.events[-1]
    assert isinstance(end, RunFinished)
    assert end.state == "cancelled"
    assert end.reason == "stopped by its budget of € 0.25, which is spent"
    assert isinstance(end.spent, Held)
    assert end.spent.amount == pytest.approx(0.26)
    assert audit(driven.events) == []


def test_a_budget_in_hours_needs_no_prices() -> None:
    driven = Driven(Limits(budget=Budget(100 / 3600, "cpuh")), prices=None)
    driven.run_until(99.0)
    assert not driven.recorded(StopRequested)
    driven.run_until(101.0)
    assert driven.recorded(StopRequested)
    (row,) = driven.machine.snapshot(Now(101.0, 1101.0)).decode().spending
    assert (row.unit, row.currency, row.budget) == ("cpuh", "", 100 / 3600)


def test_what_is_spent_stands_in_the_record_once_a_minute() -> None:
    driven = Driven(Limits())
    driven.run_until(130.0)
    spent = [each.held.amount for each in driven.recorded(Spent) if isinstance(each, Spent)]
    assert spent == pytest.approx([0.6, 1.2])


def test_a_run_whose_first_record_is_not_committed_yet_is_not_woken_again_and_again() -> None:
    """As while the disk is full: there is nothing that it could write down."""
    machine = machine_of(limits=Limits(), prices=EUROS, read_meter=Meter())
    found = [*machine.handle(Begun(), NOW)]
    (begun,) = (each for each in found if isinstance(each, Record))
    later = Now(61.0, 1061.0)
    found += machine.handle(Woken(), later)
    assert [each.at_s for each in found if isinstance(each, WaitUntil) and each.at_s] == []
    recorded = [e for e in machine.handle(Committed(begun.events), later) if isinstance(e, Record)]
    assert [type(event) for each in recorded for event in each.events][:1] == [Spent]


def test_without_prices_and_budget_nothing_is_counted_and_nothing_recorded() -> None:
    driven = Driven(Limits(), prices=None)
    driven.run_until(1000.0)
    driven.handle(Ended("r1-1-1"))
    assert not driven.recorded(Spent)
    assert b"spent" not in b"".join(map(msgspec.msgpack.encode, driven.events))
    assert driven.machine.snapshot(Now(1.0, 1.0)).decode().spending == ()


def test_a_snapshot_tells_what_an_hour_adds_and_is_drawn_again_when_that_changes() -> None:
    driven = Driven(Limits(budget=Budget(9.0)))
    now = Now(10.0, 1010.0)
    driven.meter.now_s = 10.0
    mark = driven.machine.mark(now)
    (row,) = driven.machine.snapshot(now).decode().spending
    assert (row.amount, row.per_hour, row.at_s) == (pytest.approx(0.1), 36.0, 1010.0)
    assert (row.currency, row.budget) == ("EUR", 9.0)
    driven.meter.now_s = 11.0
    assert driven.machine.mark(now) == mark
    driven.meter.n_slots = 2
    assert driven.machine.mark(now) != mark


def begun(events: list[Event], meter: Meter, limits: Limits) -> Spending:
    spec = RunSpec(
        "r1", machine_of().spec.verb, machine_of().spec.program, 1, "c", 0.0,
        limits=limits, prices=EUROS,
    )  # fmt: skip
    state: RunState = fold_all([RunSubmitted(spec, 0.0), *events])
    spending = Spending(spec, meter)
    spending.begin(state, NOW)
    return spending


def test_a_session_goes_on_from_what_the_record_tells_of_those_before() -> None:
    # The meter of the same controller knows the run from before; its record counts.
    meter = Meter(held_before_s=500.0)
    ended = RunFinished(5.0, "cancelled", spent=Held(0.01, 0.0, 0.5))
    spending = begun([RunStarted(1.0, 1, 1, 1, 7), ended], meter, Limits(budget=Budget(0.6)))
    assert spending.look(NOW) == ((), "")
    meter.now_s = 10.1
    assert spending.look(NOW)[1]
    total = spending.total()
    assert isinstance(total, Held)
    assert total.amount == pytest.approx(0.601)


def test_a_larger_budget_takes_the_place_of_the_one_that_was_spent() -> None:
    stop = StopRequested(2.0, "next_report", by="budget")
    before: list[Event] = [RunStarted(1.0, 1, 1, 1, 7), Spent(2.0, Held(0.02, 0.0, 0.7)), stop]
    assert begun(before, Meter(), Limits(budget=Budget(0.6))).look(NOW)[1]
    raised = [*before, BudgetSet(3.0, Budget(0.9))]
    assert not begun(raised, Meter(), Limits(budget=Budget(0.6))).look(NOW)[1]
    spec = machine_of().spec
    assert fold_all([RunSubmitted(spec, 0.0), *before]).stop == stop
    assert fold_all([RunSubmitted(spec, 0.0), *raised]).stop is None


def test_a_meter_that_was_set_back_takes_nothing_away() -> None:
    meter = Meter(held_before_s=100.0)
    spending = begun([Spent(1.0, Held(0.5, 0.0, 18.0))], meter, Limits())
    meter._before_s = 0.0
    total = spending.total()
    assert isinstance(total, Held)
    assert (total.cpu_hours, total.amount) == (0.5, 18.0)
