"""The learning curves of a search: which trials have one, and how little they take."""

from __future__ import annotations

import msgspec

from jupyter_ddl.ledger.reducer import RunState, fold, fold_all
from jupyter_ddl.ledger.snapshots import MAX_SNAPSHOT_BYTES, snapshot_of
from jupyter_ddl.protocol.snapshot import LearningCurve
from tests.unit.ledger.event_makers import (
    begun,
    created,
    ended,
    long_run,
    map_spec,
    reported,
    search_spec,
    started,
    submitted,
)


def _search(n_trials: int, n_steps: int, n_left_running: int = 0) -> RunState:
    """Trials one after another; number n reaches n."""
    state = fold_all([submitted(search_spec(n_trials)), started()])
    for number in range(n_trials):
        fold(state, created(number))
        fold(state, begun(number))
        for step in range(n_steps):
            fold(state, reported(number, step=step, acc=number * (step + 1) / n_steps))
        if number < n_trials - n_left_running:
            fold(state, ended(number, value=float(number)))
    return state


def _curves(state: RunState) -> dict[int, LearningCurve]:
    return {curve.trial: curve for curve in snapshot_of(state, 1013.0).learning}


def test_a_trial_has_a_curve_from_its_second_report() -> None:
    events = [submitted(), started(), created(0), begun(0), reported(0, step=1, acc=0.2)]
    state = fold_all(events)
    assert _curves(state) == {}
    fold(state, reported(0, step=2, acc=0.3))
    fold(state, reported(0, step=3, acc=float("nan")))
    fold(state, reported(0, step=4, loss=9.0))
    assert _curves(state) == {0: LearningCurve(0, "running", ((1, 0.2), (2, 0.3)))}


def test_the_best_the_running_and_the_last_trials_have_curves() -> None:
    state = _search(100, 5, n_left_running=3)
    fold(state, ended(97, outcome="pruned", value=0.1))
    shown = _curves(state)
    assert set(shown) == {*range(88, 100)}
    assert {number: shown[number].state for number in (96, 97, 99)} == {
        96: "complete",
        97: "pruned",
        99: "running",
    }


def test_an_attempt_that_goes_on_from_a_checkpoint_overwrites_what_it_repeats() -> None:
    state = _search(1, 4, n_left_running=1)
    fold(state, ended(0, outcome="evicted"))
    fold(state, begun(0, attempt=2))
    fold(state, reported(0, attempt=2, step=2, acc=0.9))
    assert _curves(state)[0].points == ((0, 0.0), (1, 0.0), (2, 0.9))


def test_curves_are_thinned_with_both_ends_kept() -> None:
    curve = _curves(_search(2, 5000))[1]
    assert 20 <= len(curve.points) <= 41
    assert (curve.points[0][0], curve.points[-1]) == (0, (4999, 1.0))


def test_memory_and_message_stay_small_however_many_trials_there_are() -> None:
    state = _search(300, 60, n_left_running=200)
    assert len(state.learning) <= 64
    snapshot = snapshot_of(state, 1013.0)
    assert len(snapshot.learning) == 12
    assert len(msgspec.json.encode(snapshot)) <= MAX_SNAPSHOT_BYTES
    assert len(fold_all(long_run(2000)).learning) <= 20


def test_other_runs_have_no_learning_curves() -> None:
    state = fold_all([submitted(map_spec()), started(), created(0), begun(0)])
    for step in range(3):
        fold(state, reported(0, step=step, acc=0.5))
    assert snapshot_of(state, 1013.0).learning == ()
