"""The states of trials and runs follow from events by these rules."""

from __future__ import annotations

import math
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from jupyter_ddl.errors import LedgerError
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.ledger.reader import read_ledger
from jupyter_ddl.ledger.reducer import RunState, fold, fold_all, is_late
from jupyter_ddl.ledger.snapshots import snapshot_of, with_totals
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import Event, Failure, Notice, RunFinished, StopRequested
from jupyter_ddl.protocol.run import Limits
from jupyter_ddl.protocol.snapshot import Counts
from tests.unit.ledger.event_makers import (
    BOOM,
    begun,
    checkpointed,
    created,
    ended,
    long_run,
    map_spec,
    reported,
    search_spec,
    started,
    submitted,
)


def folded(*events: Event, spec: object = None, **limits: int) -> RunState:
    spec = spec or search_spec(limits=Limits(**limits))
    return fold_all([submitted(spec), started(), *events])  # type: ignore[arg-type]


def test_a_run_is_submitted_running_and_over() -> None:
    state = fold_all([submitted()])
    assert state.state == "submitted"
    fold(state, started())
    assert (state.state, state.session, state.started_at_s) == ("running", 1, 1001.0)
    fold(state, RunFinished(1010.0, "complete"))
    assert (state.state, state.finished_at_s, state.seq) == ("complete", 1010.0, 3)


def test_a_ledger_without_its_beginning_is_refused() -> None:
    with pytest.raises(LedgerError, match="first event is RunStarted"):
        fold_all([started()])


def test_a_trial_is_waiting_running_and_complete() -> None:
    state = folded(created(0, lr=0.25))
    assert (state.waiting, state.running, state.counts) == ({0}, set(), Counts(waiting=1))
    assert state.trial(0).params == {"lr": 0.25}
    assert state.next_attempt(0) == 1
    fold(state, begun(0))
    assert (state.waiting, state.running, state.counts) == (set(), {0}, Counts(running=1))
    fold(state, reported(0, step=4, acc=0.75, loss=2.0))
    trial = state.trial(0)
    assert (trial.step, trial.objective, trial.value) == (4, 0.75, None)
    assert trial.metrics == {"acc": 0.75, "loss": 2.0}
    fold(state, ended(0, value=0.8))
    assert (state.counts, trial.value, trial.duration_s) == (Counts(complete=1), 0.8, 2.0)
    assert state.next_attempt(0) == 2


@pytest.mark.parametrize("outcome", ["complete", "pruned", "cancelled"])
def test_complete_pruned_and_cancelled_end_a_trial_and_the_first_record_wins(outcome: str) -> None:
    state = folded(created(0), begun(0), ended(0, outcome=outcome))  # type: ignore[arg-type]
    for late in (ended(0), ended(0, 2), begun(0, 2), reported(0), checkpointed(0)):
        assert is_late(state, late)
        fold(state, late)
    assert state.trial(0).state == outcome
    assert state.counts == Counts(**{outcome: 1})
    assert state.n_late == 5


def test_own_failures_end_a_trial_at_their_limit() -> None:
    state = folded(created(0), max_own_failures=2)
    for event in (begun(0), ended(0, outcome="failed")):
        fold(state, event)
    assert (state.trial(0).state, state.trial(0).failure, state.failed) == ("waiting", BOOM, [])
    for event in (begun(0, 2), ended(0, 2, "failed")):
        fold(state, event)
    assert (state.trial(0).state, state.trial(0).own_failures) == ("failed", 2)
    assert state.first_failures == [BOOM]


@pytest.mark.parametrize("name", ["SystemExit", "SpecError"])
def test_what_would_end_there_again_is_not_tried_again(name: str) -> None:
    failure = Failure("exception", name, "what was refused")
    state = folded(created(0), begun(0), ended(0, 1, "failed", failure=failure), max_own_failures=3)
    assert state.trials[0].state == "failed"


def test_a_full_disk_and_a_lost_worker_cost_no_own_failure() -> None:
    full = Failure("disk", "OSError", "no space left on device")
    state = folded(created(0), begun(0), ended(0, 1, "failed", failure=full), max_own_failures=1)
    fold(state, begun(0, 2))
    fold(state, ended(0, 2, "evicted"))
    trial = state.trial(0)
    assert (trial.state, trial.own_failures, trial.evictions) == ("waiting", 0, 1)
    assert (state.n_evictions, trial.n_attempts) == (1, 2)


def test_evictions_beyond_their_limit_fail_a_trial_and_say_why() -> None:
    state = folded(created(0), max_evictions=2)
    for attempt in (1, 2, 3):
        assert state.trial(0).state == "waiting"
        fold(state, begun(0, attempt))
        fold(state, ended(0, attempt, "evicted"))
    assert state.trial(0).state == "failed"
    assert state.first_failures[0].message == (
        "the trial lost its worker 3 times in a row without a further step or checkpoint, the "
        "limit is 2"
    )


