"""Values of expressions before any rank runs: arguments of ``loguniform(…)``, tests of choices.

Literals are read; names come from the notebook or from a literal assignment in the cell; of calls
only those are made that are pure arithmetic (``range``, ``numpy.logspace`` …).
"""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping
from typing import Any

__all__ = ["UnknownValueError", "evaluate"]

_PURE_BUILTINS: dict[str, Any] = {
    function.__name__: function
    for function in (abs, float, int, len, list, max, min, pow, range, round, sorted, str, sum)
} | {"tuple": tuple, "True": True, "False": False, "None": None}
_PURE_MODULES = frozenset({"math", "numpy"})
_READING_METHODS = frozenset(
    {"keys", "values", "items", "tolist", "split", "copy", "startswith", "endswith", "lower"}
)
_NODES = (
    ast.Expression, ast.Constant, ast.Name, ast.Load, ast.Tuple, ast.List, ast.Dict, ast.Set,
    ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Attribute, ast.Subscript, ast.Slice,
    ast.Starred, ast.Call, ast.keyword, ast.ListComp, ast.GeneratorExp, ast.comprehension,
    ast.Store, ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.IfExp, ast.Lambda,
    ast.arguments, ast.arg, ast.JoinedStr, ast.FormattedValue,
)  # fmt: skip


class UnknownValueError(LookupError):
    """An expression has no value before the run; the message says why."""


def evaluate(node: ast.expr, namespace: Mapping[str, Any], literals: Mapping[str, ast.expr]) -> Any:
    """Value of an expression.

    Parameters
    ----------
    node
        The expression.
    namespace
        The notebook's names.
    literals
        Names that the cell itself assigns, with the expression.

    Raises
    ------
    UnknownValueError
        When the value is known on a rank only.
    """
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError):
        pass
    names: dict[str, Any] = {}
    for child in ast.walk(node):
        if not isinstance(child, _NODES):
            raise UnknownValueError(f"a {type(child).__name__} is not evaluated before the run")
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load):
            _look_up(child.id, node, namespace, literals, names)
    for child in ast.walk(node):
        if isinstance(child, ast.Call) and not _is_pure(child.func, names):
            raise UnknownValueError(f"{ast.unparse(child)} is not called before the run")
    code = compile(ast.Expression(node), "<declaration>", "eval")
    try:
        # The user's own expression, in the user's own kernel, as running the cell would do.
        return eval(code, {"__builtins__": _PURE_BUILTINS, **names})
    except Exception as error:
        raise UnknownValueError(f"{type(error).__name__}: {error}") from error


def _look_up(
    name: str,
    node: ast.expr,
    namespace: Mapping[str, Any],
    literals: Mapping[str, ast.expr],
    names: dict[str, Any],
) -> None:
    if name in names or name in _targets(node):
        return
    if name in literals:
        remaining = {key: value for key, value in literals.items() if key != name}
        names[name] = evaluate(literals[name], namespace, remaining)
    elif name in namespace:
        names[name] = namespace[name]
    elif name not in _PURE_BUILTINS:
        raise UnknownValueError(f"{name} has no value in the notebook")


def _targets(node: ast.expr) -> set[str]:
    """Names that comprehensions and lambdas inside ``node`` bind."""
    found = {
        child.id
        for child in ast.walk(node)
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)
    }
    return found | {child.arg for child in ast.walk(node) if isinstance(child, ast.arg)}


def _is_pure(function: ast.expr, names: Mapping[str, Any]) -> bool:
    if isinstance(function, ast.Name):
        return function.id in _PURE_BUILTINS and function.id not in names
    base = function
    while isinstance(base, ast.Attribute):
        base = base.value
    if not (isinstance(base, ast.Name) and isinstance(function, ast.Attribute)):
        return False
    owner = names.get(base.id)
    if isinstance(owner, types.ModuleType):
        return owner.__name__.partition(".")[0] in _PURE_MODULES
    # Methods that only read, of plain values: widths.keys(), array.tolist().
    return function.attr in _READING_METHODS
