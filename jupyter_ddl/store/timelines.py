"""Timelines of recordings that notebooks play, by digest: their players outlive the kernels."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from jupyter_ddl.store.atomic import write_whole
from jupyter_ddl.store.blobs import digest_of
from jupyter_ddl.store.paths import home_dir, private_dir

__all__ = ["MAX_KEPT_BYTES", "keep_timeline", "read_timeline"]

MAX_KEPT_BYTES = 64 << 20
"""Those that were shown longest ago go first; running the cell again brings them back."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


def keep_timeline(data: bytes) -> str:
    """Store a timeline, and return its digest.

    Raises
    ------
    OSError
        The home can't be written, or is full.
    """
    directory = private_dir(_directory())
    digest = digest_of(data)
    write_whole(directory / digest, data)
    _trim(directory, digest)
    return digest


def read_timeline(digest: str) -> bytes | None:
    """None where there is none, or it is damaged."""
    if not _DIGEST.fullmatch(digest):
        return None
    try:
        data = (_directory() / digest).read_bytes()
    except OSError:
        return None
    return data if digest_of(data) == digest else None


def _directory() -> Path:
    return home_dir() / "timelines"


def _trim(directory: Path, newest: str) -> None:
    """Forget the oldest ones, whoever else does so at the same time."""
    found: list[tuple[float, int, str]] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if not _DIGEST.fullmatch(entry.name):
                continue  # another writer's, who has not given it its name yet
            with contextlib.suppress(OSError):
                about = entry.stat()
                found.append((about.st_mtime, about.st_size, entry.path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= MAX_KEPT_BYTES:
            break
        if Path(path).name != newest:
            Path(path).unlink(missing_ok=True)
            total -= size
