"""Bytes and plain values to types, from any thread.

The first use of a type makes msgspec look at all of its fields, and while one thread does so,
another that reads the same type ends the process with a segmentation fault.  So one thread at a
time prepares a type, and nobody else asks msgspec for one.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, TypeVar, overload

import msgspec

__all__ = ["converted", "from_json", "from_msgpack", "json_decoder", "msgpack_decoder"]

T = TypeVar("T")

_PREPARING = threading.Lock()


@functools.cache
def _decoder(kind: Any, make: Any) -> Any:
    with _PREPARING:
        return make(kind)


@overload
def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...
@overload
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """What reads JSON of one type."""
    found: msgspec.json.Decoder[Any] = _decoder(kind, msgspec.json.Decoder)
    return found


@overload
def msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]: ...
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """What reads msgpack of one type."""
    found: msgspec.msgpack.Decoder[Any] = _decoder(kind, msgspec.msgpack.Decoder)
    return found


@overload
def from_json(data: bytes | str, kind: type[T]) -> T: ...
@overload
def from_json(data: bytes | str, kind: Any) -> Any: ...
def from_json(data: bytes | str, kind: Any) -> Any:
    """One value of a type from JSON; raises as msgspec does."""
    return json_decoder(kind).decode(data)


@overload
def from_msgpack(data: bytes | bytearray | memoryview, kind: type[T]) -> T: ...
@overload
def from_msgpack(data: bytes | bytearray | memoryview, kind: Any) -> Any: ...
def from_msgpack(data: bytes | bytearray | memoryview, kind: Any) -> Any:
    """One value of a type from msgpack; raises as msgspec does."""
    return msgpack_decoder(kind).decode(data)


@overload
def converted(value: Any, kind: type[T], **options: Any) -> T: ...
@overload
def converted(value: Any, kind: Any, **options: Any) -> Any: ...
def converted(value: Any, kind: Any, **options: Any) -> Any:
    """One value of a type from plain values; raises as msgspec does."""
    msgpack_decoder(kind)
    return msgspec.convert(value, kind, **options)
