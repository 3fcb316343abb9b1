"""All trials as columns: what the page reads out of them is what the run's record says."""

from __future__ import annotations

import base64
import json
import math
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_ddl.ledger.reducer import fold, fold_all
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Failure,
    Reported,
    RunStarted,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.protocol.view_messages import Done, GetColumns
from jupyter_ddl.views import columns as module
from jupyter_ddl.views.bundle import LIVE_DIR
from jupyter_ddl.views.channel import Channel, Columns
from jupyter_ddl.views.columns import columns_part
from tests.unit.ledger.event_makers import search_spec
from tests.unit.views.node_tools import node

_DRIVER = Path(__file__).with_name("live_columns.mjs")
_ODD = (0, 1, True, False, None, "", "relu", "é" * 200, 10**12, -(2**31), 2**31, 1e300, math.inf)


def fresh() -> RunState:
    return fold_all([RunSubmitted(search_spec(), 1.0), RunStarted(2.0, 1, 8, 8, 42)])


def trial_events(number: int, rng: random.Random, *, isn_t_over: bool = False) -> Iterator[Event]:
    """A trial of a conditional space, with values of all kinds."""
    params: dict[str, Any] = {"lr": 10 ** rng.uniform(-9, 2), "width": rng.choice([64, 128])}
    params["close"] = 1e6 + rng.random() * 1e-3
    if rng.random() < 0.5:
        params["branch"] = rng.choice(["a", "b"])
    if rng.random() < 0.5:
        params["odd"] = rng.choice(_ODD)
    if rng.random() < 0.3:
        params["__proto__"] = rng.random()
    yield TrialCreated(number, params, 3.0)
    if rng.random() < 0.1:
        return
    yield AttemptStarted(number, 1, 3.0, f"w{number % 3}", 9, "0.log", number)
    for step in range(rng.randrange(4)):
        loss = rng.choice([rng.random(), math.nan, math.inf, -1e308])
        yield Reported(number, 1, step, {"acc": rng.random(), "val loss": loss}, 4.0)
    if isn_t_over:
        return
    outcome = rng.choice(["complete", "complete", "pruned", "failed", "evicted"])
    failure = Failure("exception", "ValueError", "no", "") if outcome == "failed" else None
    value = rng.choice([rng.random(), math.nan, math.inf]) if outcome == "complete" else None
    yield AttemptFinished(number, 1, outcome, 5.0, rng.random() * 100, value, 9, failure=failure)  # type: ignore[arg-type]


def frames(state: RunState, since: int = 0) -> list[bytes]:
    found, part, n_parts = [], 0, 1
    while part < n_parts:
        told, data = columns_part(state, GetColumns(1, "r", since, part))
        found.append(Columns(told, data).frame())
        part, n_parts = part + 1, told.n_parts
    return found


