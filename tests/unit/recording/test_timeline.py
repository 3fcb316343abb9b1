"""A timeline shows at each moment what the reducer makes of the facts until then."""

from __future__ import annotations

import base64
import json
import math
import random
import subprocess
from collections.abc import Iterator
from typing import Any, TypeGuard

import msgspec
import pytest
from simulate_runs import simulated

from jupyter_ddl.errors import RecordingError
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import snapshot_of
from jupyter_ddl.ledger.tables import complete_trials
from jupyter_ddl.plotting.importance import importance_of
from jupyter_ddl.protocol.events import AttemptStarted, Event, Reported, RunFinished, RunSubmitted
from jupyter_ddl.protocol.sampling import StudySpec
from jupyter_ddl.recording import timeline as timelines
from jupyter_ddl.recording.lines import Fact, Measured, Printed, Recording, time_of
from jupyter_ddl.recording.timeline import difference, timeline_of
from jupyter_ddl.recording.write import head_of
from jupyter_ddl.views.analysis import cell_of
from jupyter_ddl.views.bundle import LIVE_DIR
from tests.unit.cell.cell_makers import compiled
from tests.unit.ledger.event_makers import (
    created,
    ended,
    reported,
    started,
    submitted,
    twenty_events,
)
from tests.unit.recorded_runs import BEGAN_S, CELL, LINE, events_of_search
from tests.unit.views.node_tools import node


