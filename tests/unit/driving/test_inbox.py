"""Numbered chunks: delivered once each, in order, gaps noticed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.driving.flights import ChunkInbox
from jupyter_ddl.protocol.events import EventChunk, Notice


def chunk(number: int) -> EventChunk:
    return EventChunk("r1", "a1", number, (Notice(at_s=0.0, text=str(number)),))


def texts(events: object) -> list[str]:
    return [event.text for event in events]  # type: ignore[attr-defined]


def test_a_chunk_behind_a_gap_waits_for_it() -> None:
    inbox = ChunkInbox()
    assert inbox.add(chunk(1)) == []
    assert inbox.missing(2)
    assert texts(inbox.add(chunk(0))) == ["0", "1"]
    assert not inbox.missing(2)


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.permutations(range(n)))))
def test_any_order_and_every_repetition_give_each_event_once_in_order(
    case: tuple[int, list[int]],
) -> None:
    n_chunks, order = case
    inbox = ChunkInbox()
    seen: list[str] = []
    for number in [*order, *reversed(order)]:
        seen += texts(inbox.add(chunk(number)))
    assert seen == [str(number) for number in range(n_chunks)]
    assert not inbox.missing(n_chunks)
    assert inbox.missing(n_chunks + 1)