@pytest.mark.parametrize("progress", ["reports", "checkpoints"])
def test_losses_between_which_a_trial_comes_further_are_as_many_as_they_are(progress: str) -> None:
    """A training of days on machines that are taken away loses hundreds of them."""
    spec = search_spec(limits=Limits(max_evictions=2))
    events: list[Event] = [submitted(spec), started(), created(0)]

    def lose(attempt: int, step: int) -> None:
        came: Event = reported(0, attempt, step)
        if progress == "checkpoints":
            came = msgspec.structs.replace(checkpointed(0, attempt), step=step)
        events.extend([begun(0, attempt), came, ended(0, attempt, "evicted")])

    for attempt in range(1, 200):
        lose(attempt, step=attempt)
    assert fold_all(events).trial(0).state == "waiting"
    for attempt in (200, 201):  # only as far as it was before: no progress
        lose(attempt, step=199)
    state = fold_all(events)
    assert (state.trial(0).state, state.trial(0).evictions) == ("failed", 201)
    assert audit(events) == []
    assert audit([*events, begun(0, 202)]) != []


def test_only_the_current_attempt_counts() -> None:
    state = folded(created(0), begun(0), ended(0, 1, "evicted"), begun(0, 2))
    for late in (ended(0, 1, value=9.0), reported(0, 1, acc=9.0), begun(0, 1), begun(0, 2)):
        fold(state, late)
    assert (state.trial(0).state, state.trial(0).attempt, state.n_late) == ("running", 2, 4)
    assert state.trial(0).objective is None
    fold(state, ended(0, 2, value=0.5))
    assert (state.best_number, state.best_value) == (0, 0.5)


def test_an_attempt_that_no_worker_began_can_be_evicted() -> None:
    state = folded(created(0), ended(0, 1, "evicted"))
    assert (state.trial(0).state, state.next_attempt(0)) == ("waiting", 2)
    fold(state, begun(0, 1))
    assert state.n_late == 1


def test_a_new_session_takes_up_what_was_under_way_without_charge() -> None:
    state = folded(created(0), created(1), begun(0), checkpointed(0), begun(1), ended(1))
    fold(state, started(2, at_s=1100.0))
    trial = state.trial(0)
    assert (trial.state, trial.evictions, state.next_attempt(0)) == ("waiting", 0, 2)
    assert trial.checkpoint == checkpointed(0)
    assert (state.session, state.started_at_s, state.session_started_at_s) == (2, 1001.0, 1100.0)
    fold(state, ended(0, 1))
    assert (trial.state, state.n_late) == ("waiting", 1)
    assert [row.number for row in state.unfinished()] == [0]


def test_the_end_of_a_run_cancels_what_is_open_and_another_session_takes_it_up_again() -> None:
    state = folded(created(0), created(1), created(2), begun(0), begun(1))
    fold(state, ended(1, outcome="cancelled"))
    fold(state, StopRequested(1006.0, "now"))
    end = with_totals(state, RunFinished(1007.0, "cancelled", "stopped by me"))
    assert end.totals == {"cancelled": 3}
    fold(state, end)
    assert state.counts == Counts(cancelled=3)
    for late in (ended(0), created(3), RunFinished(1008.0, "complete")):
        fold(state, late)
    assert (state.state, state.n_late, state.n_created) == ("cancelled", 3, 3)
    assert [row.number for row in state.unfinished()] == [0, 2]
    fold(state, started(2))
    assert state.counts == Counts(waiting=2, cancelled=1)
    assert (state.stop, state.finished_at_s, state.state) == (None, None, "running")


def test_who_resumes_a_run_gives_what_has_failed_its_tries_again() -> None:
    """And what it had saved; a controller that was lost gives nobody anything."""
    failed = [created(0), begun(0), checkpointed(0), ended(0, outcome="failed")]
    events = [*failed, created(1), begun(1), ended(1)]
    state = folded(*events, max_own_failures=1)
    assert (state.trial(0).state, state.failed) == ("failed", [0])
    fold(state, started(2))
    assert state.trial(0).state == "failed"
    fold(state, RunFinished(1008.0, "failed"))
    fold(state, started(3))
    trial = state.trial(0)
    assert (trial.state, trial.own_failures, trial.checkpoint) == ("waiting", 0, checkpointed(0))
    assert (state.counts, state.failed) == (Counts(waiting=1, complete=1), [])
    assert [each.number for each in state.unfinished()] == [0]
    spec = search_spec(limits=Limits(max_own_failures=1))
    sessions = [started(2), RunFinished(1008.0, "failed"), started(3)]
    again = [begun(0, 2), ended(0, 2), RunFinished(1009.0, "complete")]
    assert audit([submitted(spec), started(), *events, *sessions, *again]) == []


