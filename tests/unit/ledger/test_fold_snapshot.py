"""A snapshot shows what matters of a run and stays small."""

from __future__ import annotations

import math

import msgspec
import pytest

from jupyter_ddl.errors import LedgerError
from jupyter_ddl.ledger import snapshots
from jupyter_ddl.ledger.reducer import RunState, fold, fold_all
from jupyter_ddl.ledger.snapshots import MAX_SNAPSHOT_BYTES, encoded_snapshot, snapshot_of
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    Event,
    Failure,
    Notice,
    Reported,
    RunFinished,
    TrialCreated,
)
from jupyter_ddl.protocol.run import Limits
from jupyter_ddl.verbs.run import CellGroup
from jupyter_ddl.verbs.search import Search
from tests.unit.ledger.event_makers import (
    begun,
    created,
    ended,
    long_run,
    reported,
    search_spec,
    started,
    submitted,
)


def test_a_short_run_is_shown_whole() -> None:
    events = [submitted(), started(), *(created(number) for number in range(8)), begun(2)]
    snapshot = snapshot_of(fold_all([*events, reported(2, step=3, acc=0.4)]), 1013.0)
    assert [row.number for row in snapshot.rows] == list(range(8))
    row = snapshot.rows[2]
    assert (row.state, row.value, row.step, row.duration_s) == ("running", 0.4, 3, None)
    assert (snapshot.seq, snapshot.n_trials, snapshot.metric) == (12, 10, "acc")


def test_a_long_run_shows_its_best_running_last_and_first_failed_trials() -> None:
    state = fold_all([submitted(search_spec(500, limits=Limits(max_own_failures=1))), started()])
    for number in range(400):
        fold(state, created(number))
        fold(state, begun(number))
    for number in range(300):
        outcome = "failed" if number in (40, 41) else "complete"
        fold(state, ended(number, 1, outcome, float((number * 7) % 300)))  # type: ignore[arg-type]
    rows = {row.number: row for row in snapshot_of(state, 1010.0).rows}
    assert set(rows) >= {number for number in range(300) if (number * 7) % 300 >= 290}
    assert set(rows) >= set(range(300, 320)) | set(range(290, 300)) | {40, 41}
    assert len(rows) <= 64
    assert list(rows) == sorted(rows)
    assert len(snapshot_of(state, 1010.0, max_rows=12).rows) == 12


def test_the_curve_is_thinned_by_number_and_holds_the_best_trial() -> None:
    state = fold_all(long_run(10_000))
    snapshot = snapshot_of(state, 2000.0)
    assert 100 <= len(snapshot.curve) <= 300
    assert list(snapshot.curve) == sorted(snapshot.curve)
    assert snapshot.best is not None
    assert (snapshot.best.number, snapshot.best.value) == (9999, 4999.5)
    assert (9999, 4999.5) in snapshot.curve
    assert len(snapshot.best_curve) <= 100
    values = [value for _, value in snapshot.best_curve]
    assert values == sorted(values)
    assert snapshot.best_curve[0] == (1, 0.0)
    assert snapshot.best_curve[-1] == (10_000, 4999.5)


def test_throughput_and_eta_come_from_the_recent_past() -> None:
    state = fold_all([submitted(search_spec(1000)), started(at_s=0.0)])
    for number in range(300):
        at_s = number * 10.0 if number < 200 else 1990.0 + (number - 199) * 0.5
        fold(state, created(number))
        fold(state, begun(number))
        fold(state, ended(number, value=0.1, at_s=at_s))
    snapshot = snapshot_of(state, 2040.5)
    assert snapshot.trials_per_s == pytest.approx(2.0, rel=0.1)
    assert snapshot.ends_at_s == pytest.approx(2040.5 + 350.0, abs=35.0)
    assert snapshot_of(state, 2040.5, paused="disk full").ends_at_s is None
    fold(state, RunFinished(3000.0, "cancelled"))
    over = snapshot_of(state, 9999.0)
    assert (over.trials_per_s, over.ends_at_s) == (pytest.approx(0.1), None)


def test_clocks_of_workers_that_are_ahead_do_no_harm() -> None:
    state = fold_all([submitted(), started(at_s=100.0), created(0), begun(0)])
    fold(state, ended(0, at_s=50.0))
    assert snapshot_of(state, 40.0).trials_per_s is None
    fold(state, started(2, at_s=100.0))
    assert snapshot_of(state, 40.0).ends_at_s is None


def test_a_run_that_was_not_submitted_cannot_be_drawn() -> None:
    with pytest.raises(LedgerError, match="no RunSubmitted"):
        snapshot_of(RunState(), 1.0)


