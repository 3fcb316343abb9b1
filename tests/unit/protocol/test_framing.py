"""Frames survive any cut of the stream; oversized ones are refused."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.errors import ProtocolError
from jupyter_ddl.protocol.framing import (
    MAX_FRAME_BYTES,
    FrameBuffer,
    FrameProtocol,
    FrameSocket,
    encode_frame,
    read_frame,
)


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(min_value=1, max_value=60))
def test_payloads_come_out_whole_however_the_stream_is_cut(
    payloads: list[bytes], step: int
) -> None:
    stream = b"".join(map(encode_frame, payloads))
    buffer = FrameBuffer()
    seen: list[bytes] = []
    for start in range(0, len(stream), step):
        seen.extend(buffer.feed(stream[start : start + step]))
    assert seen == payloads


def test_a_frame_that_claims_too_much_is_refused_before_it_is_read() -> None:
    claim = (MAX_FRAME_BYTES + 1).to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="over the limit"):
        list(FrameBuffer().feed(claim))


def test_a_payload_over_the_limit_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match=f"{MAX_FRAME_BYTES:,}"):
        encode_frame(bytes(MAX_FRAME_BYTES + 1))


def test_streams_are_read_frame_by_frame_up_to_a_limit() -> None:
    async def work() -> list[bytes]:
        reader = asyncio.StreamReader()
        reader.feed_data(b"".join(map(encode_frame, (b"one", b"", b"twelve bytes"))))
        seen = [await read_frame(reader), await read_frame(reader, 3)]
        with pytest.raises(ProtocolError, match="a frame of 12 bytes is over the limit of 11"):
            await read_frame(reader, 11)
        return seen

    assert asyncio.run(work()) == [b"one", b""]


@pytest.mark.parametrize("n_bytes", [0, 1, 1023, 1024, 5000])
def test_a_payload_that_is_sent_alone_arrives_whole(n_bytes: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender, receiver = FrameSocket(ours), FrameSocket(theirs)
        for payload in (b"x" * n_bytes, b"next"):
            sender.send_one(payload)
        assert [receiver.receive(), receiver.receive()] == [b"x" * n_bytes, b"next"]


def test_two_threads_that_send_do_not_mix_their_frames() -> None:
    ours, theirs = socket.socketpair()
    sender, receiver = FrameSocket(ours), FrameSocket(theirs)
    payloads = [bytes([n]) * 50_000 for n in (1, 2)]

    def send_many(payload: bytes) -> None:
        for _ in range(50):
            sender.send([payload, payload])

    threads = [threading.Thread(target=send_many, args=(payload,)) for payload in payloads]
    for thread in threads:
        thread.start()
    received = [receiver.receive() for _ in range(200)]
    for thread in threads:
        thread.join(10)
    ours.close()
    assert sorted(filter(None, received)) == sorted(payloads * 100)
    assert receiver.receive() is None
    theirs.close()


def test_what_a_killed_peer_has_sent_is_read_though_it_is_written_to_first() -> None:
    # A rank that dies while its worker lets its words lie, and then tells it to end.
    async def work() -> list[bytes]:
        ours, theirs = socket.socketpair()
        frames: list[bytes] = []
        closed = asyncio.Event()
        protocol = FrameProtocol(frames.append, closed.set)
        await asyncio.get_running_loop().create_unix_connection(lambda: protocol, sock=ours)
        protocol.pause()
        sent = [b"one", bytes(100_000), b"three"]
        theirs.sendall(b"".join(map(encode_frame, sent)))
        theirs.close()
        protocol.send(b"end now")
        async with asyncio.timeout(30.0):
            await closed.wait()
        assert [len(frame) for frame in frames] == [len(frame) for frame in sent]
        return frames

    assert asyncio.run(work())[-1] == b"three"