class Player:
    """The player's modules in a Node process."""

    def __init__(self, driver: str) -> None:
        self._process = subprocess.Popen(
            [node(), driver, str(LIVE_DIR)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **what: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def load(self, recording: Recording) -> float:
        return float(self.ask(timeline=base64.b64encode(timeline_of(recording)).decode()))

    def at(self, at_s: float) -> dict[str, Any]:
        """The snapshot that is shown at a moment."""
        return dict(self.ask(at=at_s)["said"][0]["snapshot"])

    def close(self) -> None:
        self._process.communicate(timeout=120)


@pytest.fixture(scope="module")
def player(request: pytest.FixtureRequest) -> Iterator[Player]:
    found = Player(str(request.path.with_name("player_driver.mjs")))
    yield found
    found.close()


def recording_of(*facts: Fact) -> Recording:
    return Recording(head_of(facts, "recorded"), tuple(facts))


def slow_run() -> list[Event]:
    """Forty trials on one slot, one per second."""
    events: list[Event] = [submitted(), started()]
    for number in range(40):
        at_s = 1002.0 + number
        events.append(created(number, lr=round(0.01 * number, 2), at_s=at_s))
        events.append(AttemptStarted(number, 1, at_s, "worker-1", 7, "a.log", 0))
        events.append(msgspec.structs.replace(reported(number, acc=number / 40), at_s=at_s + 0.5))
        outcome: Any = "pruned" if number % 3 else "complete"
        events.append(ended(number, 1, outcome, number / 40, at_s=at_s + 0.9))
    events.append(RunFinished(1043.0, "complete"))
    return events


# -- patches -----------------------------------------------------------------------------------


def _value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(8 if depth < 3 else 5)
    if kind < 5:
        return chance.choice([None, True, 0, 1.5, "", "a", "-", "+", "__proto__", -3, []])
    if kind == 5:
        return [_value(chance, depth + 1) for _ in range(chance.randrange(5))]
    names = ("a", "b", "-", "+", "0", "1", "__proto__", "constructor", "")
    return {chance.choice(names): _value(chance, depth + 1) for _ in range(chance.randrange(5))}


def _changed(value: Any, chance: random.Random) -> Any:
    """Something like it."""
    if isinstance(value, list):
        kept = [_changed(item, chance) if chance.random() < 0.2 else item for item in value]
        front = chance.randrange(3) if chance.random() < 0.4 else 0
        return [*kept[front:], *(_value(chance, 2) for _ in range(chance.randrange(3)))]
    if isinstance(value, dict):
        kept_items = {k: v for k, v in value.items() if chance.random() < 0.9}
        return {k: _changed(v, chance) for k, v in kept_items.items()} | {"n": chance.random()}
    return value if chance.random() < 0.6 else _value(chance)


def test_a_patch_turns_one_value_into_the_other(player: Player) -> None:
    chance = random.Random(3)
    pairs = []
    for _ in range(3000):
        old = _value(chance)
        pairs.append((old, _changed(old, chance) if chance.random() < 0.8 else _value(chance)))
    made = player.ask(patch=[[old, difference(old, new)] for old, new in pairs])
    for (old, new), seen in zip(pairs, made, strict=True):
        assert seen == new, (old, difference(old, new))


def test_what_slides_or_grows_is_a_small_patch() -> None:
    window = list(range(60))
    assert difference(window, [*window[1:], 60]) == {"-": 1, "+": [60]}
    assert difference(window, [*window, 60]) == {"+": [60]}
    assert difference({"a": 1, "b": 2}, {"a": 1}) == {"b": []}
    assert difference([1, 2, 3], [1, 5, 3]) == {"1": [5]}
    assert difference({"a": [1]}, {"a": [1]}) is None
    assert difference(True, 1) == [1]


# -- pictures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("at_s", [0.0, 1.0, 5.25, 17.8, 40.0, 43.5])
def test_a_moment_shows_the_run_as_it_was(player: Player, at_s: float) -> None:
    events = slow_run()
    player.load(recording_of(*events))
    shown = player.at(at_s)
    until = [event for event in events if time_of(event) <= 1000.0 + at_s]
    expected = json.loads(msgspec.json.encode(snapshot_of(fold_all(until), 1000.0 + at_s)))
    assert shown["counts"] == expected["counts"]
    assert shown["state"] == expected["state"]
    assert shown["best"] == expected["best"]
    assert [row["number"] for row in shown["rows"]] == [row["number"] for row in expected["rows"]]
    for row, other in zip(shown["rows"], expected["rows"], strict=True):
        # The table keeps metrics longer than the reducer does.
        own = {"duration_s": 0, "metrics": other["metrics"] or row["metrics"]}
        assert {**row, "duration_s": 0} == {**other, **own}
        if other["duration_s"] is not None:
            assert math.isclose(row["duration_s"], other["duration_s"], abs_tol=1e-5)


def test_going_back_is_said_so_that_the_view_believes_what_is_older(player: Player) -> None:
    player.load(recording_of(*slow_run()))
    assert player.ask(at=30.0)["isBack"] is False
    assert player.ask(at=30.0)["isBack"] is False
    back = player.ask(at=10.0)
    assert back["isBack"] is True
    assert back["said"][0]["snapshot"]["counts"]["complete"] == 3


def test_messages_are_numbered_and_carry_the_time_of_the_moment(player: Player) -> None:
    player.load(recording_of(*slow_run()))
    first, second = (player.ask(at=at_s)["said"][0] for at_s in (1.0, 2.0))
    assert (first["seq"], second["seq"]) == (1, 2)
    assert (first["at_s"], second["at_s"]) == (1001.0, 1002.0)
    assert first["kind"] == "run"


def test_a_view_is_told_all_trials_of_that_moment(player: Player) -> None:
    player.load(recording_of(*slow_run()))
    player.ask(at=43.5)
    ask = {"kind": "get_columns", "id": 7, "run_id": "r1", "since": 0, "part": 0}
    (told,) = player.ask(request=ask)
    assert (told["kind"], told["id"]) == ("columns", 7)
    complete = [row["number"] for row in told["rows"] if row["state"] == "complete"]
    assert len(complete) == 14
    player.ask(at=20.0)
    (before,) = player.ask(request=ask)
    assert before["seq"] < told["seq"]
    assert len([row for row in before["rows"] if row["state"] == "complete"]) < 14


def test_output_is_that_of_the_trial_until_the_moment(player: Player) -> None:
    events = slow_run()
    said = [
        Printed(1002.4, 0, ("zero one", "zero two")),
        Printed(1003.4, 1, ("one <b>",)),
        Printed(1030.0, 0, ("zero late",), 3),
    ]
    facts = sorted([*events[1:], *said], key=time_of)
    player.load(recording_of(events[0], *facts))
    ask = {"kind": "get_log", "id": 1, "run_id": "r1", "contains": "ZERO", "n_lines": 200}
    player.ask(at=20.0)
    assert player.ask(request=ask)[0]["lines"] == ["zero one", "zero two"]
    player.ask(at=40.0)
    assert player.ask(request={**ask, "n_lines": 2})[0]["lines"] == ["zero two", "zero late"]
    assert player.ask(request={**ask, "rank": 3})[0]["lines"] == ["zero late"]
    assert player.ask(request={**ask, "contains": "", "trial": 1})[0]["lines"] == ["one <b>"]


def test_what_waits_or_runs_is_cancelled_by_the_end(player: Player) -> None:
    events: list[Event] = [submitted(), started(), created(0), created(1)]
    events += [AttemptStarted(0, 1, 1003.0, "w", 7, "a.log", 0), RunFinished(1009.0, "cancelled")]
    player.load(recording_of(*events))
    player.ask(at=9.5)
    ask = {"kind": "get_columns", "id": 1, "run_id": "r1", "since": 0, "part": 0}
    (told,) = player.ask(request=ask)
    assert [row["state"] for row in told["rows"]] == ["cancelled", "cancelled"]


def test_of_much_output_the_end_is_kept(player: Player) -> None:
    said = [Printed(1005.0 + n, 0, tuple(f"line {n} {k}" for k in range(500))) for n in range(9)]
    player.load(recording_of(submitted(), started(), *said))
    player.ask(at=20.0)
    ask = {"kind": "get_log", "id": 1, "run_id": "r1", "contains": "line 4", "n_lines": 500}
    assert player.ask(request=ask)[0]["lines"] == []
    assert len(player.ask(request={**ask, "contains": "line 5"})[0]["lines"]) == 500


def test_nothing_of_a_recording_can_be_stopped(player: Player) -> None:
    player.load(recording_of(*slow_run()))
    (answer,) = player.ask(request={"kind": "stop_run", "id": 4, "run_id": "r1", "how": "now"})
    assert (answer["kind"], answer["id"]) == ("denied", 4)


def test_a_search_answers_why_it_went_as_it_did_as_its_run_would(player: Player) -> None:
    spec = msgspec.structs.replace(compiled(LINE, CELL).spec, run_id="r1")
    events = [RunSubmitted(spec, BEGAN_S), *events_of_search(60)]
    length_s = player.load(recording_of(*events))
    player.ask(at=length_s)
    ask = {"id": 5, "run_id": "r1"}
    (told,) = player.ask(request={**ask, "kind": "get_importance"})
    state = fold_all(events)
    found = importance_of(search_of(state), complete_trials(state))
    assert [name for name, _ in told["shares"]] == list(found.shares)
    assert (told["n_trials"], told["note"]) == (found.n_trials, "of the whole recording")
    (curves,) = player.ask(request={**ask, "kind": "get_curves", "metric": "loss"})
    assert (curves["metrics"], len(curves["curves"])) == (["val_acc", "loss"], 40)
    drawn = {each["trial"]: each["points"] for each in curves["curves"]}
    reported = [(e.step, e.metrics["loss"]) for e in events if is_report(e, 40)]
    assert [step for step, _ in drawn[40]] == [step for step, _ in reported]
    assert [value for _, value in drawn[40]] == pytest.approx([v for _, v in reported], rel=1e-5)
    (timed,) = player.ask(request={**ask, "kind": "get_curves", "metric": "loss", "axis": "time"})
    seconds = {each["trial"]: [at_s for at_s, _ in each["points"]] for each in timed["curves"]}
    assert seconds[40] == pytest.approx([0, 0.1, 0.2, 0.3])
    best = state.top[0][1]
    (card,) = player.ask(request={**ask, "kind": "get_trial", "trial": best})
    assert card["cell"] == cell_of(state, best)[0]
    assert card["row"]["number"] == best
    assert {each["metric"] for each in card["curves"]} == {"val_acc", "loss"}
    player.ask(at=0.5)  # what comes later is not there yet
    (early,) = player.ask(request={**ask, "kind": "get_curves", "metric": "loss"})
    assert early["curves"] == []
    (none,) = player.ask(request={**ask, "kind": "get_trial", "trial": 40})
    assert none["kind"] == "denied"


def is_report(event: Event, trial: int) -> TypeGuard[Reported]:
    return isinstance(event, Reported) and event.trial == trial


def search_of(state: RunState) -> StudySpec:
    assert state.spec is not None
    assert state.spec.verb.study is not None
    return state.spec.verb.study


def test_the_machines_and_the_last_steps_of_ranks_are_shown(player: Player) -> None:
    timeline = timeline_of(simulated("training-64-ranks"))
    assert len(timeline) < 150_000  # docs/architecture/views.md says so
    player.ask(timeline=base64.b64encode(timeline).decode())
    run, telemetry = player.ask(at=185.0)["said"]
    assert len(run["snapshot"]["ranks"]) == 64
    now_s = run["at_s"]
    assert all(0 <= now_s - row["heard_at_s"] < 4 for row in run["snapshot"]["ranks"])
    workers = telemetry["telemetry"]["workers"]
    assert (len(workers), len(workers[0]["gpus"])) == (8, 8)
    histories = telemetry["telemetry"]["histories"]
    assert [len(each["gpu"]) for each in histories] == [8] * 8
    assert {len(each["cpu"]) for each in histories} == {60}
    # Another round: what its ranks have not done yet is not told of them.
    facts = simulated("training-64-ranks").facts
    _, second = (fact.at_s for fact in facts if isinstance(fact, AttemptStarted))
    begun_s = second - time_of(facts[0]) + 1.5
    ranks = player.ask(at=begun_s)["said"][0]["snapshot"]["ranks"]
    assert {row["heard_at_s"] for row in ranks} == {None}


def test_the_same_recording_is_the_same_timeline_and_small() -> None:
    recording = recording_of(*slow_run())
    assert timeline_of(recording) == timeline_of(recording)
    assert len(timeline_of(recording)) < 10_000


def test_a_long_pause_needs_no_pictures() -> None:
    events = slow_run()
    late = [events[0], *(msgspec.structs.replace(e, at_s=e.at_s + 1e6) for e in events[1:])]
    assert len(timeline_of(recording_of(*late))) < 10_000


def test_a_timeline_that_is_too_large_gets_less_detail_and_is_refused_at_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recording = recording_of(*slow_run())
    whole = len(timeline_of(recording))
    monkeypatch.setattr(timelines, "MAX_TIMELINE_BYTES", whole - 1)
    assert len(timeline_of(recording)) < whole
    monkeypatch.setattr(timelines, "MAX_TIMELINE_BYTES", 1000)
    with pytest.raises(RecordingError, match="bytes are over the limit of 1,000; record a shorter"):
        timeline_of(recording)


def test_what_has_happened_so_far_is_a_timeline_as_well(player: Player) -> None:
    length_s = player.load(recording_of(*twenty_events()))
    assert length_s == 6.5
    assert player.at(length_s)["stopping"] is True


def test_a_run_that_has_only_been_submitted_is_a_timeline(player: Player) -> None:
    assert player.load(recording_of(submitted())) == 0.5
    assert player.at(0.0)["state"] == "submitted"


def test_events_are_all_that_the_reducer_gets() -> None:
    facts = [fact for fact in simulated("search-500-trials").facts if not isinstance(fact, Event)]
    assert {type(fact) for fact in facts} == {Measured, Printed}