def _huge_run(text: str) -> RunState:
    """Everything a user can make long is very long, several times over."""
    space = search_spec().verb.space  # type: ignore[union-attr]
    verb = Search(text, "max", 400, space)
    limits = Limits(max_own_failures=1)
    spec = msgspec.structs.replace(search_spec(), verb=verb, name=text, cluster=text, limits=limits)
    events: list[Event] = [submitted(spec), started()]
    failure = Failure("exception", text, text, text * 10, 3)
    for number in range(200):
        params = {f"{text}{k}": text for k in range(100)} | {f"p{k}": math.inf for k in range(50)}
        metrics = {f"{text}{k}": math.nan for k in range(100)} | {text: 0.5}
        events += [
            TrialCreated(number, params, 1.0),
            msgspec.structs.replace(begun(number), worker=text),
            Reported(number, 1, 1, metrics, 2.0),
        ]
        if number < 150:
            outcome = "failed" if number % 2 else "complete"
            events.append(
                AttemptFinished(number, 1, outcome, 3.0, 1.0, number * 1.23456789, failure=failure)
            )
    events += [Notice(4.0, text)] * 9
    state = fold_all(events)
    fold(state, RunFinished(5.0, "failed", text, failure, 1))
    return state


@pytest.mark.parametrize(
    "unit",
    ["x", "é", "\u0001", "日", "\U0001f600"],
    ids=["ascii", "latin", "control", "cjk", "emoji"],
)
def test_a_snapshot_is_bounded_whatever_the_run_contains(unit: str) -> None:
    encoded = encoded_snapshot(_huge_run(unit * 3000), 10.0, paused=unit * 3000)
    assert len(encoded.json) <= MAX_SNAPSHOT_BYTES
    snapshot = encoded.decode()
    assert snapshot.failure is not None
    assert snapshot.failure.traceback
    assert len(snapshot.rows) >= 3
    assert (encoded.seq, encoded.run_id, encoded.state) == (
        snapshot.seq,
        snapshot.run_id,
        snapshot.state,
    )
    assert encoded.is_final


def test_text_that_utf8_cannot_carry_can_still_be_drawn() -> None:
    state = fold_all([submitted(), started(), Notice(1.0, "caf\udce9")])
    assert snapshot_of(state, 2.0).notices == ("caf?",)
    assert encoded_snapshot(state, 2.0).decode().notices == ("caf?",)


def test_a_snapshot_that_travels_is_the_one_that_is_drawn_here() -> None:
    state = fold_all([submitted(), started(), created(0), created(1), begun(0), begun(1)])
    fold(state, ended(0, value=0.25, at_s=1004.0))
    fold(state, reported(1, step=2, acc=0.5))
    assert encoded_snapshot(state, 1010.0, "no room").decode() == snapshot_of(
        state, 1010.0, "no room"
    )


def test_a_metric_that_is_not_finite_is_unknown_to_who_gets_the_snapshot() -> None:
    state = fold_all([submitted(), started(), created(0), begun(0)])
    fold(state, reported(0, step=2, acc=0.5, loss=math.nan, norm=math.inf))
    (row,) = encoded_snapshot(state, 1010.0).decode().rows
    assert row.metrics == {"acc": 0.5, "loss": None, "norm": None}


def test_drawing_a_run_encodes_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[object] = []

    class Counting:
        def encode(self, message: object) -> bytes:
            encoded.append(message)
            return msgspec.json.encode(message)

    monkeypatch.setattr(snapshots, "_ENCODER", Counting())
    state = fold_all([submitted(), started(), created(0), begun(0)])
    encoded_snapshot(state, 1010.0)
    assert len(encoded) == 1


def test_time_that_passes_is_no_news() -> None:
    state = fold_all([submitted(), started(), created(0), begun(0), reported(0, step=2, acc=0.5)])
    assert encoded_snapshot(state, 1010.0) == encoded_snapshot(state, 2010.0)


def test_what_a_run_has_waited_counts_neither_for_its_rate_nor_for_the_time_left() -> None:
    state = fold_all([submitted(search_spec(100)), started(at_s=0.0)])
    for number in range(20):
        # Two seconds a trial, one of them busy; no worker was there for an hour in the middle.
        at_s = 2.0 * number + (3600.0 if number >= 10 else 0.0)
        fold(state, created(number))
        fold(state, msgspec.structs.replace(begun(number), at_s=at_s + 1.0))
        fold(state, ended(number, value=0.1, at_s=at_s + 2.0))
    now_s = 3600.0 + 40.0
    assert snapshot_of(state, now_s).trials_per_s == pytest.approx(0.5, rel=0.1)
    assert snapshot_of(state, now_s).ends_at_s == pytest.approx(now_s + 160.0, rel=0.01)
    # It waits again.
    later = snapshot_of(state, now_s + 5000.0)
    assert later.trials_per_s == pytest.approx(0.5, rel=0.1)


def test_a_persistent_group_tells_its_ranks_and_cells_and_no_trials() -> None:
    spec = msgspec.structs.replace(search_spec(1), verb=CellGroup(n_ranks=3))
    state = fold_all([submitted(spec), started(at_s=0.0)])
    snapshot = snapshot_of(state, 5.0)
    assert (snapshot.world_size, snapshot.n_trials, snapshot.cells) == (3, 0, ())
