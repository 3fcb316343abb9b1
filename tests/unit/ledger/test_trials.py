"""Trials as columns: whatever is kept of one is read as it was, and takes little room."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_ddl.ledger.trials import Trials
from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted

_VALUE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([-(2**7), -(2**15), -(2**31), -(2**63), 2**63, 2**64 - 1]),
    st.floats(allow_nan=False),
    st.text(max_size=3),
)
_PARAMS = st.dictionaries(st.sampled_from("abc"), _VALUE)


def exactly(params: dict[str, Any]) -> dict[str, tuple[type, Any]]:
    """True is not 1, and 1 is not 1.0."""
    return {name: (type(value), value) for name, value in params.items()}


@given(st.lists(_PARAMS, max_size=12))
@example([{"a": each} for each in ("x", True, 1, 1.0, 0, False, None)])
def test_parameters_of_any_kind_are_read_as_they_were(given_params: list[dict[str, Any]]) -> None:
    trials = Trials()
    for number, params in enumerate(given_params):
        trials.create(number, params)
    assert [exactly(t.params) for t in trials.values()] == [exactly(p) for p in given_params]


@pytest.mark.parametrize("n_different", [300, 70_000])
def test_so_are_very_many_different_ones(n_different: int) -> None:
    trials = Trials()
    for number in range(n_different):
        trials.create(number, {"name": f"n{number}", "size": number if number % 2 else "x"})
    found = [trials[number].params for number in (0, 1, 255, 256, n_different - 1)]
    assert [each["name"] for each in found] == ["n0", "n1", "n255", "n256", f"n{n_different - 1}"]
    assert [each["size"] for each in found] == ["x", 1, 255, "x", n_different - 1]


@given(st.integers(-(2**63), 2**64 - 1), st.integers(-(2**63), 2**64 - 1), st.none() | st.floats())
def test_fields_hold_any_number_that_an_event_may_have(
    step: int, place: int, value: float | None
) -> None:
    trials = Trials()
    first = trials.create(0, {})
    trials.create(1, {})
    first.begin(AttemptStarted(0, step, 1.5, "w", 9, "0.log", place))
    first.step = step
    first.attempt_ended(AttemptFinished(0, step, "complete", 2.0, 0.5, value, place))
    first.end(AttemptFinished(0, step, "complete", 2.0, 0.5, value, place))
    assert (first.attempt, first.step, first.log_start, first.log_end) == (step, step, place, place)
    isn_t_number = value is not None and math.isnan(value)
    assert math.isnan(first.value or 0.0) if isn_t_number else first.value == value
    second = trials[1]
    assert (second.attempt, second.step, second.log_start, second.value) == (0, None, None, None)


def test_trials_are_found_by_their_numbers_in_whatever_order_they_are_created() -> None:
    trials = Trials()
    for number in (0, 1, 7, 3):
        trials.create(number, {"n": number})
    assert list(trials) == [0, 1, 7, 3]
    assert [(t.number, t.row, t.params["n"]) for t in trials.values()] == [
        (0, 0, 0),
        (1, 1, 1),
        (7, 2, 7),
        (3, 3, 3),
    ]
    assert 7 in trials
    assert 2 not in trials
    assert trials.get(2) is None
    with pytest.raises(KeyError):
        trials[-1]


def test_what_an_attempt_told_is_forgotten_when_the_next_one_begins() -> None:
    trial = Trials().create(4, {"lr": 0.1})
    trial.begin(AttemptStarted(4, 1, 1.0, "w1", 9, "0.log", 10))
    trial.step, trial.objective, trial.reported = 3, 0.5, (("acc",), (0.5,))
    trial.attempt_ended(AttemptFinished(4, 1, "evicted", 2.0, 1.0, None, 99))
    trial.begin(AttemptStarted(4, 2, 3.0, "w2", 9, "1.log", 0))
    assert (trial.attempt, trial.n_attempts, trial.worker, trial.log_start) == (2, 2, "w2", 0)
    gone: tuple[Any, ...] = (
        trial.step,
        trial.objective,
        trial.log_end,
        trial.duration_s,
        trial.metrics,
    )
    assert gone == (None, None, None, None, {})


def test_so_is_what_one_told_that_nobody_has_heard_begin() -> None:
    trial = Trials().create(0, {})
    trial.attempt_ended(AttemptFinished(0, 1, "evicted", 2.0, 1.0, None, 99))
    trial.begin(AttemptStarted(0, 2, 3.0, "w2", 9, "1.log", 0))
    assert (trial.n_attempts, trial.duration_s, trial.log_end) == (1, None, None)


def test_a_trial_that_is_over_takes_a_hundred_bytes() -> None:
    n_trials = 20_000
    tracemalloc.start()
    try:
        trials = Trials()
        for number in range(n_trials):
            params: dict[str, Any] = {
                "lr": number / 7,
                "width": number % 512,
                "act": "relu",
                "norm": True,
            }
            trial = trials.create(number, params, 4 * number)
            trial.begin(AttemptStarted(number, 1, 1e9 + number, f"w{number % 8}", 9, "0.log", 7))
            trial.step, trial.objective = number % 100, 0.25
            ended = AttemptFinished(number, 1, "complete", 2e9, number / 3, number / 5, number * 50)
            trial.attempt_ended(ended)
            trial.end(ended)
            trial.move("complete", 4 * number)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / n_trials < 100
