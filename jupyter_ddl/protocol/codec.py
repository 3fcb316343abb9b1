"""Events to bytes and back: msgpack in ledgers, JSON for people.

One shared encoder and one shared decoder; building them costs more than a thousand events do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from jupyter_ddl.errors import ProtocolError
from jupyter_ddl.protocol.events import Event
from jupyter_ddl.protocol.reading import converted, msgpack_decoder

__all__ = [
    "NON_FINITE",
    "UNREADABLE",
    "UNWRITABLE",
    "decode_event",
    "decoder_of",
    "encodable",
    "encode_event",
    "json_safe",
]

T = TypeVar("T")

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""How numbers that JSON has no word for are written, as strings."""

_ENCODER = msgspec.msgpack.Encoder()
UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are no message: they nest too deep, or hold no text."""
UNWRITABLE = (UnicodeEncodeError, OverflowError, TypeError)
"""What it raises for values that no message holds: halves of characters, numbers over 64 bits."""
_DECODER: msgspec.msgpack.Decoder[Event] = msgpack_decoder(Event)


def encode_event(event: Event) -> bytes:
    """One event as msgpack.

    Raises
    ------
    ProtocolError
        A value has no msgpack form (an integer beyond 64 bits); the message names the event.
    """
    try:
        return _ENCODER.encode(event)
    except UnicodeEncodeError:
        return _ENCODER.encode(_without_surrogates(msgspec.to_builtins(event)))
    except (OverflowError, TypeError, ValueError) as error:
        kind = type(event).__name__
        raise ProtocolError(
            f"encoding {kind} failed: {error}; expected numbers of at most 64 bits, text and None",
            message_type=kind,
        ) from error


def decode_event(data: bytes | memoryview, where: str = "") -> Event:
    """One event from msgpack.

    Parameters
    ----------
    data : bytes
        One whole msgpack value.
    where : str
        Where it came from ("record 7 of …/ledger.ddl"), for the message.

    Raises
    ------
    ProtocolError
        Not an event of this version; names the field at fault.
    """
    try:
        return _DECODER.decode(data)
    except UNREADABLE as error:
        place = f" at {where}" if where else ""
        raise ProtocolError(
            f"reading an event{place} failed: {error}; "
            f"it was written by another version of jupyter_ddl or is damaged",
            where=where,
        ) from error


def decoder_of(kind: Any, what: str = "not a message") -> Callable[[bytes | memoryview], Any]:
    """What reads one msgpack message of another process.

    Parameters
    ----------
    kind : type
        A tagged struct, or a union of some.
    what : str
        How the message begins of the :class:`ProtocolError` that it raises, whatever is wrong with
        the bytes.
    """
    decode = msgpack_decoder(kind).decode

    def read(data: bytes | memoryview) -> Any:
        try:
            return decode(data)
        except UNREADABLE as error:
            raise ProtocolError(f"{what}: {error}") from error

    return read


def json_safe(value: Any) -> Any:
    """Any message as dicts, lists, strings and numbers that every JSON reader accepts.

    NaN and infinities become the strings of :data:`NON_FINITE`; halves of surrogate pairs
    (undecodable bytes in a file name or a message) become ``?``.
    """
    return _safe(msgspec.to_builtins(value))


def encodable(message: T, kind: type[T]) -> T:
    """The message itself, or its copy with text that UTF-8 can carry when it has other text."""
    try:
        _ENCODER.encode(message)
    except UnicodeEncodeError:
        return converted(_without_surrogates(msgspec.to_builtins(message)), kind)
    return message


def _safe(value: Any) -> Any:
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, str):
        return _without_surrogates(value)
    if isinstance(value, dict):
        return {_safe(key): _safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_safe(item) for item in value]
    return value


def _without_surrogates(value: Any) -> Any:
    """The same builtins with text that UTF-8 can carry."""
    if isinstance(value, str):
        if value.isascii():
            return value
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_without_surrogates(k): _without_surrogates(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_surrogates(item) for item in value]
    return value
