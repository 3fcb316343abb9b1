"""Hyper-parameters that a cell declares: ``lr = loguniform(1e-4, 1e-1)`` at its top level."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from jupyter_ddl import dist
from jupyter_ddl.cell.arguments import UnknownValueError, evaluate
from jupyter_ddl.cell.notebook_names import IN_CELL_NAMES
from jupyter_ddl.cell.scopes import bound_names
from jupyter_ddl.cell.source import CellSource
from jupyter_ddl.errors import CellError, SpaceError
from jupyter_ddl.spec.space import Choice, Distribution

__all__ = ["Declaration", "assigned_name", "find_declarations"]


@dataclass(frozen=True, slots=True)
class Declaration:
    """One hyper-parameter of the cell, at the statement that declares it."""

    name: str
    dist: Distribution
    statement: ast.Assign | ast.AnnAssign


def find_declarations(source: CellSource, namespace: Mapping[str, Any]) -> tuple[Declaration, ...]:
    """Hyper-parameters declared at the top level of a cell, in the order of the text.

    Raises
    ------
    SpaceError
        For a distribution that nothing can be drawn from, or a declaring call anywhere else
        than as the whole right-hand side of a top-level assignment to one name.
    CellError
        For an argument whose value is not known before the run.
    """
    reader = _Reader(source, namespace)
    found: list[Declaration] = []
    calls: set[int] = set()
    for statement in source.tree.body:
        call = reader.declaring_call(statement)
        if call is None:
            continue
        assert isinstance(statement, ast.Assign | ast.AnnAssign)
        calls.add(id(call))
        name = assigned_name(statement)
        if name is None:
            raise SpaceError(
                f"{source.where(statement.lineno)}: {ast.unparse(statement)!r} declares a "
                f"hyper-parameter for several targets; assign it to one name",
                line=statement.lineno,
            )
        found.append(Declaration(name, reader.read(name, call, statement), statement))
    reader.refuse_elsewhere(calls)
    return tuple(found)


def assigned_name(statement: ast.stmt) -> str | None:
    """The name of ``name = …`` or ``name: … = …``; None for any other statement."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target: ast.expr = statement.targets[0]
    elif isinstance(statement, ast.AnnAssign):
        target = statement.target
    else:
        return None
    return target.id if isinstance(target, ast.Name) else None


