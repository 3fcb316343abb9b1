"""What the notebook has put in the place of functions of modules: ranks import the originals."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from jupyter_ddl.cell.modules import imports_of

__all__ = ["mentioned_names", "patches_note"]

_LISTED = 3
_HERE = "__main__"


def mentioned_names(
    trees: Iterable[ast.AST], functions: Iterable[types.FunctionType]
) -> frozenset[str]:
    """Names and attributes that occur in pieces of code."""
    found: set[str] = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.alias):
                found.update(node.name.split("."))
    codes = [function.__code__ for function in functions]
    while codes:
        code = codes.pop()
        found.update(code.co_names)
        codes += [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return frozenset(found)


def patches_note(
    tree: ast.Module, names: frozenset[str], values: Iterable[Any], modules: Iterable[str]
) -> Iterator[str]:
    """One sentence on replaced functions and classes that a cell reaches, if there are any.

    Parameters
    ----------
    names
        What is looked at in a module: names that occur in the cell and what it captures.
    values
        Of the notebook, as the cell reads them; of interest are modules and classes.
    modules
        Names of modules that captured values refer to.
    """
    imported = (each.module for each in imports_of(tree) if not each.level)
    tops = [sys.modules[name] for name in {*imported, *modules} if name in sys.modules]
    seen: set[int] = set()
    found = sorted({
        path
        for value in (*values, *tops)
        if isinstance(value, types.ModuleType | type)
        for path in _patched(value, names, seen)
    })  # fmt: skip
    if found:
        more = len(found) - _LISTED
        listed = ", ".join(found[:_LISTED]) + (f" and {more} more" if more > 0 else "")
        yield (
            f"the notebook has replaced {listed}, and ranks have what is installed; replace it "
            f"inside the cell, or in a module beside the notebook that the cell imports"
        )


def _patched(value: Any, names: frozenset[str], seen: set[int]) -> Iterator[str]:
    if id(value) in seen or value.__dict__.get("__name__") == _HERE:
        return
    seen.add(id(value))
    if isinstance(value, type):
        for owner in value.__mro__:
            if owner.__module__ not in (_HERE, "builtins"):
                yield from _replaced_in(owner)
        return
    for name in names & value.__dict__.keys():
        part = value.__dict__[name]
        if _is_of_notebook(part):
            yield f"{value.__name__}.{name}"
        elif isinstance(part, types.ModuleType | type):
            yield from _patched(part, names, seen)


def _replaced_in(owner: type) -> Iterator[str]:
    # All of it: calling an object does not mention the methods that run.
    for name, part in list(vars(owner).items()):
        inner = getattr(part, "__func__", getattr(part, "fget", part))
        if isinstance(inner, types.FunctionType) and _is_of_notebook(inner):
            yield f"{owner.__module__}.{owner.__qualname__}.{name}"


def _is_of_notebook(value: Any) -> bool:
    return isinstance(value, types.FunctionType | type) and value.__module__ == _HERE
