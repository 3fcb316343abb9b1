"""What a rank has shown, as it lies in a file of the run: a bundle of MIME types as Jupyter has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.protocol.names import FileName
from jupyter_ddl.protocol.reading import json_decoder

__all__ = ["CURRENT", "MAX_RUN_BYTES", "Bundle", "ShownByCell", "read_bundle", "read_shown"]

CURRENT = "current.json"
"""What the running cell of a persistent group shows, beside the files: for who watches it."""


MAX_RUN_BYTES = 64 << 20
"""Of all that a run keeps, or a persistent group; the oldest outputs go first."""


class ShownByCell(msgspec.Struct, frozen=True):
    """The content of :data:`CURRENT`."""

    number: int
    files: tuple[FileName, ...]
    """In order."""
    at_s: dict[str, float]
    """When each was written for the last time."""


class Bundle(msgspec.Struct, frozen=True):
    """One output: the same thing in several forms, of which a front end shows the richest."""

    data: dict[str, Any]
    """MIME type to text, base64 of bytes, or an object of JSON."""
    metadata: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """What stands for it where nothing richer can be shown."""
        return str(self.data.get("text/plain", ""))


_DECODER = json_decoder(Bundle)
_SHOWN = json_decoder(ShownByCell)


def read_bundle(path: Path) -> Bundle | None:
    """The output in a file; None when it is not there any more."""
    try:
        return _DECODER.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


def read_shown(path: Path) -> ShownByCell | None:
    """What the cell that runs, or ran last, shows; None: none of the group's has."""
    try:
        return _SHOWN.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
