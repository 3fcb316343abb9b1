"""Compile a cell once, with the trial's values in place of its hyper-parameters.

The right-hand side of every placeholder becomes a lookup, so no trial compiles anything.  All nodes
keep their places: tracebacks show the lines that the user typed.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from types import CodeType
from typing import Any, NamedTuple

from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.program import Placeholder, Program
from jupyter_ddl.ranks.imports import after_import

__all__ = [
    "PARAM",
    "PARAMS",
    "PICK",
    "ProgramCode",
    "compile_program",
    "imports_that_must_work",
    "register_source",
]

PARAM = "__ddl_param__"
"""Name under which the compiled cell looks a trial's value up."""
PARAMS = "__ddl_params__"
"""Name of all values that the trial has, by variable."""
PICK = "__ddl_pick__"
"""Name under which it picks an argument of the original ``choice(…)`` by label."""

_Assignment = ast.Assign | ast.AnnAssign


class ProgramCode(NamedTuple):
    """Code of a cell; ``last`` is its last expression, or None."""

    body: CodeType
    last: CodeType | None


def register_source(program: Program) -> None:
    """Let tracebacks and ``inspect`` find the lines of cells under their file names."""
    for filename, text in {**program.sources, program.filename: program.source}.items():
        # Without a modification time, linecache never looks for such a file.
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    _tell_numba()


@functools.cache
def _tell_numba() -> None:
    after_import("numba.core.caching", _let_numba_cache)


def _let_numba_cache() -> None:
    """Functions of cells are cached as those of notebooks are, which numba knows by their files."""
    locator: Any = getattr(sys.modules["numba.core.caching"], "IPythonCacheLocator", None)
    if locator is None:  # another version of numba
        return
    original = locator.from_function.__func__

    def from_function(cls: Any, function: Any, filename: str) -> Any:
        entry: Any = linecache.cache.get(filename, ())
        is_cell = len(entry) > 1 and entry[1] is None
        # Only what the name begins with is looked at.
        return original(cls, function, f"<ipython-{filename}>" if is_cell else filename)

    locator.from_function = classmethod(from_function)


def compile_program(program: Program) -> tuple[ProgramCode, ast.Module]:
    """Compile ``program.source``; also return its tree.

    Raises
    ------
    SyntaxError
        The cell is no Python.
    SpecError
        A placeholder is not at an assignment.
    """
    tree = ast.parse(program.source, program.filename)
    _fill_holes(tree, program.placeholders)
    final = tree.body[-1] if program.ends_in_expression and tree.body else None
    if not isinstance(final, ast.Expr):
        return ProgramCode(_compile(tree, program.filename, "exec"), None), tree
    body = _compile(ast.Module(tree.body[:-1], tree.type_ignores), program.filename, "exec")
    last = _compile(ast.Expression(final.value), program.filename, "eval")
    return ProgramCode(body, last), tree


def _compile(tree: ast.Module | ast.Expression, filename: str, mode: str) -> CodeType:
    # A notebook cell may await at its top level, so a shipped one may as well.
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(tree, filename, mode, flags=flags, dont_inherit=True)
    return code


def imports_that_must_work(tree: ast.Module) -> set[str]:
    """Top-level packages that the cell imports unconditionally.

    An import below ``try`` or ``if`` may be meant to fail.
    """
    names: set[str] = set()
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module and not node.level:
                names.add(node.module.partition(".")[0])
        elif not isinstance(node, ast.Try | ast.TryStar | ast.If | ast.expr):
            waiting.extend(ast.iter_child_nodes(node))
    return names


def _fill_holes(tree: ast.Module, placeholders: tuple[Placeholder, ...]) -> None:
    if not placeholders:
        return
    found = {
        (node.lineno, node.col_offset): node
        for node in ast.walk(tree)
        if isinstance(node, _Assignment)
    }
    for placeholder in placeholders:
        node = found.get((placeholder.line, placeholder.column))
        if node is None:
            raise SpecError(
                f"hyper-parameter {placeholder.name!r} should be assigned at line "
                f"{placeholder.line}, column {placeholder.column} of the cell, but no assignment "
                f"is there; run the cell again"
            )
        place = node.value or node
        args: list[ast.expr] = [ast.Constant(placeholder.name)]
        if placeholder.by_index:
            args.append(ast.Tuple(list(_choices(node, placeholder)), ast.Load()))
        call = ast.Call(ast.Name(PICK if placeholder.by_index else PARAM, ast.Load()), args, [])
        ast.copy_location(call, place)
        node.value = ast.fix_missing_locations(call)


def _choices(node: _Assignment, placeholder: Placeholder) -> list[ast.expr]:
    """Arguments of the ``choice(…)`` that declares a hyper-parameter: its value or annotation."""
    candidates: list[ast.expr] = [node.value] if node.value is not None else []
    if isinstance(node, ast.AnnAssign):
        candidates += [each for each in ast.walk(node.annotation) if isinstance(each, ast.Call)]
    for each in candidates:
        if isinstance(each, ast.Call) and _called_name(each) == "choice":
            return each.args
    raise SpecError(
        f"hyper-parameter {placeholder.name!r} at line {placeholder.line} should be a choice(…), "
        f"but no such call is there; run the cell again"
    )


def _called_name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
