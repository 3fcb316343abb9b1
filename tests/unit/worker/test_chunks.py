"""Chunks are numbered from 0, complete, small enough, and kept for a bounded while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from jupyter_ddl.protocol.events import EventChunk, Notice, Reported
from jupyter_ddl.worker import chunks
from jupyter_ddl.worker.chunks import ChunkArchive, ChunkRelay


def reported(step: int) -> Reported:
    return Reported(0, 1, step, {"score": 1.0}, 0.0)


def decoded(published: list[bytes]) -> list[EventChunk]:
    return [msgspec.msgpack.decode(chunk, type=EventChunk) for chunk in published]


def test_events_of_one_interval_travel_in_one_chunk() -> None:
    async def body() -> list[bytes]:
        published: list[bytes] = []
        seen = asyncio.Event()

        def publish(chunk: bytes) -> None:
            published.append(chunk)
            seen.set()

        relay = ChunkRelay("r", "a", publish, ChunkArchive())
        for step in range(3):
            relay.add(reported(step))
        assert published == []
        await asyncio.wait_for(seen.wait(), 5)
        relay.add_encoded(msgspec.msgpack.encode(reported(3)))
        assert relay.close() == 2
        return published

    first, second = decoded(asyncio.run(body()))
    assert (first.run_id, first.assignment_id, first.number) == ("r", "a", 0)
    assert first.events == tuple(map(reported, range(3)))
    assert (second.number, second.events) == (1, (reported(3),))


def test_a_large_amount_is_published_before_the_interval_ends() -> None:
    async def body() -> int:
        published: list[bytes] = []
        relay = ChunkRelay("r", "a", published.append, ChunkArchive())
        relay.add(Notice(0.0, "x" * chunks.FLUSH_BYTES))
        relay.close()
        return len(published)

    assert asyncio.run(body()) == 1


def test_a_rank_that_sends_too_much_is_paused_until_the_interval_ends() -> None:
    calls: list[str] = []

    async def body() -> None:
        relay = ChunkRelay("r", "a", lambda _: None, ChunkArchive())
        resumed = asyncio.Event()
        for _ in range(5):
            relay.add(Notice(0.0, "x" * chunks.FLUSH_BYTES))
            relay.slow_down(lambda: calls.append("pause"), resumed.set)
        assert calls == ["pause"]
        await asyncio.wait_for(resumed.wait(), 5)
        relay.close()

    asyncio.run(body())


class _Clock:
    """An event loop's timers in virtual time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._ready: list[Callable[[], object]] = []
        self._timers: list[list[Any]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        self._ready.append(partial(callback, *args))

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        timer = [self.now_s + delay_s, callback]
        self._timers.append(timer)
        return SimpleNamespace(
            cancel=lambda: timer in self._timers and self._timers.remove(timer),
            when=lambda: timer[0],
        )

    def advance(self, seconds: float) -> None:
        self.run_ready()
        self.now_s += seconds
        while due := [timer for timer in self._timers if timer[0] <= self.now_s]:
            self._timers.remove(due[0])
            due[0][1]()
            self.run_ready()

    def run_ready(self) -> None:
        while self._ready:
            self._ready.pop(0)()


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def published() -> list[bytes]:
    return []


@pytest.fixture
def relay(clock: _Clock, published: list[bytes]) -> ChunkRelay:
    async def made() -> ChunkRelay:
        return ChunkRelay("r", "a", published.append, ChunkArchive())

    relay = asyncio.run(made())
    relay._loop = clock  # type: ignore[assignment]
    relay._allowed_at_s = relay._began_s = relay._rested_at_s = 0.0
    return relay


def test_a_rank_that_goes_on_reporting_sends_a_few_chunks_a_second(
    relay: ChunkRelay, clock: _Clock, published: list[bytes]
) -> None:
    for step in range(500):  # 50 a second, for ten seconds
        relay.add(reported(step))
        clock.advance(0.02)
    assert 25 < len(published) < 35  # ten at once, then two a second
    for _ in range(50):
        clock.advance(0.02)
    assert [event.step for chunk in decoded(published) for event in chunk.events] == [*range(500)]
    n_before = len(published)
    relay.add(reported(500))  # after a pause: at once
    clock.run_ready()
    assert len(published) == n_before + 1


class _Rank:
    """Sends reports at a pace into a socket, which is read unless that is paused."""

    def __init__(self, relay: ChunkRelay, clock: _Clock) -> None:
        self._relay, self._clock = relay, clock
        self.waiting: list[Reported] = []
        self.n_wakes = self.most_waiting = 0
        self.is_paused = False
        self.longest_s = 0.0

    def run(self, for_s: float, per_s: float) -> None:
        for step in range(round(for_s * per_s)):
            self.waiting.append(reported(step))
            self.most_waiting = max(self.most_waiting, len(self.waiting))
            if not self.is_paused:
                self.read()
            self._clock.advance(1 / per_s)

    def read(self) -> None:
        self.n_wakes += bool(self.waiting)
        events, self.waiting = self.waiting, []
        for event in events:
            self._relay.add(event)
            self._relay.slow_down(self.pause, self.resume)

    def pause(self) -> None:
        self.is_paused, self._since_s = True, self._clock.now_s

    def resume(self) -> None:
        self.is_paused = False
        self.longest_s = max(self.longest_s, self._clock.now_s - self._since_s)
        self.read()


@pytest.fixture
def rank(relay: ChunkRelay, clock: _Clock) -> _Rank:
    return _Rank(relay, clock)


def test_a_rank_that_goes_on_reporting_is_read_a_few_times_a_second(rank: _Rank) -> None:
    rank.run(20.0, per_s=50)
    rank.n_wakes = 0
    rank.run(10.0, per_s=50)
    assert rank.n_wakes <= 25, "each chunk's wake reads what is in it"
    assert rank.longest_s == pytest.approx(0.5, abs=0.03)


def test_a_rank_behind_the_first_sends_half_as_many_chunks_at_the_same_times(
    clock: _Clock,
) -> None:
    rates = (chunks.CHUNKS_PER_S, chunks.CHUNKS_PER_S_OF_OTHERS)
    sent_at_s: list[list[float]] = [[], []]

    def sender(number: int) -> Callable[[bytes], None]:
        return lambda _: sent_at_s[number].append(clock.now_s)

    async def made() -> list[ChunkRelay]:
        return [
            ChunkRelay("r", f"a{number}", sender(number), ChunkArchive(), per_s)
            for number, per_s in enumerate(rates)
        ]

    relays = asyncio.run(made())
    for relay in relays:
        relay._loop = clock  # type: ignore[assignment]
        relay._allowed_at_s = relay._began_s = relay._rested_at_s = 0.0
    for step in range(1500):
        for relay in relays:
            relay.add(reported(step))
        clock.advance(0.02)
    first, other = ([at_s for at_s in times if at_s > 20] for times in sent_at_s)
    assert len(first) == pytest.approx(20, abs=1)
    assert len(other) == pytest.approx(10, abs=1)
    assert set(other) <= set(first), "the controller wakes up for both at once"


def test_what_a_rank_tells_waits_for_a_twentieth_of_its_time_at_most(rank: _Rank) -> None:
    rank.run(1.0, per_s=200)
    assert rank.is_paused or rank.n_wakes < 200
    assert rank.longest_s <= 0.055


@pytest.mark.parametrize("per_s", [1_000, 5_000, 20_000])
def test_a_rank_that_reports_without_end_finds_room_in_its_socket(
    rank: _Rank, per_s: float
) -> None:
    rank.run(5.0, per_s=per_s)
    rank.most_waiting = 0
    rank.run(2.0, per_s=per_s)
    assert rank.most_waiting < 200


def test_a_rank_that_has_been_told_to_end_is_read_at_once(rank: _Rank, relay: ChunkRelay) -> None:
    rank.run(10.0, per_s=50)
    relay.hurry()
    assert not rank.is_paused
    rank.run(1.0, per_s=50)
    assert not rank.is_paused


def test_an_assignment_without_events_has_no_chunks() -> None:
    async def body() -> tuple[int, int | None]:
        archive = ChunkArchive()
        relay = ChunkRelay("r", "a", lambda _: None, archive)
        return relay.close(), archive.n_chunks_of_finished("a")

    assert asyncio.run(body()) == (0, 0)


def test_chunks_are_replayed_from_a_number_on() -> None:
    archive = ChunkArchive()
    for data in (b"0", b"1", b"2"):
        archive.add("a", data)
    assert archive.chunks("a", 1) == [b"1", b"2"]
    assert archive.chunks("unknown", 0) == []
    assert archive.n_chunks_of_finished("a") is None


def test_the_archive_forgets_what_ended_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = ChunkArchive()
    archive.add("old", b"x")
    archive.finish("old")
    monkeypatch.setattr(chunks, "_KEEP_S", -1.0)
    archive.finish("new")
    assert archive.chunks("old", 0) == []


def test_the_archive_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "_KEEP_BYTES", 100)
    archive = ChunkArchive()
    for name in ("a", "b", "c"):
        archive.add(name, bytes(60))
    assert [len(archive.chunks(name, 0)) for name in ("a", "b", "c")] == [0, 0, 1]
