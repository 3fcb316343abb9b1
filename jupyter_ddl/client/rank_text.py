"""What ranks print, as far as a notebook shows it: read from their logs while they grow."""

from __future__ import annotations

from pathlib import Path

__all__ = ["MAX_SHOWN_BYTES", "RankLogs", "read_text"]

MAX_SHOWN_BYTES = 64 * 1024
"""Of one rank and cell; the beginning and the end of a longer output are shown."""


def read_text(path: Path, start: int, end: int | None = None) -> str:
    """Output between two bytes of a log; what is left out is told in its place."""
    try:
        with path.open("rb") as file:
            size = max(0, (file.seek(0, 2) if end is None else end) - start)
            file.seek(start)
            if size <= MAX_SHOWN_BYTES:
                return _decoded(file.read(size))
            half = MAX_SHOWN_BYTES // 2
            first = file.read(half)
            file.seek(start + size - half)
            last = file.read(half)
    except FileNotFoundError:
        return ""
    return (
        f"{_decoded(first)}\n… {size - 2 * half:,} bytes left out, all of it is in {path} …\n"
        f"{_decoded(last)}"
    )


class RankLogs:
    """The output of one cell on its ranks.

    Parameters
    ----------
    starts : dict of int to (Path, int)
        Per rank its log, and the byte at which the output begins.
    """

    def __init__(self, starts: dict[int, tuple[Path, int]]) -> None:
        self._starts = starts
        self._sizes: dict[int, int] = dict.fromkeys(starts, 0)
        self._texts: dict[int, str] = dict.fromkeys(starts, "")

    def poll(self) -> dict[int, str] | None:
        """The output so far, by rank; None when there is nothing new."""
        is_new = False
        for rank, (path, start) in self._starts.items():
            size = path.stat().st_size - start if path.exists() else 0
            if size > self._sizes[rank]:
                self._sizes[rank] = size
                self._texts[rank] = read_text(path, start)
                is_new = True
        return dict(self._texts) if is_new else None

    def final(self, ends: dict[int, int]) -> dict[int, str]:
        """The output of the whole cell, by rank."""
        texts = {}
        for rank, (path, start) in self._starts.items():
            end = ends.get(rank)
            is_empty = end is not None and end <= start
            texts[rank] = "" if is_empty else read_text(path, start, end)
        return texts


def _decoded(data: bytes) -> str:
    return data.decode(errors="replace")
