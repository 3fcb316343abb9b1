"""Outputs of prefixes on a host: one file each, in shared memory or on disk, mapped by its users.

A file has a head (msgpack), then per label a pickle and its out-of-band buffers, page by page.
Users map it copy-on-write: arrays and sparse matrices are not copied until somebody writes.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import cloudpickle
import msgspec

from jupyter_ddl.protocol.reading import from_msgpack
from jupyter_ddl.store.atomic import replacing
from jupyter_ddl.store.blobs import map_file

__all__ = ["NodeStore", "StoredNode", "choose_place"]


# Where the output of a prefix is kept once the memory's bound is reached.  Pure.

_DISK_WRITE_BYTES_PER_S = 300e6
_DISK_READ_BYTES_PER_S = 600e6
"""Of a common disk; the page cache makes reading cheaper, which is what is hoped for."""


def choose_place(
    size_bytes: int, seconds: float, n_users: int, memory_left_bytes: int
) -> Literal["memory", "disk", "nowhere"]:
    """Memory while there is room; else the disk, or nowhere if computing again costs less.

    Parameters
    ----------
    seconds : float
        What computing the output took.
    n_users : int
        How many nodes and units will use it: each of them reads it, or computes it again.
    """
    if size_bytes <= memory_left_bytes:
        return "memory"
    spilling_s = size_bytes / _DISK_WRITE_BYTES_PER_S
    spilling_s += n_users * size_bytes / _DISK_READ_BYTES_PER_S
    return "disk" if spilling_s < n_users * seconds else "nowhere"


_PAGE = 4096
_FREE_SHARE = 0.8
"""Of what is free in shared memory, at most this share may be taken."""


class _Section(msgspec.Struct, frozen=True, array_like=True):
    stream: tuple[int, int]
    buffers: tuple[tuple[int, int], ...]


class _Head(msgspec.Struct, frozen=True):
    sections: dict[str, _Section]


class StoredNode:
    """The outputs of one node, unpickled label by label when they are asked for."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        length = int.from_bytes(view[:8], "little")
        self._head = from_msgpack(view[8 : 8 + length], _Head)
        self._loaded: dict[str, Any] = {}

    def __contains__(self, label: str) -> bool:
        return label in self._head.sections

    def load(self, label: str) -> Any:
        """One output; the same object every time."""
        if label not in self._loaded:
            section = self._head.sections[label]
            buffers = (self._view[a : a + n] for a, n in section.buffers)
            start, length = section.stream
            self._loaded[label] = pickle.loads(self._view[start : start + length], buffers=buffers)
        return self._loaded[label]


class NodeStore:
    """Writes and finds the node files of one host.

    Parameters
    ----------
    dirs : tuple of Path
        Where to look, shared memory first; outputs beyond the bound go to ``spill_dir``.
    """

    def __init__(self, dirs: tuple[Path, ...], spill_dir: Path) -> None:
        self._memory_dir = dirs[0] if len(dirs) > 1 else None
        self._spill_dir = spill_dir
        self._dirs = (*dirs, spill_dir)

    def open(self, name: str) -> StoredNode | None:
        """A node's outputs, mapped again; None when they are not on this host (any more).

        What a user writes into them is its own: nobody else sees it.
        """
        for directory in self._dirs:
            with contextlib.suppress(FileNotFoundError):
                return StoredNode(map_file(directory / name))
        return None

    def put(
        self,
        name: str,
        outputs: Mapping[str, Any],
        *,
        seconds: float,
        n_users: int,
        memory_left_bytes: int,
    ) -> tuple[str, int]:
        """Keep ``outputs`` by label, where it costs least.

        Returns
        -------
        str, int
            ``memory``, ``disk`` or ``nowhere``, and the size in bytes.

        Raises
        ------
        Exception
            An output can't be pickled.
        """
        pieces, size = _laid_out(outputs)
        left = min(memory_left_bytes, self._free_memory())
        place = choose_place(size, seconds, n_users, left)
        if place == "memory" and self._memory_dir is not None:
            with contextlib.suppress(OSError):
                _write(pieces, self._memory_dir / name)
                return "memory", size
            place = "disk"
        if place == "disk" or self._memory_dir is None:
            with contextlib.suppress(OSError):
                self._spill_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
                _write(pieces, self._spill_dir / name)
                return "disk", size
        return "nowhere", size

    def _free_memory(self) -> int:
        if self._memory_dir is None:
            return 0
        stat = os.statvfs(self._memory_dir)
        return int(stat.f_bavail * stat.f_frsize * _FREE_SHARE)


def _laid_out(outputs: Mapping[str, Any]) -> tuple[list[tuple[int, Any]], int]:
    """Positions and bytes of everything in the file, and its size."""
    pickled: dict[str, tuple[bytes, list[memoryview]]] = {}
    for label, value in outputs.items():
        buffers: list[pickle.PickleBuffer] = []
        stream = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        pickled[label] = stream, [buffer.raw() for buffer in buffers]
    # The head's own length depends on the positions in it, so they count from a page behind it.
    guess = sum(64 + 24 * len(views) for _, views in pickled.values())
    position = _aligned(1024 + guess)
    pieces: list[tuple[int, Any]] = []
    sections: dict[str, _Section] = {}
    for label, (stream, views) in pickled.items():
        places = []
        for view in views:
            places.append((position, view.nbytes))
            pieces.append((position, view))
            position = _aligned(position + view.nbytes)
        sections[label] = _Section((position, len(stream)), tuple(places))
        pieces.append((position, stream))
        position = _aligned(position + len(stream))
    head = msgspec.msgpack.encode(_Head(sections))
    pieces.insert(0, (0, len(head).to_bytes(8, "little") + head))
    return pieces, position


def _aligned(position: int) -> int:
    return -(-position // _PAGE) * _PAGE


def _write(pieces: list[tuple[int, Any]], path: Path) -> None:
    with replacing(path) as file:
        for position, data in pieces:
            file.seek(position)
            file.write(memoryview(data).cast("B"))
        file.truncate(_aligned(file.tell()))
