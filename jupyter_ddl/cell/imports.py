"""Import statements of a piece of code, and whether a failing one would be handled."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from typing import NamedTuple

from jupyter_ddl.cell.scopes import catches

__all__ = ["Import", "imports_of", "is_installed", "is_standard"]


class Import(NamedTuple):
    """One imported module; ``names`` of a ``from`` import may be modules as well."""

    module: str
    """Dotted name; empty for ``from . import x``."""
    names: tuple[str, ...]
    level: int
    """Number of leading dots."""
    line: int
    certain: bool
    """Executed whenever the code is, and a failure ends it."""


def imports_of(tree: ast.Module) -> Iterator[Import]:
    """All imports of a module or cell, inside functions too."""
    yield from _walk(tree.body, certain=True)


def is_standard(top: str) -> bool:
    """Whether a top-level name is Python's own."""
    return top in sys.stdlib_module_names or top in sys.builtin_module_names or top == "__main__"


def is_installed(top: str) -> bool:
    """Whether a top-level module can be found here, without importing it."""
    if top in sys.modules:
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def _walk(nodes: list[ast.stmt], *, certain: bool) -> Iterator[Import]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, (), 0, node.lineno, certain)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield Import(node.module or "", names, node.level, node.lineno, certain)
        elif isinstance(node, ast.Try | ast.TryStar):
            handled = catches(node, "ImportError", "ModuleNotFoundError")
            yield from _walk(node.body, certain=certain and not handled)
            for handler in node.handlers:
                yield from _walk(handler.body, certain=False)
            yield from _walk(node.orelse, certain=False)
            yield from _walk(node.finalbody, certain=certain)
        elif isinstance(node, ast.With | ast.AsyncWith):
            yield from _walk(
                node.body, certain=certain and "suppress" not in ast.dump(node.items[0])
            )
        elif isinstance(node, ast.ClassDef):
            yield from _walk(node.body, certain=certain)
        else:
            for field in ("body", "orelse"):
                inner = getattr(node, field, None)
                if isinstance(inner, list):
                    yield from _walk(inner, certain=False)
            for case in getattr(node, "cases", ()):
                yield from _walk(case.body, certain=False)
