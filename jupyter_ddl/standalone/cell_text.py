"""The text of a cell as the last part of a program: options in place of hyper-parameters.

Lines stay as they were written but for three things: a declaration takes its option's value, what
is imported from jupyter_ddl is there already, and the cell of a map stands in a loop.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jupyter_ddl.cell.filled import choices_of, span_of
from jupyter_ddl.cell.names import IN_CELL_NAMES
from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.program import Placeholder
from jupyter_ddl.standalone.collecting import PUBLIC

__all__ = ["Edit", "Ours", "fill_holes", "indented", "ours_in", "with_named_value"]

_PACKAGE = "jupyter_ddl"


class Edit(NamedTuple):
    """A replacement, in bytes of the text."""

    start: int
    end: int
    text: str


class Ours(NamedTuple):
    """What a piece of code takes from this package.

    Attributes
    ----------
    names : frozenset of str
        Functions that it uses, by their own names.
    edits : tuple of Edit
        Take the statements out that import them.
    missing : tuple of str
        What no program can have, as it is written.
    """

    names: frozenset[str]
    edits: tuple[Edit, ...]
    missing: tuple[str, ...]


def ours_in(source: str, tree: ast.AST, free: Iterable[str]) -> Ours:
    """What code uses of this package.

    Parameters
    ----------
    free : iterable of str
        Names that the code reads, binds not, and has from nobody else.
    """
    names = {name for name in free if name in IN_CELL_NAMES}
    missing: list[str] = []
    edits = []
    modules = {_PACKAGE} & names
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and _is_ours(node.module) and not node.level:
            taken = [alias.name for alias in node.names]
            if node.module != _PACKAGE:
                missing.append(node.module or "")
            names.update(taken)
            also = [f"{a.asname} = {a.name}" for a in node.names if a.asname and a.asname != a.name]
            edits.append(_instead(source, node, "; ".join(also)))
        elif isinstance(node, ast.Import) and any(_is_ours(each.name) for each in node.names):
            missing += [a.name for a in node.names if _is_ours(a.name) and a.name != _PACKAGE]
            modules |= {a.asname or _PACKAGE for a in node.names if a.name == _PACKAGE}
            edits.append(_without_import(source, tree, node))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) in modules:
            names.add(node.attr)
    names.discard(_PACKAGE)
    missing += sorted(names - PUBLIC)
    return Ours(frozenset(names), tuple(edits), tuple(missing))


def _is_ours(module: str | None) -> bool:
    return (module or "").partition(".")[0] == _PACKAGE


def _instead(source: str, node: ast.stmt, text: str) -> Edit:
    """A statement replaced; one that has its line to itself goes with the line's end."""
    start, end = span_of(source, node)
    if text:
        return Edit(start, end, text)
    data = source.encode()
    before = data[data.rfind(b"\n", 0, start) + 1 : start]
    rest = data[end : (data.find(b"\n", end) + 1) or len(data)]
    if not before and not rest.strip():
        return Edit(start, end + len(rest), "")
    return Edit(start, end, "pass")


def _without_import(source: str, tree: ast.AST, node: ast.Import) -> Edit:
    """``import jupyter_ddl as ddl, os`` as a namespace of what is used, and what is left."""
    parts = []
    for alias in node.names:
        if not _is_ours(alias.name):
            parts.append(f"import {ast.unparse(alias)}")
            continue
        name = alias.asname or _PACKAGE
        used = sorted(
            {
                each.attr
                for each in ast.walk(tree)
                if isinstance(each, ast.Attribute) and getattr(each.value, "id", None) == name
            }
        )
        parts.append(f"{name} = SimpleNamespace({', '.join(f'{x}={x}' for x in used)})")
    return _instead(source, node, "; ".join(parts))


def fill_holes(
    source: str,
    placeholders: Sequence[Placeholder],
    texts: Mapping[str, str],
) -> list[Edit]:
    """Replacements of declarations by the texts of their values.

    Parameters
    ----------
    texts : mapping
        By parameter; of a choice between objects what its label is.

    Raises
    ------
    SpecError
        The record has no such cell: a placeholder is elsewhere.
    """
    kinds = (ast.Assign, ast.AnnAssign)
    nodes = ast.walk(ast.parse(source))
    found: dict[tuple[int, int], Any] = {
        (node.lineno, node.col_offset): node for node in nodes if isinstance(node, kinds)
    }
    edits = []
    for hole in placeholders:
        node = found.get((hole.line, hole.column))
        if node is None:
            raise SpecError(f"the cell assigns no {hole.name!r} at line {hole.line}")
        text = texts[hole.name]
        if hole.by_index:
            text = _picked(source, node, hole, text)
        if node.value is None:
            _, end = span_of(source, node)
            edits.append(Edit(end, end, f" = {text}"))
        else:
            edits.append(Edit(*span_of(source, node.value), text))
    return edits


def _picked(source: str, node: ast.stmt, hole: Placeholder, label: str) -> str:
    """The argument of ``choice(…)`` that a label stands for."""
    parts, whole = choices_of(source, node, hole)
    if parts is None:
        return f"{whole}[{list(hole.labels)!r}.index({label})]"
    pairs = (f"{name!r}: {part}" for name, part in zip(hole.labels, parts, strict=True))
    return f"{{{', '.join(pairs)}}}[{label}]"


def with_named_value(source: str, name: str) -> Edit:
    """The last expression's value under a name."""
    last = ast.parse(source).body[-1]
    assert isinstance(last, ast.Expr)
    start, end = span_of(source, last)  # of the statement: with the parentheses around a value
    return Edit(start, end, f"{name} = ({source.encode()[start:end].decode()})")


def indented(source: str, by: str = "    ") -> str:
    """Code one level deeper; the lines of texts that go over several stay as they are."""
    inside: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.STRING or token.type in _MIDDLES:
            inside.update(range(token.start[0] + 1, token.end[0] + 1))
    lines = io.StringIO(source)  # which splits lines where Python does: at no form feed or the like
    return "".join(
        line if number in inside or not line.strip() else by + line
        for number, line in enumerate(lines, 1)
    )


_MIDDLES = frozenset(
    getattr(tokenize, name)
    for name in ("FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END", "TSTRING_MIDDLE")
    if hasattr(tokenize, name)
)
