"""Values of a message's type, and what a bad disk or a bad neighbour makes of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any

from msgspec import inspect as shapes

Makes = Mapping[type, Callable[[Random], Any]]

__all__ = ["mutated_bytes", "mutated_tree", "sample_of"]

_TEXTS = ("", "a", "r1-abc", "loss", "x/y", "../x", "NaN", "é\u2028<b>\x00\x1b[31m", "-" * 300)
_FITTING = ("", "a.bin", "logs/a.bin", "/tmp/jupyter_ddl-x/store", "5f" * 32)
_INTS = (0, 1, 2, 3, 7, 40, -1, 2**31, 2**53, 2**63 - 1, -(2**63))
_FLOATS = (0.0, 1.0, 0.25, -1.5, 1e300, 1795418126.5, math.nan, math.inf, -math.inf)
_AWKWARD: tuple[Any, ...] = (
    None, True, -1, 2**63, 2**64 - 1, math.nan, math.inf, "", "\x00", "../../x", "x" * 5000,
    b"\xff", [], {}, [[[[]]]], {"type": "run_finished"}, [0] * 2000,
)  # fmt: skip
_AWKWARD_BYTES = (
    b"\x00", b"\xff", b"\xc0", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xa2\xc3\x28", b"\xc7\x05\x01",
    b"\xcb\x7f\xf0", b"\x91" * 3000, b"[" * 3000, b'{"a":' * 1500, b"1e999", b"\\ud800",
    b"\n", b'"',
)  # fmt: skip


def sample_of(
    kind: shapes.Type, rng: Random, makes: Makes = MappingProxyType({}), depth: int = 0
) -> Any:
    """A value that fits a type: ``msgspec.inspect.type_info`` tells what is in one.

    Parameters
    ----------
    makes : mapping
        By class, what makes one that follows from more than the types of its fields.
    """
    match kind:
        case shapes.StructType() if kind.cls in makes:
            return makes[kind.cls](rng)
        case shapes.StructType():
            values = {
                field.name: sample_of(field.type, rng, makes, depth + 1)
                for field in kind.fields
                if field.required or rng.random() < 0.5
            }
            return kind.cls(**values)
        case shapes.UnionType():
            return sample_of(rng.choice(kind.types), rng, makes, depth)
        case shapes.TupleType():
            return tuple(sample_of(item, rng, makes, depth + 1) for item in kind.item_types)
        case shapes.VarTupleType() | shapes.ListType():
            n = rng.choice((0, 1, 1, 2, 5)) if depth < 8 else 0
            return [sample_of(kind.item_type, rng, makes, depth + 1) for _ in range(n)]
        case shapes.DictType():
            n = rng.choice((0, 1, 2, 3)) if depth < 8 else 0
            return {
                sample_of(kind.key_type, rng, makes, 9): sample_of(
                    kind.value_type, rng, makes, depth + 1
                )
                for _ in range(n)
            }
        case shapes.LiteralType():
            return rng.choice(kind.values)
        case shapes.StrType():
            fitting = kind.pattern
            texts = _TEXTS if fitting is None else _FITTING
            return rng.choice([t for t in texts if fitting is None or re.search(fitting, t)])
        case shapes.IntType():
            return rng.choice(_INTS)
        case shapes.FloatType():
            return rng.choice(_FLOATS)
        case shapes.BoolType():
            return rng.random() < 0.5
        case shapes.BytesType():
            return rng.choice((b"", b"abc", bytes(range(256))))
        case shapes.AnyType():
            return rng.choice((None, 1, "a", 0.5, ["a"], {"a": 1}))
    return None


def mutated_bytes(data: bytes, rng: Random, other: bytes = b"") -> bytes:
    """Some bytes changed, left out, repeated, cut off, or exchanged for those of another."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        size = len(changed)
        at = rng.randrange(size + 1)
        to = min(size, at + rng.choice((1, 1, 2, 4, 16, 64)))
        deed = rng.randrange(7)
        if deed == 0 and at < size:
            changed[at] ^= 1 << rng.randrange(8)
        elif deed == 1:
            changed[at:to] = rng.randbytes(to - at)
        elif deed == 2:
            del changed[at:to]
        elif deed == 3:
            changed[at:at] = changed[at:to] * rng.choice((1, 2, 50))
        elif deed == 4:
            changed[at:to] = rng.choice(_AWKWARD_BYTES)
        elif deed == 5:
            begin = rng.randrange(len(other) + 1)
            changed[at:to] = other[begin : begin + rng.choice((1, 8, 64, len(other)))]
        elif rng.random() < 0.2:
            del changed[at:]
    return bytes(changed)


def mutated_tree(value: Any, rng: Random) -> Any:
    """The same builtins with something else in one place."""
    if rng.random() < 0.15:
        return rng.choice(_AWKWARD)
    if isinstance(value, dict) and value:
        changed = dict(value)
        key = rng.choice(list(changed))
        deed = rng.random()
        if deed < 0.1:
            del changed[key]
        elif deed < 0.2:
            changed[rng.choice(("type", "trial", "x" * 2000, ""))] = changed[key]
        else:
            changed[key] = mutated_tree(changed[key], rng)
        return changed
    if isinstance(value, list | tuple) and value:
        items = list(value)
        at = rng.randrange(len(items))
        if rng.random() < 0.2:
            return items[:at] + items[at:] * 2
        items[at] = mutated_tree(items[at], rng)
        return items
    if isinstance(value, bool) or not isinstance(value, int | float):
        return rng.choice(_AWKWARD)
    return rng.choice((*_INTS, *_FLOATS, -value, value + 1))
