"""Names that become paths: checked where a message is decoded, before anybody joins them.

Workers, ledgers and clients are not asked to be honest about names: what does not fit one of these
types is refused with the message that has it.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

__all__ = [
    "FileName",
    "FilePath",
    "MaybeFileName",
    "StorePath",
    "WrittenPath",
    "is_file_name",
    "is_written_path",
]

_NAME = r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,199}"
_PART = r"(?!\.{1,2}(?:/|\Z))[^/\\\x00-\x1f\x7f\ud800-\udfff]{1,255}"
_WRITTEN = rf"\A(?=.{{1,1024}}\Z)(?:{_PART}/){{0,31}}{_PART}\Z"

FileName = Annotated[str, msgspec.Meta(pattern=rf"\A{_NAME}\Z")]
"""One component of a path, as this package makes them: no separator, no dot in front."""
MaybeFileName = Annotated[str, msgspec.Meta(pattern=rf"\A(?:{_NAME})?\Z")]
"""The same, or empty: there is no such file."""
FilePath = Annotated[str, msgspec.Meta(pattern=rf"\A{_NAME}(?:/{_NAME}){{0,3}}\Z")]
"""A few of them, with slashes between: a file in a folder of a run."""
StorePath = Annotated[
    str,
    msgspec.Meta(
        pattern=r"\A(?:/proc/[0-9]+/fd/[0-9]+"
        r"|(?:/(?!\.{1,2}/)[^/\x00]+)*/jupyter_ddl-[A-Za-z0-9_]+/store)?\Z"
    ),
]
"""Where the ranks of one host meet: a file in memory, or in a folder made for it; or empty."""
WrittenPath = Annotated[str, msgspec.Meta(pattern=_WRITTEN)]
"""What user code has called a file in its folder: relative, never out of the folder, no control
characters."""


def is_file_name(name: str) -> bool:
    """Whether a name is a :data:`FileName`."""
    return re.search(rf"\A{_NAME}\Z", name) is not None


def is_written_path(path: str) -> bool:
    """Whether a path may travel as :data:`WrittenPath`."""
    return re.search(_WRITTEN, path) is not None
