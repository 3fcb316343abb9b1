"""A trial as a plain cell: the source as it was written, with the trial's values filled in."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from jupyter_ddl.cell.names import IN_CELL_NAMES, bound_names
from jupyter_ddl.errors import SpecError
from jupyter_ddl.protocol.program import Placeholder, Program
from jupyter_ddl.protocol.space import ParamValue, variable_of

__all__ = ["choices_of", "edited", "filled_cell", "span_of"]

_PARAMS = "__ddl_params__"
"""What a function's search passes on; the name is that of ``ranks/compiling.py``."""
_OF_THE_SHELL = frozenset({"display", "get_ipython", "jupyter_ddl"})

_Assignment = ast.Assign | ast.AnnAssign


def filled_cell(program: Program, params: Mapping[str, ParamValue], title: str = "") -> str:
    """The cell of a search as a plain cell that does what one trial has done.

    Parameters
    ----------
    params
        The trial's; declarations of branches that it has not taken stay as they are.
    title : str
        One line, which becomes a comment above the cell.

    Raises
    ------
    SpecError
        The record has no such cell: its placeholders are elsewhere.
    """
    source = program.source
    tree = _parsed(source)
    statements = {
        (node.lineno, node.col_offset): node
        for node in ast.walk(tree)
        if isinstance(node, _Assignment)
    }
    edits = []
    for hole in program.placeholders:
        node = statements.get((hole.line, hole.column))
        if node is None:
            raise SpecError(f"the cell assigns no {hole.name!r} at line {hole.line}")
        if hole.name in params:
            edits.append(_edit(program, node, hole, params[hole.name]))
    text = edited(source, edits)
    tree = _parsed(text)
    lines = text.split("\n")
    # Nothing may stand above a statement of __future__.
    n_first = max((_last_line(each) for each in tree.body if _is_future(each)), default=0)
    first = [line for line in lines[:n_first] if line.strip()]
    comment = [f"# {' '.join(title.split())}"] if title.strip() else []
    given = [*_imports(tree, program), *_given(program, params)]
    body = "\n".join(lines[n_first:]).strip("\n")
    return "\n".join([*comment, *first, *given, body]) + "\n"


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise SpecError(f"the cell in the record is no Python: {error}") from error


def _edit(
    program: Program, node: _Assignment, hole: Placeholder, value: ParamValue
) -> tuple[int, int, str]:
    """Where a trial's value goes, in bytes of the source, and its text."""
    source = program.source
    if hole.by_index:
        text = _picked(source, node, hole, value)
    else:
        text = _object(program, hole.name, value)
    if node.value is None:
        _, end = span_of(source, node)
        return end, end, f" = {text}"
    return *span_of(source, node.value), text


def _picked(source: str, node: _Assignment, hole: Placeholder, value: ParamValue) -> str:
    """The argument of ``choice(…)`` that a label stands for, as it is written there."""
    parts, whole = choices_of(source, node, hole)
    if value not in hole.labels:
        raise SpecError(f"the cell has no choice(…) with {value!r} at line {hole.line}")
    at = hole.labels.index(value)
    return f"{whole}[{at}]" if parts is None else parts[at]


def choices_of(
    source: str, node: ast.stmt, hole: Placeholder
) -> tuple[tuple[str, ...] | None, str]:
    """The arguments of ``choice(…)`` as they are written, and a sequence of them.

    Returns
    -------
    tuple of str or None
        None where they are not written one by one.
    str
        An expression of all.

    Raises
    ------
    SpecError
        There is no such call.
    """
    call = next((each for each in ast.walk(node) if _is_choice(each)), None)
    if not isinstance(call, ast.Call):
        raise SpecError(f"the cell has no choice(…) at line {hole.line}")
    args = call.args
    if len(args) == 1 and isinstance(args[0], ast.List | ast.Tuple):
        args = args[0].elts
    elif len(args) == 1 and not isinstance(args[0], ast.Starred) and len(hole.labels) > 1:
        return None, f"({_text(source, args[0])})"
    texts = tuple(_text(source, each) for each in args)
    whole = f"({', '.join(texts)},)"
    return (None if any(isinstance(each, ast.Starred) for each in args) else texts), whole


def _is_choice(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else None
    return (node.func.id if isinstance(node.func, ast.Name) else name) == "choice"


def _text(source: str, node: ast.expr) -> str:
    start, end = span_of(source, node)
    return source.encode()[start:end].decode()


def span_of(source: str, node: ast.stmt | ast.expr) -> tuple[int, int]:
    """Bytes of a node, from the first to behind the last; parentheses around it are not of it."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    end = starts[node.end_lineno - 1] + node.end_col_offset
    return starts[node.lineno - 1] + node.col_offset, end


def edited(source: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """The source with texts in place of spans of bytes."""
    data = source.encode()
    for start, end, text in sorted(edits, reverse=True):
        data = data[:start] + text.encode() + data[end:]
    return data.decode()


def _imports(tree: ast.Module, program: Program) -> list[str]:
    """What the cell found by itself in its rank."""
    there = {name for name, _ in bound_names(tree.body)} | {each.name for each in program.captures}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names = sorted(used & (IN_CELL_NAMES - _OF_THE_SHELL) - there)
    return [f"from jupyter_ddl import {', '.join(names)}"] if names else []


def _given(program: Program, params: Mapping[str, ParamValue]) -> list[str]:
    """Assignments of what the cell does not declare itself."""
    holes = {hole.name for hole in program.placeholders}
    texts = {
        variable_of(name): _object(program, name, value)
        for name, value in params.items()
        if name not in holes
    }
    if _PARAMS in program.source:
        values = {variable_of(n): _object(program, n, value) for n, value in params.items()}
        return [f"{_PARAMS} = {{{', '.join(f'{n!r}: {text}' for n, text in values.items())}}}"]
    return [f"{name} = {text}" for name, text in texts.items()]


def _object(program: Program, name: str, value: ParamValue) -> str:
    labels = program.space_labels.get(name)
    if labels is None or value not in labels.values:
        return repr(value)
    path = "".join(f"[{key!r}]" for key in labels.path)
    return f"{program.space_name}{path}[{labels.values.index(value)}]"
