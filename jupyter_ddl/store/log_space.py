"""Logs of a run within a budget: the middle of the longest ones is given back to the disk.

What is cut becomes a hole in its file (fallocate(2), ``FALLOC_FL_PUNCH_HOLE``): the file keeps its
length, so every position on record stays right, and whoever prints into it need not know, C code
that holds the GIL included.  A line at the beginning of the hole says what was there.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
from argparse import ArgumentTypeError
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from jupyter_ddl.errors import OptionError
from jupyter_ddl.formats import format_bytes
from jupyter_ddl.grammar import size_bytes

__all__ = [
    "DEFAULT_LOG_BYTES",
    "LOG_VARIABLE",
    "bound_logs",
    "log_budget",
    "next_data",
    "read_span",
]

LOG_VARIABLE = "JUPYTER_DDL_LOG_BYTES"
DEFAULT_LOG_BYTES = 1 << 30
"""Of one run, where nothing else is asked for."""
_LEFT = 0.75
"""Share of the budget that is left: the next cut is some time away."""
_HEAD_BYTES = 1 << 20
_HEAD_SHARE = 0.25
"""Of what is left of a file, its beginning; the rest is its end."""
_BLOCK = 4096
_PUNCH_HOLE, _KEEP_SIZE = 0x02, 0x01
_CANNOT = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV)


def log_budget() -> int:
    """Bytes that the logs of one run may take on disk: ``JUPYTER_DDL_LOG_BYTES``, 1 GiB.

    Raises
    ------
    OptionError
        The variable is no size.
    """
    text = os.environ.get(LOG_VARIABLE, "").strip()
    try:
        return size_bytes(text) if text else DEFAULT_LOG_BYTES
    except ArgumentTypeError as error:
        raise OptionError(f"{LOG_VARIABLE}: {error}") from None


def bound_logs(directory: Path, budget: int) -> int:
    """Cut the longest logs of a directory once they are over the budget.  Blocking.

    Returns
    -------
    int
        Bytes that were given back; 0 while there is room, or nothing can be seen of it.

    Raises
    ------
    OSError
        They are over the budget; the file system can't do that, or the disk fails.
    """
    try:
        held = _held(directory)
    except OSError:  # as without a descriptor to spare: who looks again sees more
        return 0
    if sum(held.values()) <= budget:
        return 0
    level = water_level(held.values(), int(budget * _LEFT))
    return sum(_cut(path, level, budget) for path, size in held.items() if size > level)


def _held(directory: Path) -> dict[Path, int]:
    """Bytes on the disk of each file of a directory."""
    held: dict[Path, int] = {}
    with os.scandir(directory) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if entry.is_file(follow_symlinks=False):
                    held[Path(entry.path)] = entry.stat(follow_symlinks=False).st_blocks * 512
    return held


def water_level(sizes: Collection[int], room: int) -> int:
    """The largest size to which all that are larger can be cut so that they fit in the room.

    >>> water_level([1, 50, 70], 81)
    40
    """
    left, n_left = room, len(sizes)
    for size in sorted(sizes):
        if size * n_left >= left:
            break
        left, n_left = left - size, n_left - 1
    return left // max(1, n_left)


def _cut(path: Path, keep: int, budget: int) -> int:
    """Leave the beginning and the end of a file; returns the bytes that were given back."""
    head = _aligned(min(int(keep * _HEAD_SHARE), _HEAD_BYTES))
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        status = os.fstat(file)
        end = _aligned(status.st_size - (keep - head))
        if end <= head + _BLOCK:
            return 0
        _punch(file, head, end - head)
        os.pwrite(file, cut_line(end - head, budget).encode(), head)
        return max(0, (status.st_blocks - os.fstat(file).st_blocks) * 512)
    finally:
        os.close(file)


def cut_line(n_bytes: int, budget: int) -> str:
    return (
        f"\n… {format_bytes(n_bytes)} of output were not kept here: the logs of a run may take "
        f"{format_bytes(budget)} ({LOG_VARIABLE}) …\n"
    )


def _aligned(position: int) -> int:
    return position // _BLOCK * _BLOCK


@functools.cache
def _fallocate() -> Any:
    found = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if found is not None:
        found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    return found


def _punch(file: int, start: int, length: int) -> None:
    call = _fallocate()
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    while call(file, _PUNCH_HOLE | _KEEP_SIZE, start, length):
        if (number := ctypes.get_errno()) != errno.EINTR:
            raise OSError(number, os.strerror(number))


def can_not_cut(error: OSError) -> bool:
    """Whether it is the file system, or the system, that knows no holes."""
    return error.errno in _CANNOT


# -- reading --------------------------------------------------------------------------------------


def read_span(path: Path, start: int, end: int | None = None) -> bytes:
    """What is kept of a log between two positions; of what was cut, one line.

    Raises
    ------
    OSError
        The file can't be read.
    """
    with path.open("rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        stop = size if end is None else min(end, size)
        return b"".join(_parts(file.fileno(), start, stop, size))


def _parts(file: int, start: int, stop: int, size: int) -> Iterator[bytes]:
    at, has_begun = start, False
    while at < stop:
        data, hole = next_data(file, at, size)
        found = _read(file, data, min(hole, stop))
        if hole < size and hole - stop < _BLOCK:
            # The block in front of a hole is zeros behind the line that tells of it.
            found = found.rstrip(b"\0")
        if found and data > start and not has_begun:
            yield _loss(data - start)
        has_begun = has_begun or bool(found)
        yield found
        at = hole
    if start < stop and not has_begun:
        yield _loss(stop - start)


def _loss(n_bytes: int) -> bytes:
    """What told of it in the file lies in front of what is read."""
    return f"… {format_bytes(n_bytes)} of output were not kept …\n".encode()


def next_data(file: int, at: int, size: int) -> tuple[int, int]:
    """Where the next stretch with data begins and ends."""
    try:
        data = os.lseek(file, at, os.SEEK_DATA)
        return data, os.lseek(file, data, os.SEEK_HOLE)
    except OSError as error:
        # Nothing but a hole up to the end; or a file system that knows none.
        return (size, size) if error.errno == errno.ENXIO else (at, size)


def _read(file: int, start: int, stop: int) -> bytes:
    parts = []
    while start < stop and (part := os.pread(file, stop - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)
