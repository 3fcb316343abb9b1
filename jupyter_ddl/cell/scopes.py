"""Which names a piece of code reads from the module's namespace: Python's scope rules on an AST.

Functions, classes, lambdas and comprehensions are followed; what they bind themselves stays theirs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

__all__ = ["Read", "bound_names", "catches", "global_reads"]

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, *_COMPREHENSIONS)


class Read(NamedTuple):
    """One read of a name that no inner scope binds."""

    name: str
    line: int
    deferred: bool = False
    """In a function's body: read when it is called, not where it is defined."""
    soft: bool = False
    """A missing name is handled (``except NameError``) or not evaluated at all."""


class _Here(NamedTuple):
    """What is visible at a place, besides the module's names."""

    local: frozenset[str] = frozenset()
    """Bound by enclosing functions: visible to inner functions too."""
    own: frozenset[str] = frozenset()
    """Bound by the class body at hand: not visible to its methods."""
    deferred: bool = False
    soft: bool = False
    lazy_annotations: bool = False

    def sees(self, name: str) -> bool:
        return name in self.local or name in self.own


def global_reads(
    nodes: Iterable[ast.AST], *, soft: bool = False, lazy_annotations: bool = False
) -> Iterator[Read]:
    """Reads of module names in ``nodes``, in the order of the text.

    Parameters
    ----------
    nodes
        Statements or expressions of the module's own scope.
    soft
        Mark all of them as soft.
    lazy_annotations
        Annotations are not evaluated (``from __future__ import annotations``).
    """
    here = _Here(soft=soft, lazy_annotations=lazy_annotations)
    for node in nodes:
        yield from _visit(node, here)


def bound_names(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    """Names with lines that ``nodes`` bind in their own scope."""
    for node in nodes:
        yield from _bound_by(node)


def catches(node: ast.Try | ast.TryStar, *names: str) -> bool:
    """Whether a ``try`` has a handler for one of these exceptions (or for all)."""
    wanted = {*names, "Exception", "BaseException"}
    for handler in node.handlers:
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if any(kind is None or getattr(kind, "id", None) in wanted for kind in kinds):
            return True
    return False


def _visit(node: ast.AST, here: _Here) -> Iterator[Read]:
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load | ast.Del) and not here.sees(node.id):
            yield Read(node.id, node.lineno, here.deferred, here.soft)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        yield from _visit_function(node, here)
    elif isinstance(node, ast.ClassDef):
        yield from _visit_class(node, here)
    elif isinstance(node, _COMPREHENSIONS):
        targets = frozenset(
            name for generator in node.generators for name, _ in _bound_by(generator.target)
        )
        # The first iterable is evaluated outside, where the targets are not bound.
        yield from _visit(node.generators[0].iter, here)
        inner = here._replace(local=here.local | targets)
        for child in ast.iter_child_nodes(node):
            if child is node.generators[0]:
                for condition in node.generators[0].ifs:
                    yield from _visit(condition, inner)
            else:
                yield from _visit(child, inner)
    elif isinstance(node, ast.Try | ast.TryStar):
        inner = here._replace(soft=here.soft or catches(node, "NameError"))
        for field, child in _children(node):
            yield from _visit(child, inner if field == "body" else here)
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        if not here.sees(node.target.id):
            yield Read(node.target.id, node.lineno, here.deferred, here.soft)
        yield from _visit(node.value, here)
    elif isinstance(node, ast.AnnAssign):
        if not here.deferred:  # annotations of local variables are never evaluated
            yield from _visit_annotation(node.annotation, here)
        for part in (node.target, node.value):
            if part is not None:
                yield from _visit(part, here)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _visit(child, here)


def _visit_function(node: _Function, here: _Here) -> Iterator[Read]:
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
    for default in (*arguments.defaults, *arguments.kw_defaults):
        if default is not None:
            yield from _visit(default, here)
    body: list[ast.AST] = []
    type_names: frozenset[str] = frozenset()
    if isinstance(node, ast.Lambda):
        body = [node.body]
    else:
        body = list(node.body)
        type_names = _type_parameters(node)
        outer = here._replace(local=here.local | type_names)
        for decorator in node.decorator_list:
            yield from _visit(decorator, here)
        for annotation in (*(argument.annotation for argument in every), node.returns):
            if annotation is not None:
                yield from _visit_annotation(annotation, outer)
    declared = _declared_global(body)
    own = {argument.arg for argument in every} | {name for name, _ in bound_names(body)}
    local = (here.local | own | type_names | {"__class__"}) - declared
    inner = here._replace(local=frozenset(local), own=frozenset(), deferred=True)
    for child in body:
        yield from _visit(child, inner)


def _visit_class(node: ast.ClassDef, here: _Here) -> Iterator[Read]:
    for decorator in node.decorator_list:
        yield from _visit(decorator, here)
    here = here._replace(local=here.local | _type_parameters(node))
    for part in (*node.bases, *(keyword.value for keyword in node.keywords)):
        yield from _visit(part, here)
    own = frozenset({"__module__", "__qualname__"})
    for statement in node.body:
        yield from _visit(statement, here._replace(own=own))
        # Only what stands above is bound: `lr = lr` in a class reads the module's name.
        own = own | {name for name, _ in _bound_by(statement)}


def _visit_annotation(node: ast.AST, here: _Here) -> Iterator[Read]:
    yield from _visit(node, here._replace(soft=here.soft or here.lazy_annotations))


def _bound_by(node: ast.AST) -> Iterator[tuple[str, int]]:
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name, node.lineno
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            if alias.name != "*":
                yield alias.asname or alias.name.partition(".")[0], node.lineno
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name, node.lineno
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest, node.lineno
    if isinstance(node, _COMPREHENSIONS):
        # Only `:=` reaches out of a comprehension.
        for child in ast.walk(node):
            if isinstance(child, ast.NamedExpr):
                yield child.target.id, child.lineno
    elif not isinstance(node, _SCOPES):
        for child in ast.iter_child_nodes(node):
            yield from _bound_by(child)


def _declared_global(body: Iterable[ast.AST]) -> frozenset[str]:
    found: set[str] = set()
    stack = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Global):
            found.update(node.names)
        if not isinstance(node, _SCOPES):
            stack.extend(ast.iter_child_nodes(node))
    return frozenset(found)


def _type_parameters(node: ast.AST) -> frozenset[str]:
    return frozenset(parameter.name for parameter in getattr(node, "type_params", ()))


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield field, child
