"""Where ranks work, and what they leave there."""

from __future__ import annotations

import msgspec

__all__ = ["WorkFolder", "WrittenFile"]


class WorkFolder(msgspec.Struct, frozen=True):
    """The directory that user code finds itself in."""

    path: str = ""
    """Empty: wherever the process is."""
    is_own: bool = False
    """A folder of the run, on a worker that does not see the notebook's; it is made there."""


class WrittenFile(msgspec.Struct, frozen=True):
    """A file that ranks have left in a folder of their run."""

    path: str
    """Relative to the folder, with forward slashes."""
    size_bytes: int
