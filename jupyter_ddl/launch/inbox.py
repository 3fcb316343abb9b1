"""Puts an assignment's event chunks in order and notices a lost one.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_ddl.protocol.chunk import EventChunk
from jupyter_ddl.protocol.events import RankEvent

__all__ = ["ChunkInbox"]


class ChunkInbox:
    """Chunks of one assignment: delivered once each, in order of their numbers."""

    def __init__(self) -> None:
        self.next_number = 0
        self._early: dict[int, tuple[RankEvent, ...]] = {}

    def add(self, chunk: EventChunk) -> Sequence[RankEvent]:
        """Events that may be delivered now; empty for a repeated chunk or behind a gap."""
        if chunk.number < self.next_number:
            return ()
        self._early[chunk.number] = chunk.events
        ready: list[RankEvent] = []
        while self.next_number in self._early:
            ready.extend(self._early.pop(self.next_number))
            self.next_number += 1
        return ready

    def missing(self, n_chunks: int) -> bool:
        """Whether any of ``n_chunks`` has not been delivered."""
        return self.next_number < n_chunks
