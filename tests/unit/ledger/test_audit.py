"""The audit finds every broken promise, and nothing in a ledger that keeps them."""

from __future__ import annotations

import pytest

from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.protocol.events import Event, Notice, RunFinished
from jupyter_ddl.protocol.run import Limits
from tests.unit.ledger.event_makers import (
    begun,
    created,
    ended,
    long_run,
    reported,
    search_spec,
    started,
    submitted,
    twenty_events,
)

DONE = RunFinished(2000.0, "complete")


def test_ledgers_that_keep_their_promises_are_clean() -> None:
    assert audit(long_run(50)) == []
    assert audit(twenty_events()) == []
    resumed: list[Event] = [submitted(), started(), created(0), begun(0)]
    resumed += [RunFinished(1.0, "cancelled"), Notice(2.0, "tail cut"), started(2)]
    assert audit([*resumed, begun(0, 2), ended(0, 2), DONE]) == []
    evicted = [submitted(), started(), created(0), ended(0, 1, "evicted"), begun(0, 2), ended(0, 2)]
    assert audit(evicted) == []


def test_a_resumed_trial_has_all_tries_though_it_was_given_up_before_its_last() -> None:
    # Two failures alike end a group while tries are left, and their run with it.
    tries = search_spec(limits=Limits(max_own_failures=3))
    given_up: list[Event] = [submitted(tries), started(), created(0)]
    for attempt in (1, 2):
        given_up += [begun(0, attempt), ended(0, attempt, "failed")]
    given_up += [RunFinished(1.0, "failed", failed_trial=0), started(2)]
    for attempt in (3, 4, 5):
        given_up += [begun(0, attempt), ended(0, attempt, "failed")]
    assert audit(given_up) == []
    assert "but the trial is failed" in " ".join(audit([*given_up, begun(0, 6)]))


HEAD: list[Event] = [submitted(search_spec(limits=Limits(max_own_failures=1))), started()]
ONE: list[Event] = [*HEAD, created(0), begun(0)]


@pytest.mark.parametrize(
    ("events", "violation"),
    [
        ([], "there is no RunSubmitted"),
        ([started()], "RunStarted comes before RunSubmitted"),
        ([*HEAD, submitted()], "RunSubmitted comes again"),
        ([*HEAD, started(3)], "session 3 follows session 1"),
        ([*HEAD, created(1)], "trial 1 is created, expected number 0"),
        ([*HEAD, created(0), created(0)], "created again with the same params"),
        ([*HEAD, created(0), created(0, lr=0.1)], "created again with other params"),
        ([*HEAD, begun(0)], "attempt 1 of trial 0 starts, but the trial was never created"),
        ([*HEAD, ended(0)], "attempt 1 of trial 0 ends, but the trial was never created"),
        ([*HEAD, created(0), ended(0)], "ends as complete, but it is not under way"),
        ([*ONE, begun(0, 2)], "attempt 2 of trial 0 starts while attempt 1 is under way"),
        ([*ONE, ended(0, 1, "evicted"), begun(0, 1)], "starts after attempt 1"),
        ([*ONE, ended(0, 1, "evicted"), ended(0, 1)], "attempt 1 of trial 0 ends twice"),
        ([*ONE, ended(0), begun(0, 2)], "attempt 2 of trial 0 starts, but the trial is complete"),
        ([*ONE, ended(0), begun(0, 2), ended(0, 2)], "trial 0 completes 2 times"),
        ([*ONE, ended(0, 1, "failed"), begun(0, 2)], "but the trial is failed"),
        ([*ONE, DONE], "the run is complete, but trial 0 has no outcome"),
        ([*ONE, ended(0), DONE, reported(0)], "Reported comes after RunFinished"),
        ([*HEAD, DONE, DONE], "RunFinished comes after RunFinished"),
    ],
)
def test_a_broken_promise_is_named(events: list[Event], violation: str) -> None:
    assert any(violation in found for found in audit(events)), audit(events)
