"""What every trial costs whoever folds: counted in calls, since times differ."""

from __future__ import annotations

import gc
import sys
from types import FrameType
from typing import Any

import pytest

from jupyter_ddl.ledger.reducer import RunState, fold, fold_all
from jupyter_ddl.protocol.events import Event
from tests.unit.ledger.event_makers import begun, created, ended, reported, started, submitted


def _n_calls(state: RunState, events: list[Event]) -> int:
    n_calls = 0

    def note(_frame: FrameType, event: str, _: Any) -> None:
        nonlocal n_calls
        n_calls += event == "call"

    gc.disable()  # what it would finalize is other tests'
    sys.setprofile(note)
    try:
        for event in events:
            fold(state, event)
    finally:
        sys.setprofile(None)
        gc.enable()
    return n_calls


def _trial(number: int, n_reports: int) -> list[Event]:
    reports = [reported(number, step=step, acc=0.5) for step in range(n_reports)]
    return [created(number), begun(number), *reports, ended(number, value=0.25)]


@pytest.mark.parametrize(("n_reports", "n_calls"), [(0, 64), (1, 84), (2, 98)])
def test_a_trial_takes_few_calls(n_reports: int, n_calls: int) -> None:
    before = [event for number in range(400) for event in _trial(number, n_reports)]
    state = fold_all([submitted(), started(), *before])
    assert _n_calls(state, _trial(400, n_reports)) <= n_calls
