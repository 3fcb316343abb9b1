"""Where the output of a prefix is kept once the memory's bound is reached.  Pure."""

from __future__ import annotations

from typing import Literal

__all__ = ["choose_place"]

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
