"""Takes a recording in from its file, and refuses in one line what is none."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.errors import RecordingError
from jupyter_ddl.protocol.events import RunSubmitted
from jupyter_ddl.recording.lines import FORMAT, Fact, Head, Recording, fact_of

__all__ = ["MAX_FILE_BYTES", "read_recording"]

MAX_FILE_BYTES = 128 << 20
"""Of a file once it is unpacked."""
_GZIP = b"\x1f\x8b"
_EXPORT = "`%runs export RUN FILE.jsonl` makes such a file"


def read_recording(path: str | Path) -> Recording:
    """A recording, from JSON lines as they are or packed by gzip.

    Parameters
    ----------
    path : path
        A file that ``%runs export`` or :func:`write_recording` has written.

    Raises
    ------
    RecordingError
        There is no such file, or it is no recording, or it is of a newer format, cut off or
        damaged; names the file and the line.
    """
    path = Path(path).expanduser()
    lines = _lines(_unpacked(path))
    _, first, _ = next(lines, (1, None, True))
    head = _head(path, first)
    facts: list[Fact] = []
    for number, fields, is_whole in lines:
        facts.append(_fact(path, number, fields, is_whole))
    if not facts or not isinstance(facts[0], RunSubmitted):
        seen = type(facts[0]).__name__ if facts else "nothing"
        raise _refusal(path, f"its second line is {seen}, expected RunSubmitted; {_EXPORT}", 2)
    return Recording(head, tuple(facts))


def _unpacked(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            is_packed = file.read(2) == _GZIP
        with gzip.open(path, "rb") if is_packed else path.open("rb") as file:
            data: bytes = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise _refusal(path, f"there is no such file; {_EXPORT}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise _refusal(path, "its packed content is cut off or damaged; copy it again") from None
    except OSError as error:
        raise _refusal(path, f"{error.strerror}; give a file that you may read") from None
    if len(data) > MAX_FILE_BYTES:
        raise _refusal(path, f"it has more than {MAX_FILE_BYTES >> 20} MiB, which none has")
    return data


def _lines(data: bytes) -> Iterator[tuple[int, Any, bool]]:
    """Number, decoded object (None: no JSON) and whether its end is there, of each line."""
    for number, line in enumerate(data.splitlines(keepends=True), start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            fields = None
        yield number, fields, line.endswith(b"\n")


def _head(path: Path, fields: Any) -> Head:
    if not isinstance(fields, dict) or fields.get("type") != "recording":
        raise _refusal(path, f"its first line is no head of a recording; {_EXPORT}", 1)
    version = fields.get("format")
    if isinstance(version, int) and version > FORMAT:
        by = str(fields.get("version", "?"))[:20]
        raise _refusal(
            path,
            f"it has format {version}, written by jupyter_ddl {by}; this one knows up to {FORMAT}: "
            f"install that version",
            1,
        )
    try:
        return msgspec.convert(fields, Head)
    except msgspec.ValidationError as error:
        raise _refusal(path, f"its head is damaged ({error}); export it again", 1) from None


def _fact(path: Path, number: int, fields: Any, is_whole: bool) -> Fact:
    if fields is None and not is_whole:
        raise _refusal(path, f"line {number}, its last one, is cut off; copy it again", number)
    try:
        return fact_of(fields)
    except (ValueError, TypeError) as error:
        why = "no JSON" if fields is None else str(error)
        raise _refusal(path, f"line {number} is no fact of a run: {why}", number) from None


def _refusal(path: Path, what: str, line: int | None = None) -> RecordingError:
    return RecordingError(f"reading the recording {path} failed: {what}", path=str(path), line=line)
