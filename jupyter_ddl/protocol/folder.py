"""Where ranks work, and what they leave there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

import msgspec

from jupyter_ddl.protocol.names import WrittenPath

__all__ = ["FolderFile", "WorkFolder", "data_stamp", "home_path", "is_data_stamp", "matches"]

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_STAMPS_END_S = float(1 << 28)


class WorkFolder(msgspec.Struct, frozen=True):
    """The directory that user code finds itself in."""

    path: str = ""
    """Empty: wherever the process is."""
    is_own: bool = False
    """A folder of the run, on a worker that does not see the notebook's; it is made there."""


class FolderFile(msgspec.Struct, frozen=True):
    """A file in the folder of a run, on a worker with files of its own."""

    path: WrittenPath
    """Relative to the folder, with forward slashes."""
    size_bytes: int
    changed_at_s: float = 0.0
    worker: str = ""
    """Its name; empty for one that is at home already."""


def data_stamp(digest: str) -> float:
    """When a file that came with the cell was changed last, as its folder says: by that it is known
    from what ranks write, and from another content.  In the seventies."""
    return float(int(digest[:7], 16))


def is_data_stamp(changed_at_s: float) -> bool:
    """Whether a file is as it came with the cell."""
    return changed_at_s < _STAMPS_END_S


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern means the file: by its path, or by its name alone where it has no slash."""
    name = path.rpartition("/")[2]
    return any(fnmatchcase(path if "/" in each else name, each) for each in patterns)


def home_path(worker: str, path: str) -> str:
    """Where a worker's file lies in the run's directory at home."""
    return f"files/{_UNSAFE.sub('_', worker).lstrip('.') or 'worker'}/{path}"