def in_page(steps: list[tuple[bytes, bool]]) -> list[dict[str, Any]]:
    """What the page knows after each frame; of those that begin anew it forgets what it had."""
    asked = {
        "steps": [
            {"frame": base64.b64encode(frame).decode(), "isWhole": whole} for frame, whole in steps
        ]
    }
    command = [node(), str(_DRIVER), str(LIVE_DIR)]
    done = subprocess.run(
        command, input=json.dumps(asked), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def same(told: Any, known: Any) -> bool:
    """Whether a page that has seven digits, and no NaN, says what Python knows."""
    if isinstance(known, str):
        return isinstance(told, str) and told == (known if len(known) <= 80 else known[:79] + "…")
    if known is None or isinstance(known, bool):
        return told is known
    number = {"inf": math.inf, "-inf": -math.inf}.get(told, told)
    if not math.isfinite(known):
        # JSON, in which choices travel, has no infinity.
        return number is None or number == known
    return isinstance(number, int | float) and math.isclose(number, known, rel_tol=1e-6)


def check(told: dict[str, Any], state: RunState) -> None:
    assert len(told["rows"]) == len(state.trials)
    for row, trial in zip(told["rows"], state.trials.values(), strict=True):
        value = trial.objective if trial.state == "running" else trial.value
        known = {
            "number": trial.number,
            "state": trial.state,
            "value": value,
            "duration_s": trial.duration_s,
            "worker": trial.worker,
            "step": trial.step,
            "attempts": row["attempts"] if trial.n_attempts == 0 else trial.n_attempts,
            "started_at_s": trial.started_at_s if trial.state == "running" else None,
        }
        for name, each in known.items():
            assert same(row[name], each), (trial.number, name, row[name], each)
        assert row["params"].keys() == trial.params.keys()
        for name, each in trial.params.items():
            assert same(row["params"][name], each), (trial.number, name, row["params"], each)
        failure = trial.failure
        assert (row["failure"] or {}).get("type_name") == (failure and failure.type_name)


@pytest.mark.parametrize("part_bytes", [1_900_000, 1_000])
def test_the_page_reads_of_every_trial_what_the_record_says(
    monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    monkeypatch.setattr(module, "_PART_BYTES", part_bytes)
    rng = random.Random(5)
    state = fresh()
    for number in range(300):
        for event in trial_events(number, rng, isn_t_over=number % 17 == 0):
            fold(state, event)
    whole = frames(state)
    assert (len(whole) > 5) is (part_bytes == 1_000)
    steps = [(frame, n == 0) for n, frame in enumerate(whole)]
    marks = [len(steps) - 1]
    since = state.seq
    for number in range(300, 340):
        open_one = number - 300
        if state.trials[open_one].state == "running":
            ended = AttemptFinished(open_one, 1, "complete", 9.0, 1.5, 0.25, 9)
            fold(state, ended)
        for event in trial_events(number, rng):
            fold(state, event)
        if number % 10 == 9:
            changed = frames(state, since)
            assert sum(map(len, changed)) < sum(map(len, whole)) / 2
            steps += [(frame, False) for frame in changed]
            marks.append(len(steps) - 1)
            since = state.seq
    told = in_page(steps)
    # After all parts of the first message, and of each that followed.
    check(told[-1], state)
    assert len(told[marks[0]]["rows"]) == 300
    # A later message with all of them says the same.
    again = in_page([(frame, n == 0) for n, frame in enumerate(frames(state))])[-1]
    check(again, state)


def test_one_trial_alone_is_told_as_exactly_as_many() -> None:
    """Its times are Unix seconds, its value may be a large one that others are close to."""
    state, steps, since = fresh(), [], 0
    for number in range(3):
        began_s = 1_795_000_000.25 + number
        fold(state, TrialCreated(number, {"far": 1e6 + number / 1024}, began_s))
        fold(state, AttemptStarted(number, 1, began_s, "w0", 9, "0.log", number))
        steps += [(frame, number == 0) for frame in frames(state, since)]
        since = state.seq
    told = in_page(steps)[-1]["rows"]
    assert [row["started_at_s"] for row in told] == [1_795_000_000.25 + n for n in range(3)]
    assert [row["params"]["far"] for row in told] == [1e6 + n / 1024 for n in range(3)]


def test_what_no_trial_has_is_no_column() -> None:
    state = fresh()
    fold(state, TrialCreated(0, {}, 3.0))
    steps = [(frames(state)[0], True)]
    since = state.seq
    fold(state, AttemptStarted(0, 1, 3.0, "w0", 9, "0.log", 0))
    told = in_page([*steps, (frames(state, since)[0], False)])
    assert "step" not in told[-1]["own"]
    assert "started_at_s" in told[-1]["own"]


def test_of_more_parameters_than_are_told_the_page_knows_how_many_there_are() -> None:
    state = fresh()
    fold(state, TrialCreated(0, {f"p{n}": 0.5 for n in range(300)}, 3.0))
    told = in_page([(frame, n == 0) for n, frame in enumerate(frames(state))])[-1]
    assert len(told["rows"][0]["params"]) == 256
    assert told["nParams"] == 300
    # What has changed is of fewer parameters, and there are no less of them.
    since = state.seq
    fold(state, TrialCreated(1, {"p7": 0.5}, 3.0))
    steps = [(frames(state, 0)[0], True), (frames(state, since)[0], False)]
    assert [each["nParams"] for each in in_page(steps)] == [300, 300]


def test_of_more_metrics_than_are_kept_the_page_knows_how_many_there_are() -> None:
    state = fresh()
    fold(state, TrialCreated(0, {"lr": 0.5}, 3.0))
    fold(state, AttemptStarted(0, 1, 3.0, "w0", 9, "0.log", 0))
    for step in range(2):
        fold(state, Reported(0, 1, step, {f"m{n}": 0.5 for n in range(250)}, 4.0))
    told = in_page([(frame, n == 0) for n, frame in enumerate(frames(state))])[-1]
    assert len(told["least"]) == 16
    assert told["nMetrics"] == 250


def test_when_trials_began_is_told_while_some_of_them_run() -> None:
    state = fresh()
    fold(state, TrialCreated(0, {}, 3.0))
    fold(state, AttemptStarted(0, 1, 3.0, "w0", 9, "0.log", 0))
    is_told = []
    for _ in range(2):
        heads = columns_part(state, GetColumns(1, "r", 0, 0))[0].columns
        is_told.append("started_at_s" in [head.name for head in heads])
        fold(state, AttemptFinished(0, 1, "complete", 5.0, 2.0, 0.5, 9))
    assert is_told == [True, False]


def test_least_and_most_of_a_metric_are_those_of_the_last_attempt() -> None:
    state = fresh()
    fold(state, TrialCreated(0, {}, 3.0))
    for attempt, values in ((1, (5.0, -9.0)), (2, (1.0, math.nan, 3.0, 2.0))):
        fold(state, AttemptStarted(0, attempt, 3.0, "w0", 9, "0.log", 0))
        for step, value in enumerate(values):
            fold(state, Reported(0, attempt, step, {"loss": value}, 4.0))
        if attempt == 1:
            fold(state, AttemptFinished(0, 1, "evicted", 5.0, 1.0, None, 9))
    told = in_page([(frames(state)[0], True)])[0]
    assert told["rows"][0]["metrics"] == {"loss": 2}
    assert (told["least"], told["most"]) == ({"loss": [1]}, {"loss": [3]})


def test_what_changes_is_told_once_and_a_run_that_begins_anew_is_told_as_a_whole() -> None:
    state = fresh()
    rng = random.Random(1)
    for number in range(20):
        for event in trial_events(number, rng):
            fold(state, event)
    nothing, _ = columns_part(state, GetColumns(1, "r", since=state.seq))
    assert (nothing.n_rows, nothing.n_trials) == (0, 20)
    later, _ = columns_part(state, GetColumns(1, "r", since=state.seq + 1))
    assert later.n_rows == 20
    assert all(head.name != "row" for head in later.columns)


def test_a_large_answer_is_not_kept_and_does_not_hold_up_what_is_pushed() -> None:
    state = fresh()
    fold(state, TrialCreated(0, {"lr": 0.5}, 3.0))
    head, data = columns_part(state, GetColumns(1, "r"))
    now_s = [0.0]
    channel = Channel(listens=False, lossy=False, clock=lambda: now_s[0])
    ask = msgspec.json.encode(GetColumns(1, "r"))
    for _ in range(2):  # the second one is carried out as well
        assert isinstance(channel.receive(ask), GetColumns)
        channel.answer(Columns(head, data + bytes(3_000_000)))
        assert [len(each) > 3_000_000 for each in channel.due()] == [True]
        assert channel.wait_s() > 0  # nothing is queued
        now_s[0] += 1.0
    channel.answer(Done(2))
    assert len(channel.due()) == 1


def test_no_part_is_larger_than_a_message_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PART_BYTES", 4_000)
    state = fresh()
    for number in range(400):
        params: dict[str, Any] = {f"p{n}": number / (n + 7) for n in range(6)}
        fold(state, TrialCreated(number, params | {"width": number, "on": True}, 3.0))
        fold(state, AttemptStarted(number, 1, 3.0, f"w{number % 3}", 9, "0.log", number))
    sizes = [len(columns_part(state, GetColumns(1, "r", 0, part))[1]) for part in range(5)]
    assert max(sizes) <= 4_000
