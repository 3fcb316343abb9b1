"""What a trial that does nothing costs the controller: counted in calls, since times differ."""

from __future__ import annotations

import sys
from collections import deque
from types import FrameType
from typing import Any

from jupyter_ddl.driving.machine import (
    Arrived,
    Begun,
    Committed,
    Ended,
    Happening,
    Now,
    Over,
    Record,
    Send,
    WakeOthers,
    Woken,
)
from jupyter_ddl.protocol.assignment import Assignment
from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted, Event, RankEvent
from jupyter_ddl.protocol.space import Uniform
from jupyter_ddl.verbs.search import Search
from tests.unit.driving.test_machine import machine_of


class _Counted:
    """Python functions that are called while the machine decides."""

    def __init__(self) -> None:
        self.n_calls = 0

    def note(self, _frame: FrameType, event: str, _: Any) -> None:
        self.n_calls += event == "call"


def _n_calls(n_trials: int) -> int:
    """Of a whole search on two workers."""
    verb = Search("acc", "max", n_trials, {"x": Uniform(0.0, 1.0)}, window=4)
    machine = machine_of(verb=verb, workers={"w1": 1, "w2": 1})
    counted, now_s = _Counted(), 1.0
    waiting: deque[Happening] = deque([Begun()])
    at_workers: deque[Assignment] = deque()
    records: list[Event] = []
    while True:
        if waiting:
            event = waiting.popleft()
        elif records:
            event, records = Committed(tuple(records)), []
        else:
            now_s += 0.01
            assignment = at_workers.popleft()
            name = assignment.assignment_id
            waiting.extend([Arrived(name, tuple(_events(assignment, now_s))), Ended(name)])
            continue
        sys.setprofile(counted.note)
        try:
            done = machine.handle(event, Now(now_s, 1000.0 + now_s))
        finally:
            sys.setprofile(None)
        for each in done:
            if isinstance(each, Record):
                records += each.events
            elif isinstance(each, Send):
                at_workers.append(each.assignment)
            elif isinstance(each, WakeOthers):
                waiting.append(Woken())
            elif isinstance(each, Over):
                return counted.n_calls


def _events(assignment: Assignment, at_s: float) -> list[RankEvent]:
    events: list[RankEvent] = []
    for trial in assignment.trials:
        value = trial.params["x"]
        assert isinstance(value, float)
        events.append(AttemptStarted(trial.trial, 1, at_s, "w1", 9, "a.log", 0))
        events.append(AttemptFinished(trial.trial, 1, "complete", at_s, 1e-4, value, 7))
    return events


def test_one_more_trial_takes_few_calls() -> None:
    # Of long searches, so that what is done once for each of them or each batch weighs little.
    per_trial = (_n_calls(3000) - _n_calls(2000)) / 1000
    assert per_trial <= 110
