"""Length-prefixed frames on a stream socket: 4 bytes, big-endian, then the payload.

Zygote and ranks use the blocking :class:`FrameSocket`; the worker, whose event loop must not
wait, uses :class:`FrameProtocol`.  Both read through one :class:`FrameBuffer`.  Controllers and
their clients have asyncio's streams, and :func:`read_frame`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import cast

from jupyter_ddl.errors import ProtocolError

__all__ = [
    "MAX_FRAME_BYTES",
    "FrameBuffer",
    "FrameProtocol",
    "FrameSocket",
    "encode_frame",
    "read_frame",
]

MAX_FRAME_BYTES = 64 << 20
"""A larger frame is refused: neither side ever sends one."""

_LENGTH = struct.Struct(">I")
_READ_BYTES = 1 << 16
_N_LENGTHS = 1024
_LENGTHS = [_LENGTH.pack(length) for length in range(_N_LENGTHS)]


def encode_frame(payload: bytes) -> bytes:
    """Put the length in front of a payload.

    Raises
    ------
    ProtocolError
        The payload is larger than :data:`MAX_FRAME_BYTES`.
    """
    length = len(payload)
    if length > MAX_FRAME_BYTES:
        _check_length(length)
    return _LENGTH.pack(length) + payload


def _check_length(length: int, limit: int = MAX_FRAME_BYTES) -> None:
    if length > limit:
        raise ProtocolError(
            f"a frame of {length:,} bytes is over the limit of {limit:,}; send less at once",
            length=length,
        )


async def read_frame(reader: asyncio.StreamReader, limit: int = MAX_FRAME_BYTES) -> bytes:
    """Wait for the next payload.

    Raises
    ------
    asyncio.IncompleteReadError
        The other end is closed.
    ProtocolError
        The frame announces more than ``limit`` bytes; the stream is of no use any more.
    """
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    _check_length(length, limit)
    return await reader.readexactly(length)


class FrameBuffer:
    """Cuts a stream of bytes into payloads."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add what was read and yield the payloads that are complete.

        Raises
        ------
        ProtocolError
            A frame announces more than :data:`MAX_FRAME_BYTES`.
        """
        buffer = self._data
        buffer += data
        position = 0
        try:
            while len(buffer) - position >= 4:
                (length,) = _LENGTH.unpack_from(buffer, position)
                _check_length(length)
                end = position + 4 + length
                if len(buffer) < end:
                    break
                payload = bytes(buffer[position + 4 : end])
                position = end
                yield payload
        finally:
            del buffer[:position]


class FrameSocket:
    """Frames over a blocking socket.  Any thread may send; one thread receives."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._send_all = sock.sendall
        self._buffer = FrameBuffer()
        self._ready: list[bytes] = []
        self._sending = threading.Lock()

    def send(self, payloads: Iterable[bytes]) -> None:
        """Hand payloads to the kernel with one call, so that they outlive this process.

        Raises
        ------
        OSError
            The other end is closed.
        """
        data = b"".join([encode_frame(payload) for payload in payloads])
        with self._sending:
            self.socket.sendall(data)

    def send_one(self, payload: bytes) -> None:
        """The same for one payload, with less around it: a training calls this at each report."""
        length = len(payload)
        # From a list: in the middle of a training even ``pack`` takes 5 µs.
        frame = _LENGTHS[length] + payload if length < _N_LENGTHS else encode_frame(payload)
        with self._sending:
            self._send_all(frame)

    def receive(self) -> bytes | None:
        """Wait for the next payload; None when the other end is closed."""
        while not self._ready:
            try:
                data = self.socket.recv(_READ_BYTES)
            except ConnectionError:
                return None
            if not data:
                return None
            self._ready = list(self._buffer.feed(data))[::-1]
        return self._ready.pop()


class FrameProtocol(asyncio.Protocol):
    """Frames over an asyncio transport.

    Parameters
    ----------
    on_frame : callable
        Called on the loop with every payload, in order.
    on_closed : callable
        Called once, on the loop, after the last payload.
    """

    def __init__(self, on_frame: Callable[[bytes], None], on_closed: Callable[[], None]) -> None:
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._buffer = FrameBuffer()
        self._transport: asyncio.Transport | None = None
        self._may_pause = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for payload in self._buffer.feed(data):
            self._on_frame(payload)

    def connection_lost(self, exc: Exception | None) -> None:
        transport, self._transport = self._transport, None
        try:
            if transport is not None and isinstance(exc, OSError):
                self._read_rest(transport.get_extra_info("socket").fileno())
        finally:
            self._on_closed()

    def _read_rest(self, fd: int) -> None:
        """Read what a killed peer has sent: where a write to it fails first, asyncio drops that."""
        with contextlib.suppress(OSError):
            while data := os.read(fd, _READ_BYTES):
                self.data_received(data)

    def send(self, payload: bytes) -> None:
        """Queue a payload; without effect once the other end is gone."""
        if self._transport is not None:
            self._transport.write(encode_frame(payload))

    def pause(self) -> None:
        """Stop reading: what is sent waits in the kernel, and a sender that is too fast as well."""
        if self._may_pause and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def read_on(self) -> None:
        """Read to the end: nothing pauses this any more."""
        self._may_pause = False
        self.resume()

    def close(self) -> None:
        """Close after what was queued has been written."""
        if self._transport is not None:
            self._transport.close()
