"""What one viewer is sent, and when; in virtual time."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

import tests.unit.views.view_samples as samples
from jupyter_ddl.protocol.telemetry import ClusterTelemetry, EncodedTelemetry
from jupyter_ddl.protocol.view_messages import (
    Denied,
    Done,
    StopRun,
    TelemetryView,
    WatchRun,
)
from jupyter_ddl.views.channel import MAX_BYTES_PER_S, Channel

replace = msgspec.structs.replace
RUNNING = samples.search()
DONE = replace(RUNNING, seq=999, state="complete", finished_at_s=samples.NOW_S)


class Line:
    """A channel and the clock that it looks at."""

    def __init__(self, **options: Any) -> None:
        self.now_s = 0.0
        self.channel = Channel(clock=lambda: self.now_s, now=lambda: 1e9 + self.now_s, **options)
        self.sent: list[tuple[float, dict[str, Any]]] = []

    def show(self, snapshot: Any) -> None:
        self.channel.offer(samples.encoded(snapshot))

    def run(self, seconds: float, *, heard: bool = True, step_s: float = 0.02) -> None:
        """Let time pass, with a sign of life of the viewer twice a second."""
        for k in range(round(seconds / step_s)):
            if heard and k % 25 == 0:
                newest = self.sent[-1][1].get("seq", 0) if self.sent else 0
                self.channel.receive({"kind": "have", "seq": newest})
            self.sent += [(self.now_s, json.loads(each)) for each in self.channel.due()]
            self.now_s += step_s

    def seqs(self) -> list[int]:
        return [message["seq"] for _, message in self.sent]


def test_a_state_that_changes_all_the_time_is_sent_as_often_as_the_carrier_bears() -> None:
    line = Line()
    for k in range(500):
        line.show(replace(RUNNING, seq=k))
        line.run(0.02)
    assert 100 <= len(line.sent) <= 106  # ten a second, and a few at once to begin with
    assert line.seqs() == list(range(1, len(line.sent) + 1))
    assert line.sent[-1][1]["snapshot"]["seq"] >= 480


def test_a_state_that_does_not_change_is_repeated_with_the_time_of_sending() -> None:
    line = Line()
    line.show(RUNNING)
    line.run(10)
    assert 10 <= len(line.sent) <= 13
    assert all(message["at_s"] == pytest.approx(1e9 + at_s) for at_s, message in line.sent)


def test_what_nobody_says_to_have_is_repeated_soon_and_not_for_ever() -> None:
    line = Line()
    line.show(RUNNING)
    line.run(6, heard=False)
    in_two_s = [at_s for at_s, _ in line.sent if at_s <= 2.01]
    assert len(in_two_s) >= 14
    assert len(line.sent) - len(in_two_s) <= 7


def test_more_bytes_than_the_limit_are_never_sent_for_long() -> None:
    line = Line()
    large = replace(RUNNING, notices=("x" * 12_000,) * 5)
    for k in range(1000):
        line.show(replace(large, seq=k))
        line.run(0.02)
    n_bytes = line.channel.n_bytes
    assert n_bytes / 20 <= MAX_BYTES_PER_S * 1.05 <= 200_000
    assert len(line.sent) / 20 <= 10


def test_the_end_is_sent_at_once_and_repeated_until_it_has_been_seen() -> None:
    line = Line()
    line.show(RUNNING)
    line.run(0.1)
    line.show(DONE)
    line.run(2)
    n_sent = len([m for _, m in line.sent if m["snapshot"]["state"] == "complete"])
    assert n_sent >= 12
    assert not line.channel.is_over
    line.channel.receive({"kind": "seen", "run_id": DONE.run_id})
    assert line.channel.is_over
    before = len(line.sent)
    line.run(5)
    assert len(line.sent) == before


def test_an_end_that_nobody_has_seen_is_over_after_half_a_minute() -> None:
    line = Line()
    line.show(DONE)
    line.run(29)
    assert not line.channel.is_over
    line.run(2)
    assert line.channel.is_over
    assert len(line.sent) < 60


def test_who_gives_no_sign_of_life_is_sent_nothing_until_it_asks() -> None:
    line = Line()
    for k in range(1000):
        line.show(replace(RUNNING, seq=k))
        line.run(0.02, heard=False)
    in_first = [at_s for at_s, _ in line.sent if at_s < 10.1]
    assert len(in_first) == len(line.sent)
    line.sent.clear()
    line.channel.receive({"kind": "again", "seq": 3})
    line.run(0.5, heard=False)
    assert 1 <= len(line.sent) <= 5
    assert line.sent[0][1]["snapshot"]["seq"] == 999


def test_an_older_snapshot_does_not_replace_a_newer_one() -> None:
    line = Line()
    line.show(replace(RUNNING, seq=20))
    line.show(replace(RUNNING, seq=10))
    line.run(3)
    assert {message["snapshot"]["seq"] for _, message in line.sent} == {20}


def test_a_repeated_request_is_carried_out_once_and_answered_again() -> None:
    line = Line()
    ask = {"kind": "stop_run", "id": 7, "run_id": "r-1", "how": "keep_best"}
    assert line.channel.receive(ask) == StopRun(7, "r-1", "keep_best")
    assert line.channel.receive(ask) is None
    line.channel.answer(Done(7, "stops"))
    line.run(0.1)
    assert [m for _, m in line.sent if m["kind"] == "done"] == [
        {"kind": "done", "id": 7, "text": "stops"}
    ]
    assert line.channel.receive(ask) is None
    line.run(0.1)
    assert len([m for _, m in line.sent if m["kind"] == "done"]) == 2


def test_a_request_with_the_number_of_another_one_is_not_carried_out_and_told() -> None:
    line = Line()
    first = {"kind": "watch", "id": 1, "run_id": "r-1"}
    assert line.channel.receive(first) == WatchRun(1, "r-1")
    line.channel.answer(Done(1))
    line.run(0.1)
    assert line.channel.receive({**first, "run_id": "r-2"}) is None
    line.run(0.1)
    told = line.sent[-1][1]
    assert (told["kind"], told["id"]) == ("denied", 1)
    assert "its id 1 is that of another request (WatchRun)" in told["text"]
    assert line.channel.receive(first) is None
    line.run(0.1)
    assert line.sent[-1][1] == {"kind": "done", "id": 1, "text": ""}


def test_an_answer_to_no_request_does_not_take_a_number() -> None:
    line = Line()
    line.channel.answer(Denied(0, "DDL-6001", "this is not a message"))
    assert line.channel.receive({"kind": "watch", "id": 0, "run_id": "r-1"}) == WatchRun(0, "r-1")


def test_telemetry_and_snapshots_are_topics_of_their_own() -> None:
    line = Line()
    line.show(RUNNING)
    telemetry = ClusterTelemetry(seq=3, at_s=1.0)
    encoded = msgspec.json.encode(telemetry)
    line.channel.offer(EncodedTelemetry("local", RUNNING.run_id, encoded))
    line.run(0.3)
    assert {message["kind"] for _, message in line.sent} == {"run", "telemetry"}
    sent = next(message for _, message in line.sent if message["kind"] == "telemetry")
    shown = TelemetryView(sent["seq"], "local", telemetry, RUNNING.run_id)
    assert msgspec.convert(sent, type=TelemetryView) == shown


def _junk(rng: random.Random) -> Any:
    """Something that a broken or hostile page could send."""
    good = {"kind": "stop_run", "id": 1, "run_id": "r-1", "how": "now"}
    match rng.randrange(11):
        case 0:
            return rng.randbytes(rng.randrange(200))
        case 1:
            return "{" * rng.randrange(5000)
        case 2:
            return json.dumps(good)[: rng.randrange(1, 40)]
        case 3:
            return {**good, rng.choice(["kind", "id", "run_id", "how"]): [good]}
        case 4:
            return {**good, "run_id": "x" * rng.randrange(1001, 100_000)}
        case 5:
            return {**good, "how": rng.choice(["", "NOW", None, 3, 1.5, "now\x00"])}
        case 6:
            nested: Any = good
            for _ in range(rng.randrange(1, 900)):
                nested = {"kind": nested}
            return nested
        case 7:
            return {str(k): k for k in range(rng.randrange(17, 300))}
        case 8:
            return rng.choice([None, 0, [], [good], 3.5, True, object(), {1: 2}, {"kind": "run"}])
        case 9:
            return {**good, "id": rng.choice([2**70, "1", None, 1.5, float("nan")])}
        case _:
            return {"kind": rng.choice(["__class__", "watch ", "RUN", "", "again\n"]), "id": 1}


def test_twenty_thousand_malformed_messages_are_refused_and_counted() -> None:
    line = Line()
    rng = random.Random(4)
    for _ in range(20_000):
        line.now_s += 0.1
        assert line.channel.receive(_junk(rng)) is None
    assert line.channel.n_refused == 20_000
    assert line.channel.receive({"kind": "stop_run", "id": 1, "run_id": "r"}) is not None


def test_a_flood_of_well_formed_requests_is_cut() -> None:
    line = Line()
    taken = [
        line.channel.receive({"kind": "get_log", "id": k, "run_id": "r"}) for k in range(10_000)
    ]
    assert len([each for each in taken if each is not None]) <= 20
    assert line.channel.n_refused >= 9_980
