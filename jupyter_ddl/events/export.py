"""A run as JSON lines for other tools, and back for replay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from jupyter_ddl.errors import ProtocolError
from jupyter_ddl.events.codec import NON_FINITE, json_safe
from jupyter_ddl.events.messages import Event
from jupyter_ddl.events.reader import read_ledger

__all__ = ["export_jsonl", "read_jsonl"]

# Where floats may stand; text elsewhere stays text, even the text "NaN".
_NUMBERS = frozenset({"metrics", "params", "value", "inline_value", "best_value"})


def export_jsonl(ledger: str | Path, out: str | Path) -> int:
    """Write one JSON object per event, with its ``type``, and return their number.

    NaN and infinities are written as the strings "NaN", "Infinity" and "-Infinity".
    The file appears whole or not at all.  Raises as ``read_ledger`` does, and OSError.
    """
    target = Path(out)
    partial = target.with_name(f".{target.name}.partial")
    n_events = 0
    try:
        with partial.open("w", encoding="utf-8") as file:
            for event in read_ledger(ledger):
                file.write(json.dumps(json_safe(event), ensure_ascii=False, allow_nan=False))
                file.write("\n")
                n_events += 1
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return n_events


def read_jsonl(path: str | Path) -> Iterator[Event]:
    """The events of an exported run, for replay.

    A text parameter that reads "NaN" or "Infinity" comes back as that number.

    Raises
    ------
    ProtocolError
        A line is no event; names file and line.
    """
    with Path(path).open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                fields = json.loads(line)
                event: Event = msgspec.convert(_with_numbers(fields), Event)
            except (ValueError, msgspec.ValidationError) as error:
                raise ProtocolError(
                    f"reading line {number} of {path} failed: {error}; expected one event as "
                    f"written by export",
                    path=str(path),
                    line=number,
                ) from error
            yield event


def _with_numbers(fields: Any) -> Any:
    """The same object with the names of non-finite numbers turned into numbers again."""
    if not isinstance(fields, dict):
        return fields
    if fields.get("type") == "run_submitted":
        verb = fields.get("spec", {}).get("verb", {})
        for name in ("space", "sampler", "pruner"):
            if name in verb:
                verb[name] = _numbers(verb[name])
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
