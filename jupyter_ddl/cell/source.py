"""The cell's body as plain Python, with the notebook's own line numbers.

Ranks run plain Python, so what only IPython understands is refused here with its line.
"""

from __future__ import annotations
import __future__

import ast
import inspect
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_ddl.errors import CellError

__all__ = ["CellSource", "filename_of", "globals_of_caller", "notebook_cell_of", "read_source"]


@dataclass(frozen=True, slots=True)
class CellSource:
    """A cell that parses.

    Attributes
    ----------
    text : str
        Source for a rank: a blank line in the magic's place, then the body.
    tree : ast.Module
        ``text``, parsed; its line numbers are the notebook's.
    filename : str
        What tracebacks show, e.g. ``In [12]``.
    """

    text: str
    tree: ast.Module
    filename: str

    @property
    def ends_in_expression(self) -> bool:
        """Whether the cell has a value."""
        return isinstance(self.tree.body[-1], ast.Expr)

    def where(self, line: int) -> str:
        """``In [12], line 3``, the beginning of a message about that line."""
        return f"{self.filename}, line {line}"


def filename_of(cell_number: int | None) -> str:
    """What tracebacks show for a cell."""
    return "In [ ]" if cell_number is None else f"In [{cell_number}]"


def read_source(
    cell: str, cell_number: int | None = None, namespace: Mapping[str, Any] | None = None
) -> CellSource:
    """Parse a cell's body (what follows the magic's line).

    Parameters
    ----------
    namespace
        The notebook's names: a ``from __future__`` of an earlier cell holds for this one, too.

    Raises
    ------
    CellError
        For an empty cell, IPython-only syntax, or a syntax error (fields ``line``, ``column``,
        ``caret``).
    """
    filename = filename_of(cell_number)
    first = _future_line(namespace or {})
    text = f"{first}\n{cell}"
    try:
        tree = _parse(text, filename)
    except SyntaxError as error:
        text = first + _without_ipython_prompts(cell, filename, error)
        try:
            tree = _parse(text, filename)
        except SyntaxError:
            raise _syntax_error(filename, error) from None
    if len(tree.body) == bool(first):
        raise CellError(f"{filename} is empty: write the code to distribute below the first line")
    _refuse_ipython(tree, text, filename)
    _check_compiles(text, filename)
    return CellSource(text, tree, filename)


def _future_line(namespace: Mapping[str, Any]) -> str:
    """The statement for the magic's line that turns on what the notebook has turned on."""
    there = {id(value) for value in namespace.values()}
    names = [
        name
        for name, feature in vars(__future__).items()
        if id(feature) in there and not _is_mandatory(feature)
    ]
    return f"from __future__ import {', '.join(names)}" if names else ""


def _is_mandatory(feature: Any) -> bool:
    release: tuple[Any, ...] | None = getattr(feature, "getMandatoryRelease", tuple)()
    return release is not None and release <= sys.version_info


def notebook_cell_of(filename: str, namespace: Mapping[str, Any]) -> str | None:
    """``In [3]`` for the file name that IPython has given to that cell's code."""
    shell = getattr(namespace.get("get_ipython"), "__self__", None)
    name_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    found = name_of(filename) if name_of is not None else None
    if not found or found[0] != "Cell":
        return None
    return str(found[1]).replace("In[", "In [")


def _parse(text: str, filename: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return ast.parse(text, filename)
        except (RecursionError, MemoryError) as error:
            raise CellError(f"{filename} is nested too deeply for Python's parser") from error
        except SyntaxError:
            raise
        except ValueError as error:  # null bytes, lone surrogates
            raise CellError(f"{filename} is not readable as Python: {error}") from error


def _check_compiles(text: str, filename: str) -> None:
    """Refuse what parses but stands in no module (``return``, ``yield``); a cell may await."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            compile(text, filename, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        except SyntaxError as error:
            raise _syntax_error(filename, error) from None


def _syntax_error(filename: str, error: SyntaxError) -> CellError:
    line, column = error.lineno or 1, error.offset or 1
    shown = (error.text or "").rstrip("\n")
    caret = f"{shown}\n{' ' * (column - 1)}^"
    return CellError(
        f"{filename}, line {line}: syntax error: {error.msg}: {shown.strip()!r}",
        line=line,
        column=column,
        caret=caret,
    )


def _without_ipython_prompts(cell: str, filename: str, error: SyntaxError) -> str:
    """The cell as IPython would run it: no prompts, no common indent, magics as calls."""
    from IPython.core.inputtransformer2 import TransformerManager

    lines = cell.splitlines(keepends=True)
    # IPython drops leading blank lines, which would shift every line number.
    n_blank = next((n for n, line in enumerate(lines) if line.strip()), len(lines))
    try:
        transformed: str = TransformerManager().transform_cell("".join(lines[n_blank:]))
    except SyntaxError:
        raise _syntax_error(filename, error) from None
    return "\n" * (n_blank + 1) + transformed


def _refuse_ipython(tree: ast.Module, text: str, filename: str) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_shell(node.value):
            raise CellError(
                f"{filename}, line {node.lineno}: {_ipython_syntax(text, node.lineno)}; ranks "
                f"run plain Python, so move magics and shell commands to another cell",
                line=node.lineno,
            )


def _is_shell(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "get_ipython"
    )


def _ipython_syntax(text: str, line: int) -> str:
    lines = text.splitlines()
    shown = lines[line - 1].strip() if line <= len(lines) else ""
    if "run_line_magic" in shown or "run_cell_magic" in shown:
        return f"a magic ({shown})"
    if ".system(" in shown or ".getoutput(" in shown:
        return f"a shell command ({shown})"
    return "get_ipython() is the notebook's own shell"


def globals_of_caller() -> dict[str, Any]:
    """The names of the notebook or script that has called this package."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("jupyter_ddl"):
        frame = frame.f_back
    return frame.f_globals if frame is not None else vars(sys.modules["__main__"])