class _Reader:
    def __init__(self, source: CellSource, namespace: Mapping[str, Any]) -> None:
        self._source = source
        self._namespace = namespace
        self._bound = {name for name, _ in bound_names(source.tree.body)}
        self._imported = dict(_imports_of_ours(source.tree))
        self._literals = _single_assignments(source.tree)

    def declaring_call(self, statement: ast.stmt) -> ast.Call | None:
        """The declaring call of an assignment, on its right or in its ``Annotated``."""
        if isinstance(statement, ast.AnnAssign):
            for part in _annotated(statement.annotation):
                if isinstance(part, ast.Call) and self._function(part):
                    return part
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            value = statement.value
            if isinstance(value, ast.Call) and self._function(value):
                return value
        return None

    def read(
        self, name: str, call: ast.Call, statement: ast.Assign | ast.AnnAssign
    ) -> Distribution:
        function = self._function(call)
        assert function is not None
        where = f"{self._source.where(call.lineno)}: {name}"
        args = list(self._positional(where, call, function))
        keywords: dict[str, Any] = {}
        for keyword in call.keywords:
            if keyword.arg is None:
                keywords.update(self._value(where, keyword.value))
            elif function == "choice":
                keywords[keyword.arg] = self._object(keyword.value)
            else:
                keywords[keyword.arg] = self._value(where, keyword.value)
        keywords = self._with_plain_default(keywords, call, statement)
        found = dist.build(function, where, args, keywords)
        # A rank finds the values of the call by the name `choice`.
        if isinstance(found, Choice) and found.by_index and _dotted(call.func)[-1] != "choice":
            raise SpaceError(
                f"{where} chooses between objects under another name of choice; "
                f"write {name} = choice(…)"
            )
        return found

    def refuse_elsewhere(self, accepted: set[int]) -> None:
        """A declaring call inside other code would stay at its default without a word."""
        for node in ast.walk(self._source.tree):
            if isinstance(node, ast.Call) and id(node) not in accepted and self._function(node):
                raise SpaceError(
                    f"{self._source.where(node.lineno)}: {ast.unparse(node)} is not searched here; "
                    f"assign it to a name of its own at the top level of the cell, e.g. "
                    f"x = {ast.unparse(node)}",
                    line=node.lineno,
                )

    def _function(self, call: ast.Call) -> str | None:
        """Which declaring function a call is of, seen through imports and aliases."""
        path = _dotted(call.func)
        if not path:
            return None
        first, rest = path[0], path[1:]
        if first in self._imported:
            path = (*self._imported[first], *rest)
        elif first in self._bound:
            return None
        elif first in self._namespace:
            path = (*_origin(self._namespace[first]), *rest)
        elif not rest and first in IN_CELL_NAMES:
            path = ("jupyter_ddl", first)
        ours = path[:1] == ("jupyter_ddl",) and path[-1] in dist.FUNCTIONS
        return path[-1] if ours else None

    def _positional(self, where: str, call: ast.Call, function: str) -> Iterator[Any]:
        for argument in call.args:
            if isinstance(argument, ast.Starred):
                yield from self._value(where, argument.value)
            elif function != "choice":
                yield self._value(where, argument)
            elif len(call.args) == 1 and _is_display(argument):
                yield [self._object(element) for element in argument.elts]
            else:
                yield self._object(argument)

    def _value(self, where: str, node: ast.expr) -> Any:
        try:
            return evaluate(node, self._namespace, self._literals)
        except UnknownValueError as error:
            raise CellError(
                f"{where}: {ast.unparse(node)!r} is not known before the run ({error}); write "
                f"numbers or put the value into a notebook variable first",
                line=node.lineno,
            ) from None

    def _object(self, node: ast.expr) -> Any:
        """A value to choose; where only a rank can make it, its text stands for it."""
        try:
            return evaluate(node, self._namespace, self._literals)
        except UnknownValueError:
            return _Unmade(ast.unparse(node))

    def _with_plain_default(
        self,
        keywords: dict[str, Any],
        call: ast.Call,
        statement: ast.Assign | ast.AnnAssign,
    ) -> dict[str, Any]:
        """``lr: Annotated[float, loguniform(…)] = 1e-2``: the value is the default."""
        if call is statement.value or statement.value is None or "default" in keywords:
            return keywords
        try:
            return {**keywords, "default": evaluate(statement.value, self._namespace, {})}
        except UnknownValueError:
            return keywords


@dataclass(frozen=True, slots=True, repr=False)
class _Unmade:
    """Stands for an object that only a rank makes; shown by its source text."""

    text: str

    def __repr__(self) -> str:
        return self.text


def _is_display(node: ast.expr) -> TypeGuard[ast.List | ast.Tuple]:
    """``[a, b]``, the elements written out."""
    return isinstance(node, ast.List | ast.Tuple) and not any(
        isinstance(element, ast.Starred) for element in node.elts
    )


def _annotated(annotation: ast.expr) -> Iterator[ast.expr]:
    if not isinstance(annotation, ast.Subscript) or not isinstance(annotation.slice, ast.Tuple):
        return
    path = _dotted(annotation.value)
    if path and path[-1] == "Annotated":
        yield from annotation.slice.elts[1:]


def _dotted(node: ast.expr) -> tuple[str, ...]:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else ()


def _origin(value: Any) -> tuple[str, ...]:
    """Dotted path of a module, or of a function by its module and name."""
    if isinstance(value, types.ModuleType):
        return tuple(value.__name__.split("."))
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if isinstance(module, str) and isinstance(name, str):
        return (*module.split("."), name)
    return ("",)


def _imports_of_ours(tree: ast.Module) -> Iterator[tuple[str, tuple[str, ...]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = tuple(alias.name.split("."))
                if parts[0] == "jupyter_ddl":
                    yield (alias.asname, parts) if alias.asname else (parts[0], parts[:1])
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            parts = tuple(node.module.split("."))
            if parts[0] == "jupyter_ddl":
                for alias in node.names:
                    yield alias.asname or alias.name, (*parts, alias.name)


def _single_assignments(tree: ast.Module) -> dict[str, ast.expr]:
    """Names that the cell binds once, by a top-level assignment."""
    bound = [name for name, _ in bound_names(tree.body)]
    found: dict[str, ast.expr] = {}
    for statement in tree.body:
        name = assigned_name(statement)
        value = getattr(statement, "value", None)
        if name is not None and value is not None and bound.count(name) == 1:
            found[name] = value
    return found
