"""Chunks are numbered from 0, complete, small enough, and kept for a bounded while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from jupyter_ddl.events.chunk import EventChunk
from jupyter_ddl.events.messages import Notice, Reported
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
        self._timers: list[list[Any]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[[], None]) -> None:
        callback()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Any:
        timer = [self.now_s + delay_s, callback]
        self._timers.append(timer)
        return SimpleNamespace(cancel=lambda: timer in self._timers and self._timers.remove(timer))

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        for timer in [timer for timer in self._timers if timer[0] <= self.now_s]:
            self._timers.remove(timer)
            timer[1]()


def test_a_rank_that_goes_on_reporting_sends_a_few_chunks_a_second() -> None:
    clock, published = _Clock(), list[bytes]()

    async def body() -> ChunkRelay:
        return ChunkRelay("r", "a", published.append, ChunkArchive())

    relay = asyncio.run(body())
    relay._loop = clock  # type: ignore[assignment]
    relay._allowed_at_s = 0.0
    for step in range(500):  # 50 a second, for ten seconds
        relay.add(reported(step))
        clock.advance(0.02)
    assert 25 < len(published) < 35  # ten at once, then two a second
    for _ in range(50):
        clock.advance(0.02)
    assert [event.step for chunk in decoded(published) for event in chunk.events] == [*range(500)]
    n_before = len(published)
    relay.add(reported(500))  # after a pause: at once
    assert len(published) == n_before + 1


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
