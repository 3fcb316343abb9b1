"""Facts to lines of JSON and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from jupyter_ddl.protocol.codec import NON_FINITE, json_safe
from jupyter_ddl.protocol.events import Event
from jupyter_ddl.protocol.telemetry import WorkerSample

__all__ = [
    "FORMAT",
    "Fact",
    "Head",
    "Measured",
    "Origin",
    "Printed",
    "Recording",
    "fact_of",
    "in_time",
    "line_of",
    "time_of",
]


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


class Measured(msgspec.Struct, frozen=True, tag="measured"):
    """What one worker has measured at one moment."""

    sample: WorkerSample


class Printed(msgspec.Struct, frozen=True, tag="printed"):
    """Lines that a trial or a rank has printed by ``at_s``."""

    at_s: float
    trial: int
    lines: tuple[str, ...]
    rank: int | None = None


Fact: TypeAlias = Event | Measured | Printed


class Recording(msgspec.Struct, frozen=True):
    """A whole file: the head, then facts in the order in which they were committed."""

    head: Head
    facts: tuple[Fact, ...]


# Where floats may stand; text elsewhere stays text, even the text "NaN".
_NUMBERS = frozenset({"metrics", "params", "value", "inline_value", "best_value"})
# msgspec takes one type; a union of unions is one.
_FACT: Any = Fact


def line_of(fact: Fact | Head) -> str:
    """One line of strict JSON; NaN and infinities are the strings "NaN", "Infinity", "-Infinity".

    Text that UTF-8 can't carry is replaced.
    """
    return json.dumps(json_safe(fact), ensure_ascii=False, allow_nan=False)


def fact_of(fields: Any) -> Fact:
    """The fact of a decoded line.

    A text parameter that reads "NaN" or "Infinity" comes back as that number.

    Raises
    ------
    ValueError
        It is none; the message names the field.
    """
    return msgspec.convert(_with_numbers(fields), _FACT)  # type: ignore[no-any-return]


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
