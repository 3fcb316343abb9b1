"""Hyper-parameters of an objective that was written for Optuna: ``trial.suggest_float("lr", …)``.

Trials are proposed before they run, so the calls are read from the function's source.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from jupyter_ddl import dist
from jupyter_ddl.cell.branches import Branches, finite_values
from jupyter_ddl.cell.declarations import assigned_name, single_assignments
from jupyter_ddl.cell.regions import Parameters, Region
from jupyter_ddl.cell.source import CellSource
from jupyter_ddl.cell.values import UnknownValueError, evaluate
from jupyter_ddl.errors import SpaceError
from jupyter_ddl.protocol.space import Choice, Distribution, Space

__all__ = ["read_suggestions"]

_NOT_ALWAYS = (
    ast.For, ast.AsyncFor, ast.While, ast.If, ast.Match, ast.Try, ast.FunctionDef,
    ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.IfExp, ast.BoolOp, ast.ListComp,
    ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
"""Code that may run not at all, or more than once."""


def read_suggestions(function: Callable[..., Any], trial: str) -> Space:
    """What an objective asks its argument ``trial`` for, with the branch in which it does.

    Raises
    ------
    SpaceError
        The source is not at hand, or asks for nothing, or in a way that can't be known before.
    """
    name = getattr(function, "__name__", "objective")
    tree = _body_of(function, name)
    source = CellSource("", tree, f"{name}()")
    reader = _Reader(source, function, trial)
    parameters = Parameters()
    branches = Branches(
        source,
        reader.namespace,
        reader.literals,
        parameters,
        reader.declares,
        lambda statement, region: reader.declare(statement, region, parameters),
    )
    branches.read(tree.body)
    space = parameters.space()
    if not space:
        raise SpaceError(
            f"{name}() asks {trial} for nothing; call {trial}.suggest_float('lr', 1e-4, 1e-1), or "
            f"pass space={{'lr': dist.loguniform(1e-4, 1e-1)}}"
        )
    # The objective has the choices themselves: their labels are enough.
    return {
        key: msgspec.structs.replace(found, by_index=False) if isinstance(found, Choice) else found
        for key, found in space.items()
    }


def _body_of(function: Callable[..., Any], name: str) -> ast.Module:
    try:
        lines, first = inspect.getsourcelines(function)
        found = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError):
        found, first = None, 1
    if not isinstance(found, ast.FunctionDef):
        raise SpaceError(
            f"the source of {name} is not available, so what it asks its trial for is not known; "
            f"write it as a def, or pass space={{'lr': dist.loguniform(1e-4, 1e-1)}}"
        )
    ast.increment_lineno(found, first - 1)
    return ast.Module(found.body, [])


class _Reader:
    def __init__(self, source: CellSource, function: Callable[..., Any], trial: str) -> None:
        self._source = source
        self._trial = trial
        bound = inspect.getclosurevars(function)
        self.namespace: Mapping[str, Any] = {
            **getattr(function, "__globals__", {}),
            **bound.nonlocals,
        }
        self.literals = single_assignments(source.tree)

    def declares(self, node: ast.AST) -> bool:
        return any(self._kind(each) for each in ast.walk(node))

    def declare(
        self, statement: ast.stmt, region: Region, parameters: Parameters
    ) -> dict[str, str]:
        found: dict[str, str] = {}
        for call in self._calls(statement):
            where = f"in {self._source.where(call.lineno)}"
            name, read, objects = self._read(call)
            key = parameters.declare(name, read, where, region, objects)
            variable = assigned_name(statement)
            if variable is not None and getattr(statement, "value", None) is call:
                found[variable] = key
        return found

    def _calls(self, node: ast.AST) -> Iterator[ast.Call]:
        if isinstance(node, _NOT_ALWAYS):
            inside = next((each for each in ast.walk(node) if self._kind(each)), None)
            if isinstance(inside, ast.Call):
                raise SpaceError(
                    f"{self._source.where(inside.lineno)}: {ast.unparse(inside)} is not searched "
                    f"here: it may run not at all or more than once; call it at the top level of "
                    f"the function or below an if on a categorical one",
                    line=inside.lineno,
                )
            return
        if self._kind(node):
            assert isinstance(node, ast.Call)
            yield node
            return
        for child in ast.iter_child_nodes(node):
            yield from self._calls(child)

    def _kind(self, node: ast.AST) -> str:
        """``float``, ``int`` or ``categorical`` of ``trial.suggest_…(…)``; else nothing."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            return ""
        owner = node.func.value
        is_trial = isinstance(owner, ast.Name) and owner.id == self._trial
        return (
            node.func.attr.removeprefix("suggest_") if is_trial and node.func.attr in _READ else ""
        )

    def _read(self, call: ast.Call) -> tuple[str, Distribution, tuple[Any, ...]]:
        where = f"{self._source.where(call.lineno)}: {ast.unparse(call)}"
        try:
            args = [evaluate(each, self.namespace, self.literals) for each in call.args]
            keywords = {
                str(each.arg): evaluate(each.value, self.namespace, self.literals)
                for each in call.keywords
            }
        except UnknownValueError as error:
            raise SpaceError(
                f"{where} is not known before the run: {error}", line=call.lineno
            ) from None
        try:
            name, function, args, keywords = _READ[f"suggest_{self._kind(call)}"](*args, **keywords)
        except TypeError as error:
            raise SpaceError(f"{where}: {error}", line=call.lineno) from None
        if not (isinstance(name, str) and name.isidentifier()):
            raise SpaceError(f"{where}: {name!r} is not a Python name", line=call.lineno)
        found = dist.build(function, where, args, keywords)
        if function == "choice":
            return name, found, dist.choice_values(args)
        return name, found, finite_values(found)


_Read = tuple[Any, str, list[Any], dict[str, Any]]


def _float(name: Any, low: Any, high: Any, *, step: Any = None, log: Any = False) -> _Read:
    return name, "loguniform" if log else "uniform", [low, high], {} if log else {"step": step}


def _int(name: Any, low: Any, high: Any, step: Any = 1, log: Any = False) -> _Read:
    return name, "randint", [low, high], {"step": step, "log": log}


def _categorical(name: Any, choices: Any) -> _Read:
    return name, "choice", [list(choices)], {}


_READ: dict[str, Callable[..., _Read]] = {
    "suggest_float": _float,
    "suggest_int": _int,
    "suggest_categorical": _categorical,
}
