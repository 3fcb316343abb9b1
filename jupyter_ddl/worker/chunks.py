"""From rank events to numbered chunks on a Dask topic, kept for a while in case one is lost."""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from jupyter_ddl.protocol.events import RankEvent

__all__ = ["CHUNKS_PER_S", "CHUNKS_PER_S_OF_OTHERS", "ChunkArchive", "ChunkRelay"]

FLUSH_INTERVAL_S = 0.02
CHUNKS_PER_S = 2.0
CHUNKS_PER_S_OF_OTHERS = 1.0
"""Of the ranks of a group behind the first one, whose reports are no curve that somebody sees
grow.  A whole part of :data:`CHUNKS_PER_S`, so that both go together."""
_CHUNKS_AT_ONCE = 10.0
"""A chunk costs the worker and the controller 2 ms of CPU whatever it holds.  So an assignment may
send a few as soon as there is something; one that goes on and on sends larger ones."""
FLUSH_BYTES = 64 * 1024
_PAUSE_BYTES_PER_S = 128 * 1024 / FLUSH_INTERVAL_S
"""Bytes an assignment may send before its rank has to wait for the interval's end."""
_REST_SHARE = 0.05
_REST_BYTES = 8192.0
"""Waking up for every report costs the worker 0.2 ms of CPU.  So what an assignment that goes on
and on has sent lies in its rank's socket, which outlives the rank, until its chunk is due: but so
short that its end is told a twentieth of its time later at most, and that there is room for what
comes (a socket holds 280 messages at least)."""
_KEEP_S = 30.0
_KEEP_BYTES = 64 << 20


class _EncodedChunk(msgspec.Struct, frozen=True):
    """An ``EventChunk`` whose events are encoded already; the same bytes on the wire."""

    run_id: str
    assignment_id: str
    number: int
    events: tuple[msgspec.Raw, ...]


class ChunkArchive:
    """Chunks of running and lately finished assignments, for replay; bounded in bytes."""

    def __init__(self) -> None:
        self._chunks: OrderedDict[str, list[bytes]] = OrderedDict()
        self._finished_at_s: dict[str, float] = {}
        self._n_bytes = 0

    def add(self, assignment_id: str, chunk: bytes) -> None:
        self._chunks.setdefault(assignment_id, []).append(chunk)
        self._n_bytes += len(chunk)
        while self._n_bytes > _KEEP_BYTES and len(self._chunks) > 1:
            self._drop(next(iter(self._chunks)))

    def finish(self, assignment_id: str) -> None:
        """Start the time after which an assignment's chunks may go."""
        now = time.monotonic()
        self._chunks.setdefault(assignment_id, [])
        self._finished_at_s[assignment_id] = now
        old = [known for known, at_s in self._finished_at_s.items() if now - at_s > _KEEP_S]
        for known in old:
            self._drop(known)

    def n_chunks_of_finished(self, assignment_id: str) -> int | None:
        """Number of chunks of an assignment that ended lately; None if it is not known."""
        if assignment_id not in self._finished_at_s:
            return None
        return len(self._chunks[assignment_id])

    def chunks(self, assignment_id: str, from_chunk: int) -> list[bytes]:
        """Encoded chunks from a number on; empty when they are not kept any more."""
        return self._chunks.get(assignment_id, [])[from_chunk:]

    def _drop(self, assignment_id: str) -> None:
        self._finished_at_s.pop(assignment_id, None)
        self._n_bytes -= sum(map(len, self._chunks.pop(assignment_id, [])))


