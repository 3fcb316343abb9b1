"""The view after lost messages: the real client in Node, the real channel, virtual time."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import tests.unit.views.view_samples as samples
from jupyter_ddl.protocol.view_messages import Done, RunView
from jupyter_ddl.views.bundle import LIVE_DIR
from jupyter_ddl.views.channel import Channel
from tests.unit.views.node_tools import node

replace = msgspec.structs.replace
RUNNING = samples.search()
_STEP_S = 0.05


class Viewer:
    """A client in a Node process; one at a time."""

    def __init__(self) -> None:
        driver = Path(__file__).with_name("live_client.mjs")
        self._process = subprocess.Popen(
            [node(), str(driver), str(LIVE_DIR / "client.js")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def step(self, **what: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"messages": [], **what}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.communicate(timeout=120)


class Carrier:
    """Takes messages both ways and loses some of them."""

    def __init__(self, viewer: Viewer, loss: float, seed: int) -> None:
        self.now_s = 0.0
        self.channel = Channel(clock=lambda: self.now_s, now=lambda: 1e9 + self.now_s)
        self.seen: dict[str, Any] = {}
        self.answers: list[dict[str, Any]] = []
        self.requests: list[Any] = []
        self._viewer = viewer
        self._loss = loss
        self._rng = random.Random(seed)
        self._is_new = True

    def show(self, snapshot: Any) -> None:
        self.channel.offer(samples.encoded(snapshot))

    def run(self, seconds: float, request: dict[str, Any] | None = None) -> None:
        for _ in range(round(seconds / _STEP_S)):
            arrived = [json.loads(each) for each in self.channel.due() if self._keeps()]
            step: dict[str, Any] = {"t": round(1000 * self.now_s), "messages": arrived}
            if self._is_new:
                step["begin"], self._is_new = True, False
            if request is not None:
                step["request"], request = request, None
            self.seen = self._viewer.step(**step)
            self.answers += self.seen["answers"]
            for message in self.seen["out"]:
                body = self.channel.receive(message) if self._keeps() else None
                if body is not None:
                    self.requests.append(body)
                    self.channel.answer(Done(body.id, "yes"))
            self.now_s += _STEP_S

    def _keeps(self) -> bool:
        return self._rng.random() >= self._loss


@pytest.fixture(scope="module")
def viewer() -> Iterator[Viewer]:
    started = Viewer()
    yield started
    started.close()


def test_half_of_all_messages_lost_the_view_is_right_within_two_seconds_50_of_50(
    viewer: Viewer,
) -> None:
    n_lost = 0
    for seed in range(50):
        carrier = Carrier(viewer, 0.5, seed)
        for k in range(20):
            carrier.show(replace(RUNNING, seq=k + 1))
            carrier.run(0.1)
        carrier.run(2.0)
        assert carrier.seen["seq"] == 20, f"seed {seed}: a quiet run"
        state = ("complete", "failed", "cancelled")[seed % 3]
        carrier.show(replace(RUNNING, seq=999, state=state, finished_at_s=1.0))
        carrier.run(2.0)
        assert (carrier.seen["seq"], carrier.seen["state"]) == (999, state), f"seed {seed}"
        n_lost += carrier.seen["nLost"]
    assert n_lost > 200


def test_without_losses_nothing_is_asked_twice(viewer: Viewer) -> None:
    carrier = Carrier(viewer, 0.0, 0)
    for k in range(50):
        carrier.show(replace(RUNNING, seq=k + 1))
        carrier.run(0.1)
    assert carrier.seen["nLost"] == 0
    assert carrier.channel.n_sent == 50
    carrier.show(replace(RUNNING, seq=60, state="complete", finished_at_s=1.0))
    n_before = carrier.channel.n_sent
    carrier.run(3)
    assert carrier.channel.is_over
    assert carrier.channel.n_sent - n_before <= 2
    assert carrier.seen["state"] == "complete"


def test_a_request_gets_through_losses_and_is_carried_out_once(viewer: Viewer) -> None:
    for seed in range(10):
        carrier = Carrier(viewer, 0.5, 100 + seed)
        carrier.show(RUNNING)
        carrier.run(11, {"kind": "stop_run", "run_id": RUNNING.run_id, "how": "now"})
        assert len(carrier.requests) == 1, f"seed {seed}"
        assert [each["kind"] for each in carrier.answers] == ["done"], f"seed {seed}"


def test_a_late_older_snapshot_is_not_shown(viewer: Viewer) -> None:
    carrier = Carrier(viewer, 0.0, 0)
    carrier.show(replace(RUNNING, seq=5))
    carrier.run(0.2)
    late = msgspec.json.decode(msgspec.json.encode(RunView(1, 1e9, replace(RUNNING, seq=3))))
    answer = viewer.step(t=round(1000 * carrier.now_s), messages=[late])
    assert answer["seq"] == 5


def test_after_silence_the_view_asks(viewer: Viewer) -> None:
    carrier = Carrier(viewer, 0.0, 0)
    carrier.show(RUNNING)
    carrier.run(0.2)
    silent = viewer.step(t=2600)
    assert "again" in [message["kind"] for message in silent["out"]]


def test_what_is_no_message_is_ignored(viewer: Viewer) -> None:
    carrier = Carrier(viewer, 0.0, 0)
    carrier.show(RUNNING)
    carrier.run(0.2)
    junk: list[Any] = [None, 3, "x", [], {}, {"kind": "run"}, {"kind": "run", "snapshot": None}]
    junk += [{"kind": "done"}, {"kind": "log", "id": -4}, {"kind": "later", "seq": 7}]
    answer = viewer.step(t=round(1000 * carrier.now_s), messages=junk)
    assert answer["seq"] == RUNNING.seq
