"""Functions and classes that a notebook defines, as the statements that define them.

The record of a run has the text of each cell that such a function comes from.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import io
import sys
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from jupyter_ddl.cell.names import bound_names, global_reads

__all__ = ["Statement", "StatementFinder", "import_of", "in_order", "missing_names", "read_now"]


class Statement(NamedTuple):
    """A statement of a notebook's cell.

    Attributes
    ----------
    names : frozenset of str
        What it binds.
    """

    text: str
    tree: ast.stmt
    names: frozenset[str]
    cell: str

    @property
    def place(self) -> tuple[str, int]:
        """Of which no other statement is."""
        return self.cell, self.tree.lineno


class StatementFinder:
    """Finds statements in the cells that a record has."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._all = [each for cell, text in sources.items() for each in _statements(cell, text)]

    def defining(self, name: str, value: Any) -> Statement | None:
        """The statement that made a function or class; None: no cell that is known has."""
        code = _code_of(value)
        cell = getattr(code, "co_filename", None)
        found = [each for each in self._all if name in each.names and _defines(each, value)]
        if cell is not None and not isinstance(value, type):
            found = [each for each in found if each.cell == cell]
            line = code.co_firstlineno
            at = [each for each in found if _first_line(each.tree) <= line <= _end(each.tree)]
            found = at or found
        return found[-1] if found else None

    def binding(self, name: str) -> Statement | None:
        """The last statement that imports or defines a name."""
        kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = (each for each in reversed(self._all) if isinstance(each.tree, kinds))
        return next((each for each in found if name in each.names), None)


def _statements(cell: str, text: str) -> Iterable[Statement]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # magics beside the definitions
        tree, text = _without_magics(text)
    lines = [*io.StringIO(text)]  # splits where Python does: at no form feed or the like
    for node in tree.body:
        own = "".join(lines[_first_line(node) - 1 : _end(node)])
        if node.col_offset or ast.unparse(ast.parse(own)) != ast.unparse(node):
            own = ast.unparse(node)  # several on one line
        names = frozenset(name for name, _ in bound_names([node]))
        yield Statement(own.rstrip() + "\n", node, names, cell)


def _without_magics(text: str) -> tuple[ast.Module, str]:
    lines = io.StringIO(text)
    text = "".join("pass\n" if line.startswith(("%", "!")) else line for line in lines)
    try:
        return ast.parse(text), text
    except (SyntaxError, ValueError):
        return ast.Module([], []), ""


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _code_of(value: Any) -> Any:
    """Code of a function, also of one behind decorators."""
    inner = inspect.unwrap(value) if callable(value) else value
    return getattr(getattr(inner, "py_func", inner), "__code__", None)


def _defines(statement: Statement, value: Any) -> bool:
    """Whether a statement can have made a value of this kind."""
    tree = statement.tree
    if isinstance(value, type):
        return not isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
    return not isinstance(tree, ast.Import | ast.ImportFrom | ast.ClassDef)


def read_now(tree: ast.stmt, *, lazy_annotations: bool) -> frozenset[str]:
    """Names that a definition reads when it is executed, and not only when it is called."""
    reads = global_reads([tree], lazy_annotations=lazy_annotations)
    return frozenset(read.name for read in reads if not read.deferred and not read.soft)


def in_order(statements: Iterable[Statement]) -> list[Statement]:
    """Statements so that what one of them reads at once stands before it."""
    by_place = {each.place: each for each in statements}
    owner = {name: each.place for each in by_place.values() for name in each.names}
    graph = {
        place: {
            owner[name]
            for name in read_now(each.tree, lazy_annotations=True)
            if name in owner and owner[name] != place
        }
        for place, each in sorted(by_place.items(), key=lambda pair: _number(pair[0]))
    }
    try:
        return [by_place[place] for place in TopologicalSorter(graph).static_order()]
    except CycleError:
        return sorted(by_place.values(), key=lambda each: _number(each.place))


def _number(place: tuple[str, int]) -> tuple[int, int]:
    digits = "".join(filter(str.isdigit, place[0]))
    return int(digits or "0"), place[1]


def missing_names(statement: Statement, known: Iterable[str]) -> list[str]:
    """What a definition reads at once, and nobody is known to bind.

    A record has the names that functions use when they are called; a base class or a decorator may
    be used by no function.
    """
    there = {*known, *dir(builtins), *statement.names}
    return sorted(read_now(statement.tree, lazy_annotations=True) - there)


def import_of(name: str, statement: Statement, value: Any) -> str | None:
    """The import that a definition's name most likely comes from, told by what was made of it."""
    if name in sys.stdlib_module_names:
        return f"import {name}"
    return _import_of_base(name, statement, value)


def _import_of_base(name: str, statement: Statement, value: Any) -> str | None:
    """The import behind ``nn`` of ``class Net(nn.Module)``, or behind a base class's own name."""
    if not isinstance(statement.tree, ast.ClassDef) or not isinstance(value, type):
        return None
    for base, found in zip(statement.tree.bases, value.__bases__, strict=False):
        first, _, path = ast.unparse(base).partition(".")
        if first != name or found.__module__ == "__main__":
            continue
        if not path:
            if found.__qualname__ == name:
                return f"from {found.__module__} import {name}"
            return f"from {found.__module__} import {found.__qualname__} as {name}"
        parts = found.__module__.split(".")
        for n_parts in range(1, len(parts) + 1):
            module = ".".join(parts[:n_parts])
            if _at(module, path) is found:
                return f"import {module} as {name}"
    return None


def _at(module: str, path: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found
