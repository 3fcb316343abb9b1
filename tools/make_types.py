"""TypeScript's side of the messages, written from ``protocol/view_messages.py``.

``python tools/make_types.py [--check]`` writes ``labextension/src/protocol.ts`` (types, and shapes
for checking what arrives) and the golden messages that pytest and jest both read; ``--check`` only
names what is out of date.
"""

from __future__ import annotations

import argparse
import json
import sys
import typing
from pathlib import Path
from typing import Any

import msgspec
from golden_messages import golden_files
from msgspec import inspect as shapes

import jupyter_ddl
from jupyter_ddl.protocol import view_messages as messages
from jupyter_ddl.protocol.cluster import MAX_WORKERS

ROOT = Path(__file__).resolve().parent.parent
TYPES = ROOT / "labextension" / "src" / "protocol.ts"
GOLDEN = ROOT / "tests" / "golden"

_HEAD = """\
// Made by tools/make_types.py from protocol/view_messages.py; `make lint` fails when it is old.
// Numbers that are not finite travel as null, so every float may be null.

/** Version of the package that these types belong to. */
export const VERSION = {version};

/** Most workers of a cluster. */
export const MAX_WORKERS = {max_workers};
"""
_SHAPE_HEAD = """\
/** What a value must look like; names in `struct` are keys of STRUCTS. */
export type Shape =
  | 'string'
  | 'int'
  | 'number'
  | 'boolean'
  | 'null'
  | { list: Shape }
  | { tuple: Shape[] }
  | { map: Shape }
  | { any: Shape[] }
  | { one: (string | number)[] }
  | { struct: string };
"""


def main() -> int:
    """Exit status 1 when ``--check`` found something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    wanted = {TYPES: types_text()}
    wanted |= {GOLDEN / name: text for name, text in golden_files().items()}
    stale = [path for path, text in wanted.items() if _read(path) != text]
    stale += sorted(set(GOLDEN.glob("*.json")) - set(wanted))
    for path in stale:
        print(f"{path.relative_to(ROOT)}: {'out of date: `make format`' if check else 'written'}")
        if check:
            continue
        if path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path])
        else:
            path.unlink()
    return 1 if check and stale else 0


def _read(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None


def types_text() -> str:
    """The whole of ``protocol.ts``."""
    to_browser = _members(messages.ToBrowser)
    from_browser = _members(messages.FromBrowser)
    answers = _structs(to_browser)
    requests = _structs(from_browser)
    # What the browser writes itself may leave out what has a default.
    optional = requests.keys() - answers.keys()
    structs = answers | requests
    parts = [_HEAD.format(version=_text(jupyter_ddl.__version__), max_workers=MAX_WORKERS)]
    parts += [_interface(structs[name], name in optional) for name in sorted(structs)]
    parts.append(_union("ToBrowser", to_browser))
    parts.append(_union("FromBrowser", from_browser))
    parts.append(_SHAPE_HEAD)
    table = {name: _fields_shape(answers[name]) for name in sorted(answers)}
    parts.append(_constant("STRUCTS", "Record<string, Record<string, Shape>>", table))
    kinds = {str(_struct(cls).tag): cls.__name__ for cls in to_browser}
    parts.append(_constant("TO_BROWSER", "Record<string, string>", kinds))
    return "\n".join(parts)


def _members(union: Any) -> list[type[msgspec.Struct]]:
    return list(typing.get_args(union))


def _struct(cls: type[msgspec.Struct]) -> shapes.StructType:
    found = shapes.type_info(cls)
    assert isinstance(found, shapes.StructType)
    return found


def _structs(roots: list[type[msgspec.Struct]]) -> dict[str, shapes.StructType]:
    """The structs reachable from some, by name."""
    found: dict[str, shapes.StructType] = {}
    waiting: list[shapes.Type] = [_struct(cls) for cls in roots]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, shapes.StructType):
            if kind.cls.__name__ in found:
                continue
            found[kind.cls.__name__] = kind
            waiting += [field.type for field in kind.fields]
        else:
            waiting += _parts(kind)
    return found


def _parts(kind: shapes.Type) -> list[shapes.Type]:
    if isinstance(kind, shapes.UnionType):
        return list(kind.types)
    if isinstance(kind, shapes.TupleType):
        return list(kind.item_types)
    if isinstance(kind, shapes.VarTupleType | shapes.ListType):
        return [kind.item_type]
    if isinstance(kind, shapes.DictType):
        return [kind.value_type]
    return []


def _interface(kind: shapes.StructType, may_leave_out: bool) -> str:
    lines = [f"export interface {kind.cls.__name__} {{"]
    if kind.tag_field is not None:
        lines.append(f"  {kind.tag_field}: {_text(kind.tag)};")
    for field in kind.fields:
        mark = "?" if may_leave_out and not field.required else ""
        lines.append(f"  {field.encode_name}{mark}: {_type(field.type)};")
    return "\n".join([*lines, "}", ""])


def _type(kind: shapes.Type) -> str:
    match kind:
        case shapes.StructType():
            return kind.cls.__name__
        case shapes.UnionType():
            return " | ".join(dict.fromkeys(" | ".join(map(_type, kind.types)).split(" | ")))
        case shapes.TupleType():
            return f"[{', '.join(_type(item) for item in kind.item_types)}]"
        case shapes.VarTupleType() | shapes.ListType():
            return f"({_type(kind.item_type)})[]"
        case shapes.DictType():
            return f"Record<string, {_type(kind.value_type)}>"
        case shapes.LiteralType():
            return " | ".join(_text(value) for value in kind.values)
    return {"int": "number", "number": "number | null"}.get(_plain(kind), _plain(kind))


def _shape(kind: shapes.Type) -> Any:
    match kind:
        case shapes.StructType():
            return {"struct": kind.cls.__name__}
        case shapes.UnionType():
            return {"any": [_shape(item) for item in kind.types]}
        case shapes.TupleType():
            return {"tuple": [_shape(item) for item in kind.item_types]}
        case shapes.VarTupleType() | shapes.ListType():
            return {"list": _shape(kind.item_type)}
        case shapes.DictType():
            return {"map": _shape(kind.value_type)}
        case shapes.LiteralType():
            return {"one": list(kind.values)}
    return _plain(kind)


def _plain(kind: shapes.Type) -> str:
    names: dict[type[shapes.Type], str] = {
        shapes.StrType: "string",
        shapes.IntType: "int",
        shapes.FloatType: "number",
        shapes.BoolType: "boolean",
        shapes.NoneType: "null",
    }
    if type(kind) not in names:
        raise TypeError(f"messages use {kind!r}, for which no TypeScript is known here; add it")
    return names[type(kind)]


def _fields_shape(kind: shapes.StructType) -> dict[str, Any]:
    tag = {} if kind.tag_field is None else {kind.tag_field: {"one": [kind.tag]}}
    return tag | {field.encode_name: _shape(field.type) for field in kind.fields}


def _union(name: str, members: list[type[msgspec.Struct]]) -> str:
    return f"export type {name} =\n" + "\n".join(f"  | {cls.__name__}" for cls in members) + ";\n"


def _constant(name: str, kind: str, value: dict[str, Any]) -> str:
    entries = [f"  {key}: {json.dumps(entry)}" for key, entry in value.items()]
    return f"export const {name}: {kind} = {{\n" + ",\n".join(entries) + "\n};\n"


def _text(value: object) -> str:
    return json.dumps(value)


if __name__ == "__main__":
    sys.exit(main())
