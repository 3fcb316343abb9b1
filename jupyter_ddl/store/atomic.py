"""Files that appear with their whole content, or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["PARTIAL", "replacing", "sync_directory", "write_whole"]

PARTIAL = ".partial-"
"""How the names of files begin that are being written."""


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o600, is_synced: bool = False) -> Iterator[BinaryIO]:
    """A file to write to that takes the place of ``path`` when the block ends without an error.

    Until then it lies beside it as ``.partial-…``, so that a reader sees the former content or the
    new one.  After an error nothing is left of it.

    Parameters
    ----------
    mode : int
        Permissions of the file, less what the process's umask takes away.
    is_synced : bool
        Have the content on the disk before the file gets its name: it survives a crash of the
        machine.  Its name does only after :func:`sync_directory`.
    """
    # Two writers of one path, threads of one process perhaps, must not share the partial file.
    partial = path.with_name(f"{PARTIAL}{os.urandom(8).hex()}")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            if is_synced:
                file.flush()
                os.fsync(fd)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_whole(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Put ``data`` in the place of what ``path`` holds."""
    with replacing(path, mode=mode) as file:
        file.write(data)


def sync_directory(directory: Path) -> None:
    """Bring the names of a directory to the disk: a new file is found after a crash."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
