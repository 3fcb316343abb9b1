"""Hyper-parameters that a cell declares: ``lr = loguniform(1e-4, 1e-1)`` at its top level.

Below an ``if`` or ``match`` on a choice they are conditional (:mod:`jupyter_ddl.cell.branches`).
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeGuard

from jupyter_ddl import dist
from jupyter_ddl.cell.branches import Branches, finite_values
from jupyter_ddl.cell.names import IN_CELL_NAMES, bound_names
from jupyter_ddl.cell.regions import Parameters, Region
from jupyter_ddl.cell.source import CellSource
from jupyter_ddl.cell.values import UnknownValueError, evaluate
from jupyter_ddl.errors import CellError, SpaceError
from jupyter_ddl.protocol.space import Choice, Distribution

__all__ = ["Assignment", "Declaration", "assigned_name", "find_declarations", "single_assignments"]

Assignment = ast.Assign | ast.AnnAssign


@dataclass(frozen=True, slots=True)
class Declaration:
    """One statement that declares a hyper-parameter.

    Attributes
    ----------
    key : str
        Of the parameter among :class:`~jupyter_ddl.cell.regions.Parameters`.
    """

    key: str
    statement: Assignment


def find_declarations(
    source: CellSource,
    namespace: Mapping[str, Any],
    parameters: Parameters,
    known: Mapping[str, str],
) -> tuple[Declaration, ...]:
    """Add what a cell declares to ``parameters``; returns the statements, in their order.

    Parameters
    ----------
    known
        Variables of parameters that are declared outside of the cell, with their keys.

    Raises
    ------
    SpaceError
        For a distribution that nothing can be drawn from, or a declaring call anywhere else
        than as the whole right-hand side of an assignment to one name, at the top level or below
        a test of a choice.
    CellError
        For an argument whose value is not known before the run.
    """
    reader = _Reader(source, namespace)
    found: list[Declaration] = []
    calls: set[int] = set()
    waiting = dict(known)

    def declare(statement: ast.stmt, region: Region) -> dict[str, str]:
        call = reader.declaring_call(statement)
        if call is None:
            # The trial's value stands in the place of a first assignment.
            name = assigned_name(statement)
            return {name: waiting.pop(name)} if name in waiting else {}
        assert isinstance(statement, Assignment)
        calls.add(id(call))
        name = assigned_name(statement)
        if name is None:
            raise SpaceError(
                f"{source.where(statement.lineno)}: {ast.unparse(statement)!r} declares a "
                f"hyper-parameter for several targets; assign it to one name",
                line=statement.lineno,
            )
        read, objects = reader.read(name, call, statement)
        where = f"in {source.where(statement.lineno)}"
        key = parameters.declare(name, read, where, region, objects)
        found.append(Declaration(key, statement))
        return {name: key}

    literals = single_assignments(source.tree)
    branches = Branches(source, namespace, literals, parameters, reader.declares, declare)
    branches.read(source.tree.body, known)
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
        self._literals = single_assignments(source.tree)

    def declares(self, node: ast.AST) -> bool:
        """Whether a piece of the cell declares anything."""
        return any(isinstance(each, ast.Call) and self._function(each) for each in ast.walk(node))

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
    ) -> tuple[Distribution, tuple[Any, ...]]:
        """What a call declares, and the values themselves that a test can be asked of."""
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
        if function != "choice":
            return found, finite_values(found)
        return found, tuple(map(dist.plain_scalar, dist.choice_values(args)))

    def refuse_elsewhere(self, accepted: set[int]) -> None:
        """A declaring call inside other code would silently stay at its default."""
        for node in ast.walk(self._source.tree):
            if isinstance(node, ast.Call) and id(node) not in accepted and self._function(node):
                raise SpaceError(
                    f"{self._source.where(node.lineno)}: {ast.unparse(node)} is not searched here; "
                    f"assign it to a name of its own at the top level of the cell or below an if "
                    f"on a choice, e.g. x = {ast.unparse(node)}",
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


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class _Unmade:
    """Stands for an object that only a rank makes; shown by its source text."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> NoReturn:
        raise UnknownValueError("it is made on a rank only")

    def __bool__(self) -> NoReturn:
        raise UnknownValueError("it is made on a rank only")


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


def single_assignments(tree: ast.Module) -> dict[str, ast.expr]:
    """Names that the cell binds once, by a top-level assignment."""
    bound = [name for name, _ in bound_names(tree.body)]
    found: dict[str, ast.expr] = {}
    for statement in tree.body:
        name = assigned_name(statement)
        value = getattr(statement, "value", None)
        if name is not None and value is not None and bound.count(name) == 1:
            found[name] = value
    return found
