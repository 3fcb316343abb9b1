"""The lines of a recording: written from facts, read back, and refused if they are wrong."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from jupyter_ddl.errors import RecordingError
from jupyter_ddl.protocol.codec import NON_FINITE, json_safe
from jupyter_ddl.protocol.events import Event, RunSubmitted
from jupyter_ddl.protocol.reading import converted, from_json
from jupyter_ddl.protocol.telemetry import WorkerSample

__all__ = [
    "FORMAT",
    "MAX_FILE_BYTES",
    "Displayed",
    "Fact",
    "Head",
    "Measured",
    "Origin",
    "Printed",
    "Recording",
    "in_time",
    "line_of",
    "read_recording",
    "time_of",
]


# Facts to lines of JSON and back.

# What one line of a recording is: its head, an event of the run, a measurement, printed text.

FORMAT = 1
"""Version of these lines; a file states its own."""

Origin: TypeAlias = Literal["recorded", "simulated"]
"""``simulated``: no such run has taken place; every view of it says so."""


class Head(msgspec.Struct, frozen=True, tag="recording"):
    """The first line."""

    format: int
    origin: Origin
    version: str
    """Of the package that wrote it."""
    run_id: str
    verb: str
    name: str = ""
    line: str = ""
    """The cell's first line, with the magic."""
    cell: str = ""
    """The rest of the cell."""
    left_out: tuple[str, ...] = ()
    """What the file has no room for, in words."""
    masked: tuple[str, ...] = ()
    """What was masked as a secret, in words."""
    n_doubts: int = 0
    """Strings that look random, and were left."""


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    """What one worker has measured at one moment."""

    sample: WorkerSample


class Printed(msgspec.Struct, frozen=True, tag="printed"):
    """Lines that a trial or a rank has printed by ``at_s``."""

    at_s: float
    trial: int
    lines: tuple[str, ...]
    rank: int | None = None


class Displayed(msgspec.Struct, frozen=True, tag="displayed"):
    """A figure or a table, as a picture or as text: what the event of its file means."""

    at_s: float
    trial: int
    file: str
    mime: str
    content: str
    """Base64 of a picture, or text."""


Fact: TypeAlias = Event | Measured | Printed | Displayed


class Recording(msgspec.Struct, frozen=True):
    """A whole file: the head, then facts in the order in which they were committed."""

    head: Head
    facts: tuple[Fact, ...]


# Where floats may stand; text elsewhere stays text, even the text "NaN".
_NUMBERS = frozenset({"metrics", "params", "value", "inline_value", "best_value"})
_NAMED = (b"NaN", b"Infinity")
"""Lines with these may have the name of a number in place of one."""
# msgspec takes one type; a union of unions is one.
_FACT: Any = Fact
_WRONG = (ValueError, TypeError, OverflowError, RecursionError)
"""What msgspec raises for fields that are none."""


def line_of(fact: Fact | Head) -> str:
    """One line of strict JSON; NaN and infinities are the strings "NaN", "Infinity", "-Infinity".

    Text that UTF-8 can't carry is replaced.
    """
    return json.dumps(json_safe(fact), ensure_ascii=False, allow_nan=False)


def _fact_of(line: bytes) -> Fact:
    """The fact of a line of JSON.

    A text parameter that reads "NaN" or "Infinity" comes back as that number.

    Raises
    ------
    ValueError, TypeError, OverflowError, RecursionError
        It is none; the message names the field.
    """
    if any(name in line for name in _NAMED):
        fields = _with_numbers(from_json(line, Any))
        return converted(fields, _FACT)  # type: ignore[no-any-return]
    return from_json(line, _FACT)  # type: ignore[no-any-return]


def time_of(fact: Fact) -> float:
    """Unix seconds."""
    return fact.sample.at_s if isinstance(fact, Measured) else fact.at_s


def in_time(facts: Iterable[Fact]) -> Iterator[tuple[float, Fact]]:
    """Facts with the times at which they count: clocks of hosts differ, their order does not."""
    now_s = float("-inf")
    for fact in facts:
        now_s = max(now_s, time_of(fact))
        yield now_s, fact


def _with_numbers(fields: Any) -> Any:
    """The same object with the names of non-finite numbers turned into numbers again."""
    if not isinstance(fields, dict):
        return fields
    if fields.get("type") == "run_submitted":
        spec = fields.get("spec")
        verb = spec.get("verb") if isinstance(spec, dict) else None
        if isinstance(verb, dict):
            for name, value in verb.items():
                verb[name] = value if isinstance(value, str) else _numbers(value)
        return fields
    return {name: _numbers(value) if name in _NUMBERS else value for name, value in fields.items()}


def _numbers(value: Any) -> Any:
    if isinstance(value, str):
        return NON_FINITE.get(value, value)
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return value


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
    _, first = next(lines, (1, b""))
    head = _head(path, first)
    facts = [_fact(path, number, line) for number, line in lines]
    if not facts or not isinstance(facts[0], RunSubmitted):
        seen = type(facts[0]).__name__ if facts else "nothing"
        raise _refusal(path, f"its second line is {seen}, expected RunSubmitted; {_EXPORT}", 2)
    return Recording(head, tuple(facts))


def _unpacked(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if data.startswith(_GZIP):
            with gzip.open(io.BytesIO(data)) as unpacked:
                data = unpacked.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise _refusal(path, f"there is no such file; {_EXPORT}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise _refusal(path, "its packed content is cut off or damaged; copy it again") from None
    except OSError as error:
        raise _refusal(path, f"{error.strerror}; give a file that you may read") from None
    if len(data) > MAX_FILE_BYTES:
        raise _refusal(
            path, f"it has more than {MAX_FILE_BYTES >> 20} MiB, more than any recording has"
        )
    return data


def _lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each line that is not empty, its end included."""
    for number, line in enumerate(data.splitlines(keepends=True), start=1):
        if not line.isspace():
            yield number, line


def _head(path: Path, line: bytes) -> Head:
    fields: Any
    try:
        fields = from_json(line, Any)
    except _WRONG:
        fields = None
    if not isinstance(fields, dict) or fields.get("type") != "recording":
        raise _refusal(path, f"its first line is not the head of a recording; {_EXPORT}", 1)
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
        return converted(fields, Head)
    except _WRONG as error:
        raise _refusal(path, f"its head is damaged ({error}); export it again", 1) from None


def _fact(path: Path, number: int, line: bytes) -> Fact:
    try:
        return _fact_of(line)
    except _WRONG as error:
        is_json = isinstance(error, msgspec.ValidationError)
        if not is_json and not line.endswith(b"\n"):
            cut = f"line {number}, its last one, is cut off; copy it again"
            raise _refusal(path, cut, number) from None
        told = str(error) if is_json else f"no JSON ({error})"
        raise _refusal(path, f"line {number} is not a fact of a run: {told}", number) from None


def _refusal(path: Path, what: str, line: int | None = None) -> RecordingError:
    return RecordingError(f"reading the recording {path} failed: {what}", path=str(path), line=line)
