from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests.unit.views.view_samples as samples
from jupyter_ddl.protocol.snapshot import RunSnapshot
from jupyter_ddl.views.pump import Pump

MAPPED = samples.mapped()


def at_seq(seq: int, *, final: bool = False) -> RunSnapshot:
    state = "complete" if final else "running"
    return msgspec.structs.replace(MAPPED, seq=seq, state=state)


class Screen:
    """Remembers what was drawn, and when."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.drawn: list[tuple[float, RunSnapshot]] = []

    def render(self, snapshot: RunSnapshot) -> None:
        self.drawn.append((self.now_s, snapshot))

    @property
    def seqs(self) -> list[int]:
        return [snapshot.seq for _, snapshot in self.drawn]


offers = st.lists(
    st.tuples(
        st.integers(0, 76).map(lambda k: k / 128),  # seconds since the offer before
        st.integers(0, 40),  # seq
        st.sampled_from(["offer", "tick"]),
    ),
    max_size=80,
)


@given(
    st.lists(st.integers(0, 24).map(lambda k: k / 64), min_size=20, max_size=80),
    st.sampled_from([2.0, 4.0, 8.0]),
)
def test_redraws_never_come_faster_than_the_rate(gaps_s: list[float], rate_hz: float) -> None:
    screen = Screen()
    pump = Pump(screen.render, rate_hz=rate_hz, clock=lambda: screen.now_s)
    for seq, gap_s in enumerate(gaps_s):
        screen.now_s += gap_s
        if seq % 3:
            pump.offer(at_seq(seq))
        else:
            pump.tick()
    times_s = [at_s for at_s, _ in screen.drawn]
    gaps = [b - a for a, b in itertools.pairwise(times_s)]
    assert all(gap_s >= 1 / rate_hz - 1e-9 for gap_s in gaps)


@given(offers)
def test_an_older_snapshot_never_follows_a_newer_one(steps: list[tuple[float, int, str]]) -> None:
    screen = Screen()
    pump = Pump(screen.render, clock=lambda: screen.now_s)
    for gap_s, seq, action in steps:
        screen.now_s += gap_s
        if action == "offer":
            pump.offer(at_seq(seq))
        else:
            pump.tick()
    assert screen.seqs == sorted(screen.seqs)


@given(offers)
def test_the_newest_snapshot_is_on_the_screen_after_a_flush(
    steps: list[tuple[float, int, str]],
) -> None:
    screen = Screen()
    pump = Pump(screen.render, clock=lambda: screen.now_s)
    offered = [seq for _, seq, action in steps if action == "offer"]
    for gap_s, seq, action in steps:
        screen.now_s += gap_s
        if action == "offer":
            pump.offer(at_seq(seq))
    pump.flush()
    assert screen.seqs[-1:] == ([max(offered)] if offered else [])


@given(offers)
def test_the_final_snapshot_is_drawn_at_once_and_last(steps: list[tuple[float, int, str]]) -> None:
    screen = Screen()
    pump = Pump(screen.render, clock=lambda: screen.now_s)
    for gap_s, seq, _ in steps:
        screen.now_s += gap_s
        pump.offer(at_seq(seq))
    assert pump.offer(at_seq(41, final=True))
    assert not pump.offer(at_seq(42))
    assert not pump.flush()
    assert screen.seqs[-1] == 41


def test_a_burst_is_folded_into_two_redraws() -> None:
    screen = Screen()
    pump = Pump(screen.render, rate_hz=4, clock=lambda: screen.now_s)
    for seq in range(1000):
        screen.now_s = seq * 0.0002
        pump.offer(at_seq(seq))
    assert not pump.tick()
    screen.now_s = 0.25
    assert pump.tick()
    assert screen.seqs == [0, 999]
    assert not pump.tick()


def test_a_snapshot_that_could_not_be_drawn_stays_kept() -> None:
    seen: list[int] = []

    def render(snapshot: RunSnapshot) -> None:
        seen.append(snapshot.seq)
        if len(seen) == 1:
            raise BrokenPipeError

    pump = Pump(render, clock=lambda: 0.0)
    with pytest.raises(BrokenPipeError):
        pump.offer(at_seq(3))
    assert pump.flush()
    assert seen == [3, 3]


@pytest.mark.parametrize("rate_hz", [0, -1, 10.5, float("nan")])
def test_a_rate_that_would_flood_or_stop_the_page_is_refused(rate_hz: float) -> None:
    with pytest.raises(ValueError, match="at most 10"):
        Pump(lambda snapshot: None, rate_hz=rate_hz)
