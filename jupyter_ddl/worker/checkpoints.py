"""Checkpoints of one trial: written atomically, two kept, the newest valid one found again."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jupyter_ddl.worker.checkpoint_file import (
    CheckpointFileError,
    read_checkpoint,
    write_checkpoint,
)

__all__ = [
    "SavedCheckpoint",
    "checkpoint_names",
    "keep_newest",
    "newest_checkpoint",
    "read_or_notice",
    "save_checkpoint",
]

_N_KEPT = 2
_NAME = re.compile(r"step-(-?\d+)-a(\d+)\.ckpt")


class SavedCheckpoint(NamedTuple):
    """What a :class:`~jupyter_ddl.events.messages.CheckpointSaved` says about a file."""

    file: str
    digest: str
    size_bytes: int


def save_checkpoint(
    checkpoints_dir: Path, trial: int, attempt: int, step: int, state: Mapping[str, Any]
) -> SavedCheckpoint:
    """Save a trial's state; on return it outlives a crash of the machine.

    Raises
    ------
    ReportError
        The state has a part that cannot be saved.
    OSError
        The disk is full, for instance.
    """
    directory = checkpoints_dir / f"trial-{trial}"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"step-{step}-a{attempt}.ckpt"
    fd, partial = tempfile.mkstemp(prefix=".partial-", dir=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            digest, size_bytes = write_checkpoint(file, step, state)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
        raise
    _sync_directory(directory)
    keep_newest(directory, keep=path)
    return SavedCheckpoint(f"{directory.name}/{path.name}", digest, size_bytes)


def newest_checkpoint(
    checkpoints_dir: Path, trial: int, notice: Callable[[str], None]
) -> dict[str, Any] | None:
    """Load the newest valid checkpoint of a trial, of whichever attempt.

    Parameters
    ----------
    notice : callable
        Is told in one sentence about every checkpoint that was passed over, and why.

    Returns
    -------
    dict or None
        The state and its ``step``; None when there is no valid checkpoint.
    """
    for name in checkpoint_names(checkpoints_dir, trial):
        state = read_or_notice(checkpoints_dir, trial, name, notice)
        if state is not None:
            return state
    return None


def checkpoint_names(checkpoints_dir: Path, trial: int) -> list[str]:
    """Names of a trial's checkpoint files, the newest first, valid or not."""
    return [path.name for path in _newest_first(checkpoints_dir / f"trial-{trial}")]


def read_or_notice(
    checkpoints_dir: Path, trial: int, name: str, notice: Callable[[str], None]
) -> dict[str, Any] | None:
    """Read one checkpoint; None, and a sentence to ``notice``, when it is not valid."""
    try:
        return read_checkpoint(checkpoints_dir / f"trial-{trial}" / name)
    except CheckpointFileError as error:
        reason = error.message
    except OSError as error:
        reason = f"it cannot be read: {error.strerror}"
    notice(f"checkpoint {name} of trial {trial} was skipped: {reason}; an older one is tried")
    return None


def _newest_first(directory: Path) -> list[Path]:
    """Checkpoints by attempt, then step.

    By attempt first: an attempt that began anew has the state that the run goes on from,
    even when an earlier one had come further.
    """
    found: list[tuple[int, int, Path]] = []
    with contextlib.suppress(FileNotFoundError):
        for path in directory.iterdir():
            match = _NAME.fullmatch(path.name)
            if match:
                found.append((int(match[2]), int(match[1]), path))
    return [path for _, _, path in sorted(found, reverse=True)]


def keep_newest(directory: Path, keep: Path) -> None:
    """Remove a trial's checkpoints but the two newest ones, and ``keep``."""
    for path in _newest_first(directory)[_N_KEPT:]:
        if path != keep:
            path.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
