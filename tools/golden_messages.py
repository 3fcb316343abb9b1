"""One full and one sparse example of every message between browsers and this package.

Both sides' tests read them, so neither can misunderstand the other alone.  The values follow from
the types: a field that is added appears here by itself.
"""

from __future__ import annotations

import typing
from typing import Any

import msgspec
from msgspec import inspect as shapes

from jupyter_ddl.protocol import view_messages as messages

__all__ = ["golden_files"]

_HARD_TEXT = 'it\'s <b>"α" & </script>'
"""Text that must arrive, and be shown, as it is."""


def golden_files() -> dict[str, str]:
    """File name → JSON: ``{"direction": …, "full": …, "sparse": …}``."""
    found = {}
    for direction, union in (
        ("to_browser", messages.ToBrowser),
        ("from_browser", messages.FromBrowser),
    ):
        for cls in typing.get_args(union):
            kind = shapes.type_info(cls)
            assert isinstance(kind, shapes.StructType)
            examples = {
                "direction": direction,
                "full": _example(kind, "", full=True),
                "sparse": _example(kind, "", full=False),
            }
            text = msgspec.json.format(msgspec.json.encode(examples), indent=1)
            found[f"{kind.tag}.json"] = text.decode() + "\n"
    return found


def _example(kind: shapes.Type, name: str, *, full: bool) -> Any:
    """An instance of a type: as much as it can hold, or as little."""
    match kind:
        case shapes.StructType():
            values = {
                field.name: _example(field.type, field.name, full=full) for field in kind.fields
            }
            return kind.cls(**values)
        case shapes.UnionType():
            return _of_union(kind, name, full=full)
        case shapes.TupleType():
            return tuple(_example(item, name, full=full) for item in kind.item_types)
        case shapes.VarTupleType():
            item = kind.item_type
            return (
                (_example(item, name, full=True), _example(item, name, full=False)) if full else ()
            )
        case shapes.DictType():
            return {_HARD_TEXT: _example(kind.value_type, name, full=True)} if full else {}
        case shapes.LiteralType():
            return kind.values[-1 if full else 0]
        case shapes.StrType():
            return f"{name} {_HARD_TEXT}" if full else ""
        case shapes.IntType():
            return 7 if full else 0
        case shapes.FloatType():
            return 0.25 if full else 0.0
        case shapes.BoolType():
            return full
    return None


def _of_union(kind: shapes.UnionType, name: str, *, full: bool) -> Any:
    may_be_none = any(isinstance(item, shapes.NoneType) for item in kind.types)
    if may_be_none and not full:
        return None
    rest = [item for item in kind.types if not isinstance(item, shapes.NoneType)]
    return _example(rest[-1 if full else 0], name, full=full)
