"""How records lie in a ledger file: a header, then length, checksum and payload of each.

A torn tail (the writer died in the middle of a write) and damage in the middle (a flipped
bit) look alike at the place itself.  They differ in what follows: behind damage there are
whole records again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from typing import Literal, NamedTuple
from zlib import crc32

from jupyter_ddl.errors import LedgerError

__all__ = [
    "HEADER",
    "MAX_RECORD_BYTES",
    "Fault",
    "FrameCursor",
    "find_record",
    "frame_at",
    "only_header_is_damaged",
    "pack_frames",
]

MAX_RECORD_BYTES = 1 << 26
"""A length above this is damage, not a record."""

_FORMAT_VERSION = 1
_HEADER = Struct("<8sII")
_MAGIC = b"DDLEDGER"


def _header(version: int) -> bytes:
    start = _HEADER.pack(_MAGIC, version, 0)[:-4]
    return start + crc32(start).to_bytes(4, "little")


HEADER = _header(_FORMAT_VERSION)

_FRAME = Struct("<II")
_FRAME_BYTES = _FRAME.size
_LENGTH = Struct("<I")

_STEP_BYTES = 1 << 20
_SEARCH_BYTES = 1 << 26

# Every event is a msgpack map of fewer than 16 keys whose first key is the tag.
_MARK = b"\xa4type"
_MARK_OFFSET = _FRAME_BYTES + 1


class Fault(NamedTuple):
    """Where a ledger stops being readable."""

    record: int
    """Number of the first bad record; the first record of a ledger is 1."""
    offset: int
    cause: Literal["incomplete", "checksum", "length"]
    next_whole: int | None
    """Offset of the next whole record, None when there is none: then this is a torn tail."""


def pack_frames(payloads: Iterable[bytes]) -> bytes:
    """Frame encoded events for one write."""
    parts: list[bytes] = []
    pack_length = _LENGTH.pack
    for payload in payloads:
        length = pack_length(len(payload))
        parts += (length, pack_length(crc32(payload, crc32(length))), payload)
    return b"".join(parts)


def frame_at(data: bytes | memoryview, start: int) -> memoryview | None:
    """The payload of the whole, undamaged frame at ``start``, or None."""
    view = memoryview(data)
    begin = start + _FRAME_BYTES
    if start < 0 or begin > len(view):
        return None
    length, checksum = _FRAME.unpack_from(view, start)
    payload = view[begin : begin + length]
    if len(payload) < max(length, 1) or length > MAX_RECORD_BYTES:
        return None
    return payload if crc32(payload, crc32(view[start : start + 4])) == checksum else None


def find_record(data: bytes, start: int) -> int | None:
    """Offset of the first whole record at or behind ``start``, wherever it begins."""
    mark = data.find(_MARK, start + _MARK_OFFSET)
    while mark != -1:
        if data[mark - 1] & 0xF0 == 0x80 and frame_at(data, mark - _MARK_OFFSET) is not None:
            return mark - _MARK_OFFSET
        mark = data.find(_MARK, mark + 1)
    return None


def only_header_is_damaged(fd: int) -> bool:
    """Whether a record follows a header that no version of this package wrote."""
    size = len(HEADER)
    found = os.pread(fd, size, 0)
    version = int.from_bytes(found[8:12], "little")
    if len(found) < size or found == _header(version):
        return False
    return frame_at(os.pread(fd, _SEARCH_BYTES, size), 0) is not None


class FrameCursor:
    """Walks the records of an open file from its beginning; never changes the file.

    Raises LedgerError for a file that is not a ledger, or is one of a later format.

    Attributes
    ----------
    offset : int
        Behind the last whole record read; 0 while the header itself is not whole.
    n_records : int
        Whole records read.
    fault : Fault or None
        What stands at ``offset`` instead of a record, after a read that found nothing.
    """

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self._path = path
        self.offset = 0
        self.n_records = 0
        self.fault: Fault | None = None
        self.pass_header()

    def go_on_in(self, fd: int) -> None:
        """The same file is open anew."""
        self._fd = fd

    def pass_header(self) -> bool:
        """Whether the header is there; a file that ends inside it is an empty ledger."""
        if self.offset:
            return True
        found = os.pread(self._fd, len(HEADER), 0)
        if found == HEADER:
            self.offset = len(HEADER)
            return True
        if HEADER.startswith(found):
            return False
        version = int.from_bytes(found[8:12], "little")
        if len(found) == len(HEADER) and found == _header(version):
            raise LedgerError(
                f"reading {self._path} failed: it has ledger format {version}, this version of "
                f"jupyter_ddl reads {_FORMAT_VERSION}; upgrade jupyter_ddl",
                path=str(self._path),
                version=version,
            )
        raise LedgerError(
            f"reading {self._path} failed: its header is damaged or it is not a ledger "
            f"(first bytes {found[:8]!r}, expected {_MAGIC!r}); `%runs repair "
            f"{self._path.parent.name}` keeps the records behind the header",
            path=str(self._path),
            record=0,
            offset=0,
        )

    def read(self) -> list[memoryview]:
        """Payloads of the next few megabytes of records; empty at the end and at a fault."""
        self.fault = None
        if not self.pass_header():
            return []
        step = _STEP_BYTES
        while True:
            data = os.pread(self._fd, step, self.offset)
            payloads, end = _split(data)
            if payloads:
                self.offset += end
                self.n_records += len(payloads)
                return payloads
            if not data:
                return []
            cause, needed = _cause(data)
            if cause != "incomplete" or len(data) < step:
                self.fault = self._fault(cause)
                return []
            step = max(needed, 2 * step)

    def _fault(self, cause: Literal["incomplete", "checksum", "length"]) -> Fault:
        data = os.pread(self._fd, _SEARCH_BYTES, self.offset)
        following = find_record(data, 1)
        return Fault(
            record=self.n_records + 1,
            offset=self.offset,
            cause=cause,
            next_whole=None if following is None else self.offset + following,
        )


def _split(data: bytes) -> tuple[list[memoryview], int]:
    """Whole records at the start of ``data``, and the offset behind the last of them."""
    view = memoryview(data)
    size = len(data)
    position = 0
    payloads: list[memoryview] = []
    unpack = _FRAME.unpack_from
    while position + _FRAME_BYTES < size:
        length, checksum = unpack(data, position)
        begin = position + _FRAME_BYTES
        end = begin + length
        if end > size or not length:
            break
        payload = view[begin:end]
        if crc32(payload, crc32(view[position : position + 4])) != checksum:
            break
        payloads.append(payload)
        position = end
    return payloads, position


def _cause(data: bytes) -> tuple[Literal["incomplete", "checksum", "length"], int]:
    """Why no record stands at the start of ``data``, and how many bytes one would need."""
    if len(data) < _FRAME_BYTES:
        return "incomplete", _FRAME_BYTES
    length, _ = _FRAME.unpack_from(data)
    if not 0 < length <= MAX_RECORD_BYTES:
        return "length", 0
    needed = _FRAME_BYTES + length
    return ("incomplete" if needed > len(data) else "checksum"), needed
