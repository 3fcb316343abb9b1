"""How long a lost trial waits, and how long a group waits for slots."""

from __future__ import annotations

import pytest

from jupyter_ddl.driving.admission import AdmissionTimeout
from jupyter_ddl.driving.places import Pauses
from jupyter_ddl.driving.queue import Backoff
from jupyter_ddl.errors import PlacementError
from jupyter_ddl.ledger.trials import Trials, TrialState
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.events import AttemptFinished, Outcome


def ended(outcome: Outcome = "evicted", duration_s: float = 0.1) -> AttemptFinished:
    return AttemptFinished(0, 1, outcome, 0.0, duration_s)


def trial_at(step: int | None = None) -> TrialState:
    trial = Trials().create(0, {})
    trial.step = step
    return trial


def test_waits_double_up_to_ten_seconds() -> None:
    backoff, trial = Backoff(), trial_at()
    waits = [backoff.delay_s(trial, ended()) for _ in range(9)]
    assert waits == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0])


def test_progress_a_long_round_and_another_outcome_set_the_wait_back() -> None:
    backoff, trial = Backoff(), trial_at(3)
    assert [backoff.delay_s(trial, ended()) for _ in range(3)] == pytest.approx([0.1, 0.2, 0.4])
    trial.step = 4
    assert backoff.delay_s(trial, ended()) == 0.1
    assert backoff.delay_s(trial, ended()) == 0.2
    trial.step = 2
    assert backoff.delay_s(trial, ended()) == 0.4, "fewer steps than before are no progress"
    assert backoff.delay_s(trial, ended(duration_s=60.0)) == 0.1
    assert backoff.delay_s(trial, ended("failed")) == 0.0
    assert backoff.delay_s(trial, ended()) == 0.1


def held(*, competes: bool) -> SlotBook:
    slots = SlotBook()
    slots.set_workers({"a": 1, "b": 1})
    if competes:
        slots.join("r7")
    assert slots.take_group("r7", 1) is not None
    slots.join("ddp")
    return slots


def test_a_group_waits_for_other_runs_as_long_as_it_takes() -> None:
    now_s = 100.0
    timeout = AdmissionTimeout("ddp", 2, held(competes=True), None)
    for _ in range(100):
        timeout.check(now_s, is_waiting=True)
        now_s += 3600.0


def test_a_deadline_of_ones_own_names_the_holder() -> None:
    now_s = 100.0
    timeout = AdmissionTimeout("ddp", 2, held(competes=True), 60.0)
    timeout.check(now_s, is_waiting=True)
    now_s += 59.0
    timeout.check(now_s, is_waiting=True)
    now_s += 2.0
    with pytest.raises(PlacementError) as refused:
        timeout.check(now_s, is_waiting=True)
    assert refused.value.message == (
        "given up after waiting 61 s for slots (--admission-timeout): 2 ranks wait: the cluster "
        "has 2 slots, 1 free (1 held by run r7); `%runs stop r7`, `%cluster scale N`, or wait"
    )
    assert refused.value.fields["holders"] == {"r7": 1}


def test_a_group_that_runs_in_between_waits_anew() -> None:
    now_s = 100.0
    timeout = AdmissionTimeout("ddp", 2, held(competes=True), 60.0)
    timeout.check(now_s, is_waiting=True)
    now_s += 59.0
    timeout.check(now_s, is_waiting=False)
    now_s += 59.0
    timeout.check(now_s, is_waiting=True)


@pytest.mark.parametrize("lost_worker", [False, True])
def test_slots_that_are_kept_or_missing_are_waited_for_ten_minutes(lost_worker: bool) -> None:
    now_s = 100.0
    slots = held(competes=lost_worker)
    if lost_worker:
        slots.set_workers({"a": 1})
    timeout = AdmissionTimeout("ddp", 2, slots, None)
    timeout.check(now_s, is_waiting=True)
    now_s += 599.0
    timeout.check(now_s, is_waiting=True)
    now_s += 2.0
    with pytest.raises(PlacementError, match="given up after waiting 601 s for slots"):
        timeout.check(now_s, is_waiting=True)


def test_a_run_whose_workers_are_all_gone_says_so_after_a_minute() -> None:
    pauses = Pauses(SlotBook(), lambda: 2)
    pauses.check(100.0)
    assert pauses.text(160.0) == ""
    told = pauses.text(160.1)
    assert told.startswith("no worker has been connected for more than a minute; see")