class ChunkRelay:
    """Publishes the events of one assignment in chunks.  Used on the worker's loop only.

    Parameters
    ----------
    publish : callable
        Sends one encoded chunk; must not wait.
    chunks_per_s : float
        In the long run.
    """

    def __init__(
        self,
        run_id: str,
        assignment_id: str,
        publish: Callable[[bytes], None],
        archive: ChunkArchive,
        chunks_per_s: float = CHUNKS_PER_S,
    ) -> None:
        self._chunks_per_s = chunks_per_s
        self._run_id = run_id
        self._assignment_id = assignment_id
        self._publish = publish
        self._archive = archive
        self._loop = asyncio.get_running_loop()
        self._events: list[msgspec.Raw] = []
        self._n_pending_bytes = 0
        self._n_interval_bytes = 0
        self._interval_s = FLUSH_INTERVAL_S
        self._allowance = _CHUNKS_AT_ONCE
        self._allowed_at_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._resume: Callable[[], None] | None = None
        self._pause_timer: asyncio.TimerHandle | None = None
        self._may_rest = True
        self._rests_soon = False
        self._began_s = self._rested_at_s = self._loop.time()
        self._n_bytes_since = 0
        self.n_chunks = 0

    def add(self, event: RankEvent) -> None:
        """Add an event that this worker originates."""
        self.add_encoded(msgspec.msgpack.encode(event))

    def add_encoded(self, payload: bytes) -> None:
        """Add an event as its rank has sent it."""
        self._events.append(msgspec.Raw(payload))
        self._n_pending_bytes += len(payload)
        self._n_interval_bytes += len(payload)
        self._n_bytes_since += len(payload)
        if self._timer is None:
            wait_s = self._wait_s()
            self._begin_interval(wait_s)
            if not wait_s:
                # At once, with those of the same read; what comes behind it goes together.
                self._loop.call_soon(self.flush)
        if self._n_pending_bytes >= FLUSH_BYTES:
            self.flush()

    def slow_down(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Call ``pause`` if the rank is not to be read for a while, and ``resume`` behind that."""
        share = _PAUSE_BYTES_PER_S * self._interval_s
        if self._n_interval_bytes > share and self._timer:
            self._pause(max(0.0, self._timer.when() - self._loop.time()), pause, resume)
        elif self._may_rest and self._interval_s > FLUSH_INTERVAL_S and not self._rests_soon:
            # Not before all that came at once is counted.
            self._rests_soon = True
            self._loop.call_soon(self._rest, pause, resume)

    def _pause(self, for_s: float, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        if self._resume is None:
            self._resume = resume
            pause()
            self._pause_timer = self._loop.call_later(for_s, self._read_on)

    def hurry(self) -> None:
        """What the rank has to tell is waited for: read it at once from now on."""
        self._may_rest = False
        self._read_on()

    def _rest(self, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        """Let what the rank sends lie in its socket, by how fast it came lately."""
        self._rests_soon = False
        now_s = self._loop.time()
        passed_s, self._rested_at_s = now_s - self._rested_at_s, now_s
        n_bytes, self._n_bytes_since = self._n_bytes_since, 0
        age_s = now_s - self._began_s
        rest_s = min(_REST_SHARE * age_s, _REST_BYTES * passed_s / max(1, n_bytes))
        if self._may_rest and self._timer and rest_s > FLUSH_INTERVAL_S:
            # The interval's timer reads on as well, and comes first where there is time enough.
            self._pause(rest_s, pause, resume)

    def _read_on(self) -> None:
        if self._pause_timer is not None:
            self._pause_timer.cancel()
            self._pause_timer = None
        if self._resume is not None:
            resume, self._resume = self._resume, None
            resume()

    def flush(self) -> None:
        """Publish what is pending."""
        if not self._events:
            return
        events, self._events = tuple(self._events), []
        self._n_pending_bytes = 0
        chunk = _EncodedChunk(self._run_id, self._assignment_id, self.n_chunks, events)
        encoded = msgspec.msgpack.encode(chunk)
        self.n_chunks += 1
        self._allowance = max(0.0, self._allowed() - 1.0)
        self._archive.add(self._assignment_id, encoded)
        self._publish(encoded)

    def close(self) -> int:
        """Publish the rest; return how many chunks there were."""
        self._end_interval()
        self._read_on()
        self.flush()
        self._archive.finish(self._assignment_id)
        return self.n_chunks

    def _on_timer(self) -> None:
        self._read_on()
        # Not before the loop has read what lies in the rank's socket: one wake for both.
        self._loop.call_soon(self._loop.call_soon, self._publish_interval)

    def _publish_interval(self) -> None:
        self._end_interval()
        if self._events:
            self.flush()
            self._begin_interval(self._wait_s())

    def _begin_interval(self, wait_s: float) -> None:
        self._interval_s = max(wait_s, FLUSH_INTERVAL_S)
        self._timer = self._loop.call_later(self._interval_s, self._on_timer)

    def _wait_s(self) -> float:
        """Seconds until the next chunk may go, at the same time as those of the host's other ranks:
        the controller then wakes up for all of them together."""
        missing = 1.0 - self._allowed()
        if missing <= 0.0:
            return 0.0
        per_s = self._chunks_per_s
        at_s = self._loop.time() + missing / per_s
        return (math.ceil(at_s * per_s - 0.1) / per_s) - self._loop.time()

    def _allowed(self) -> float:
        """Chunks that may go now."""
        now_s = self._loop.time()
        gained = (now_s - self._allowed_at_s) * self._chunks_per_s
        self._allowance = min(self._allowance + gained, _CHUNKS_AT_ONCE)
        self._allowed_at_s = now_s
        return self._allowance

    def _end_interval(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._n_interval_bytes = 0