def test_a_request_to_stop_outlives_a_crash_and_the_stronger_one_counts() -> None:
    state = folded(StopRequested(1.0, "now"), StopRequested(2.0, "next_report"))
    fold(state, started(2))
    assert state.stop == StopRequested(1.0, "now")


def test_a_request_to_stop_one_trial_does_not_stop_the_run() -> None:
    state = folded(created(0), begun(0), StopRequested(1.0, "now", trial=0))
    assert (state.stop, state.trial_stops) == (None, {0: "now"})
    fold(state, ended(0, outcome="cancelled"))
    assert state.trial_stops == {}


@pytest.mark.parametrize(("mode", "best"), [("max", (1, 0.9)), ("min", (2, 0.1))])
def test_the_best_trial_follows_the_mode_and_the_lowest_number_wins_a_tie(
    mode: str, best: tuple[int, float]
) -> None:
    values = {5: 0.1, 4: 0.9, 3: 0.5, 2: 0.1, 1: 0.9}
    state = folded(*(created(number) for number in range(6)), spec=search_spec(mode=mode))
    for number, value in values.items():
        fold(state, begun(number))
        fold(state, ended(number, value=value))
    assert (state.best_number, state.best_value) == best
    assert state.best is not None
    assert state.best.params == {"lr": 0.5}


def test_the_best_trial_is_complete_and_its_value_is_finite() -> None:
    state = folded(*(created(number) for number in range(4)))
    cases = (("pruned", 9.0), ("complete", math.nan), ("complete", math.inf), ("complete", 0.1))
    for number, (outcome, value) in enumerate(cases):
        fold(state, begun(number))
        fold(state, ended(number, 1, outcome, value))  # type: ignore[arg-type]
    assert (state.best_number, state.best_value) == (3, 0.1)


def test_the_first_failure_is_the_first_cause() -> None:
    state = folded(created(0), created(1), max_own_failures=1)
    for number, text in ((1, "first"), (0, "second")):
        fold(state, begun(number))
        fold(state, ended(number, 1, "failed", failure=Failure("exception", "E", text)))
    assert state.first_failure is not None
    assert (state.first_failure.number, state.first_failures[0].message) == (1, "first")


def test_a_map_has_no_best_trial_in_its_snapshot() -> None:
    state = folded(created(0), begun(0), ended(0), spec=map_spec())
    snapshot = snapshot_of(state, 1010.0)
    assert (snapshot.verb, snapshot.best, snapshot.metric, snapshot.curve) == (
        "map",
        None,
        None,
        (),
    )


def test_events_of_trials_that_were_never_created_are_counted_and_ignored() -> None:
    state = folded(begun(7), reported(7), ended(7), created(0), created(0, lr=0.9))
    assert (state.n_late, state.n_created) == (4, 1)
    assert state.trial(0).params == {"lr": 0.5}


def test_only_the_last_notices_are_kept_and_long_ones_are_cut() -> None:
    state = folded(*(Notice(1.0, f"{k} " + "x" * 500) for k in range(8)))
    assert [notice.split()[0] for notice in state.notices] == ["3", "4", "5", "6", "7"]
    assert all(len(notice) == 300 for notice in state.notices)


def test_metrics_are_kept_for_the_best_and_the_last_finished_trials_only() -> None:
    state = fold_all(long_run(100))
    kept = {number for number, trial in state.trials.items() if trial.metrics}
    assert kept == set(range(90, 100))
    state = fold_all(
        event if not hasattr(event, "value") else ended(event.trial, value=-float(event.trial))
        for event in long_run(100)
    )
    kept = {number for number, trial in state.trials.items() if trial.metrics}
    assert kept == set(range(10)) | set(range(90, 100))


def test_thousands_of_failures_keep_few_tracebacks() -> None:
    state = folded(max_own_failures=1)
    huge = Failure("exception", "E", "m" * 5000, "t" * 50_000)
    for number in range(200):
        for event in (created(number), begun(number), ended(number, 1, "failed", failure=huge)):
            fold(state, event)
    failures = [trial.failure for trial in state.trials.values() if trial.failure]
    assert sum(bool(failure.traceback) for failure in failures) == 20
    assert max(len(failure.traceback) for failure in failures) <= 4096
    assert max(len(failure.message) for failure in failures[20:]) <= 200


def test_ten_thousand_finished_trials_take_less_than_a_kilobyte_each(tmp_path: Path) -> None:
    path = tmp_path / "ledger.ddl"
    with LedgerWriter.open(path, create=True) as writer:
        writer.append(list(long_run(10_000)))
    tracemalloc.start()
    try:
        state = fold_all(read_ledger(path))
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(f"{held / 10_000:.0f} bytes per finished trial, {peak / 10_000:.0f} at the peak")
    assert state.counts.complete == 10_000
    assert held / 10_000 < 150
    assert peak < 13.5e6
