"""Free names held against the notebook: what travels, what a rank provides, what is missing."""

from __future__ import annotations

import ast
import builtins
import contextlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from jupyter_ddl.cell.source import CellSource
from jupyter_ddl.errors import CellError
from jupyter_ddl.nearest import did_you_mean

__all__ = [
    "IN_CELL_NAMES",
    "CellNames",
    "Read",
    "bound_names",
    "catches",
    "check_defined",
    "check_undebugged",
    "global_reads",
    "names_to_capture",
    "read_names",
]


# The free names of a cell: what it reads before it has bound it.
#
# The walk follows the order of execution.  It is conservative: a name that the cell binds only on
# some paths, or reads before it binds it, is free, so that the notebook's value travels.

# Which names a piece of code reads from the module's namespace: Python's scope rules on an AST.
#
# Functions, classes, lambdas and comprehensions are followed; what they bind themselves stays
# theirs.

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
    elif isinstance(node, ast.Call):
        for child in ast.iter_child_nodes(node):
            yield from _visit(child, here)
        for name in _names_in_text(node):
            if not here.sees(name):  # it may be looked up elsewhere, so it may be missing
                yield Read(name, node.lineno, here.deferred, soft=True)
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


def _names_in_text(call: ast.Call) -> set[str]:
    """What ``exec("…")`` reads, and what a table's ``query("x > @low")`` does."""
    text = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    if not isinstance(text, str):
        return set()
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("query", "eval"):
        return set(re.findall(r"@([^\W\d]\w*)", text))
    if isinstance(call.func, ast.Name) and call.func.id in ("exec", "eval"):
        with contextlib.suppress(SyntaxError, ValueError):
            return {read.name for read in global_reads(ast.parse(text.strip()).body)}
    return set()


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
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield name, child


_OPAQUE_CALLS = frozenset({"exec", "globals", "locals"})


@dataclass(slots=True)
class CellNames:
    """Names of a cell.

    Attributes
    ----------
    free : dict of Read
        Names that the cell may read before it has bound them, with the first place.
    bound : dict of int
        Names that the cell binds in its own namespace on some path, with the first line.
    opaque : bool
        ``exec``, ``globals()`` or ``import *``: which names exist cannot be told.
    """

    free: dict[str, Read] = field(default_factory=dict)
    bound: dict[str, int] = field(default_factory=dict)
    opaque: bool = False


def read_names(tree: ast.Module, skipped: Iterable[ast.AST] = ()) -> CellNames:
    """Free and bound names of a cell.

    Parameters
    ----------
    tree
        The cell.
    skipped
        Right-hand sides that are never evaluated, because a trial's value replaces them.

    Raises
    ------
    CellError
        It is nested more deeply than it can be read.
    """
    try:
        walk = _Walk(tree, frozenset(id(node) for node in skipped))
        walk.block(tree.body)
        walk.resolve_uncalled()
    except RecursionError:
        raise CellError(
            "the cell is nested too deeply to be read, or has an expression of too many terms; "
            "split it into several statements"
        ) from None
    return walk.names


class _Walk:
    """Statements of the cell in order of execution, with the names bound so far on every path."""

    def __init__(self, tree: ast.Module, skipped: frozenset[int]) -> None:
        self.names = CellNames()
        for name, line in bound_names(tree.body):
            self.names.bound.setdefault(name, line)
        for node in ast.walk(tree):
            if isinstance(node, ast.Global):
                for name in node.names:
                    self.names.bound.setdefault(name, node.lineno)
            elif _hides_names(node):
                self.names.opaque = True
        self._bound: set[str] = set()
        self._skipped = skipped
        self._soft = False
        self._lazy_annotations = sys.version_info >= (3, 14) or any(
            isinstance(node, ast.ImportFrom)
            and node.module == "__future__"
            and any(alias.name == "annotations" for alias in node.names)
            for node in tree.body
        )
        # What functions and classes of the cell will read when they are called.
        self._deferred: dict[str, list[Read]] = {}
        self._resolving: set[str] = set()

    def block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def resolve_uncalled(self) -> None:
        for name in list(self._deferred):
            self._resolve(name)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._definition(node)
        elif isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            self._loop(node)
        elif isinstance(node, ast.With | ast.AsyncWith):
            self._with(node)
        elif isinstance(node, ast.Try | ast.TryStar):
            self._try(node)
        elif isinstance(node, ast.Match):
            self._match(node)
        elif isinstance(node, ast.AnnAssign) and node.value is None:
            self._read(node.annotation)
        elif isinstance(node, ast.Delete):
            self._read(node)
            self._bound -= {name.id for name in node.targets if isinstance(name, ast.Name)}
        elif isinstance(node, ast.Assign | ast.AnnAssign) and id(node.value) in self._skipped:
            if isinstance(node, ast.AnnAssign):
                self._read(node.annotation)
            self._bind(node)
        else:
            self._read(node)
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
                self._bind(*(node.targets if isinstance(node, ast.Assign) else [node.target]))
            elif isinstance(node, ast.Import | ast.ImportFrom) or hasattr(node, "type_params"):
                self._bind(node)

    def _read(self, *nodes: ast.AST) -> None:
        for read in global_reads(nodes, soft=self._soft, lazy_annotations=self._lazy_annotations):
            self._read_name(read)

    def _read_name(self, read: Read) -> None:
        self._resolve(read.name)
        if read.name in self._bound:
            return
        known = self.names.free.get(read.name)
        if known is None or (known.soft and not read.soft):
            self.names.free[read.name] = read

    def _resolve(self, name: str) -> None:
        """A function is used here: what its body reads is read now at the earliest."""
        if name in self._resolving:
            return
        self._resolving.add(name)
        for read in self._deferred.get(name, ()):
            self._read_name(read)
        self._resolving.discard(name)

    def _bind(self, *nodes: ast.AST) -> None:
        self._bound.update(name for name, _ in bound_names(nodes))

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        later = self._deferred.setdefault(node.name, [])
        for read in global_reads([node], soft=self._soft, lazy_annotations=self._lazy_annotations):
            if read.deferred:
                later.append(read)
            else:
                self._read_name(read)
        self._bound.add(node.name)
        if node.decorator_list:  # a decorator may call what it decorates
            self._resolve(node.name)

    def _if(self, node: ast.If) -> None:
        self._read(node.test)
        before = set(self._bound)
        self.block(node.body)
        after_body = self._bound
        self._bound = before
        self.block(node.orelse)
        if not _leaves(node.body):
            self._bound = after_body if _leaves(node.orelse) else self._bound & after_body

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        self._read(node.test if isinstance(node, ast.While) else node.iter)
        before = set(self._bound)  # the body may run no time at all
        if not isinstance(node, ast.While):
            self._read(node.target)
            self._bind(node.target)
        self.block(node.body)
        self._bound = set(before)
        self.block(node.orelse)
        self._bound = before

    def _with(self, node: ast.With | ast.AsyncWith) -> None:
        before = set(self._bound)
        swallows = False
        for item in node.items:
            self._read(item.context_expr)
            swallows = swallows or "suppress" in ast.unparse(item.context_expr)
            if item.optional_vars is not None:
                self._read(item.optional_vars)
                self._bind(item.optional_vars)
        self.block(node.body)
        if swallows:
            self._bound = before

    def _try(self, node: ast.Try | ast.TryStar) -> None:
        before, was_soft = set(self._bound), self._soft
        self._soft = was_soft or catches(node, "NameError")
        self.block(node.body)
        self._soft = was_soft
        self.block(node.orelse)
        ways = [self._bound]
        for handler in node.handlers:
            self._bound = set(before)
            if handler.type is not None:
                self._read(handler.type)
            if handler.name:
                self._bound.add(handler.name)
            self.block(handler.body)
            if handler.name:
                self._bound.discard(handler.name)
            if not _leaves(handler.body):
                ways.append(self._bound)
        self._bound = set(before)
        self.block(node.finalbody)
        self._bound |= set.intersection(*ways)

    def _match(self, node: ast.Match) -> None:
        self._read(node.subject)
        before = set(self._bound)
        for case in node.cases:
            self._bound = set(before)
            self._read(case.pattern)
            self._bind(case.pattern)
            if case.guard is not None:
                self._read(case.guard)
            self.block(case.body)
        self._bound = before


def _hides_names(node: ast.AST) -> bool:
    """Whether names may come and go here that no reading of the code can tell."""
    if isinstance(node, ast.ImportFrom):
        return node.names[0].name == "*"
    return isinstance(node, ast.Name) and node.id in _OPAQUE_CALLS


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether a block never goes on to the statement behind it."""
    return bool(body) and isinstance(body[-1], ast.Raise)


IN_CELL_NAMES = frozenset({
    "report", "checkpoint", "resume", "rank", "world_size", "local_rank", "device", "device_mesh",
    "prepare", "prepare_step", "log", "uniform", "loguniform", "randint", "choice", "display",
    "get_ipython", "jupyter_ddl",
})  # fmt: skip
"""What every rank provides, whether or not the cell imports it."""

_MODULE_NAMES = frozenset({
    "__name__", "__doc__", "__builtins__", "__spec__", "__package__", "__loader__",
    "__annotations__", "__ddl_params__",
})  # fmt: skip
_SHELLS = frozenset({"IPython", "ipykernel", "jupyter_ddl"})
_BREAKPOINTS = frozenset({"breakpoint", "pdb.set_trace", "ipdb.set_trace"})
# IPython puts its own versions of these into the notebook's namespace.
_SHELL_NAMES = frozenset({"exit", "quit", "open"})


def names_to_capture(
    names: CellNames, namespace: Mapping[str, Any], excluded: Iterable[str] = ()
) -> tuple[str, ...]:
    """Free names that the notebook has and a rank does not provide, in alphabetical order."""
    left_out = set(excluded)
    return tuple(
        sorted(
            name
            for name in names.free
            if name in namespace and name not in left_out and not _is_provided(name, namespace)
        )
    )


def check_defined(
    source: CellSource, names: CellNames, namespace: Mapping[str, Any], known: Iterable[str] = ()
) -> None:
    """Refuse names that exist neither in the notebook nor in the cell.

    Parameters
    ----------
    known
        Further names that a rank will have (hyper-parameters, a map's element).

    Raises
    ------
    CellError
        Names the first one, its line and the nearest name (fields ``name``, ``line``), asks for
        input or for a debugger.
    """
    line = _asks_for_input(source)
    if line and "input" in names.free and "input" not in {*namespace, *known}:
        raise CellError(
            f"{source.where(line)}: input() has nobody to ask on a rank; ask in an earlier cell, "
            f"and use the variable here",
            name="input",
            line=line,
        )
    check_undebugged(source)
    if names.opaque:
        return
    there = {*namespace, *names.bound, *known, *IN_CELL_NAMES, *_MODULE_NAMES, *dir(builtins)}
    missing = [read for read in names.free.values() if not read.soft and read.name not in there]
    if not missing:
        return
    first = min(missing, key=lambda read: read.line)
    others = sorted({read.name for read in missing} - {first.name})
    more = f" (nor are {', '.join(others[:5])})" if others else ""
    hint = did_you_mean(first.name, {name for name in there if not name.startswith("_")})
    raise CellError(
        f"{source.where(first.line)}: name {first.name!r} is not defined in the notebook or the "
        f"cell{more}{hint}",
        name=first.name,
        line=first.line,
    )


def _asks_for_input(source: CellSource) -> int | None:
    """The first line that calls ``input`` on every path."""
    for statement in source.tree.body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "input":
                return node.lineno
    return None


def check_undebugged(source: CellSource) -> None:
    """Refuse a breakpoint that the cell runs into.

    Raises
    ------
    CellError
        Names it and its line (fields ``name``, ``line``).
    """
    if os.environ.get("PYTHONBREAKPOINT") == "0":
        return
    for node in _outside_branches(source.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _BREAKPOINTS:
            name = f"{ast.unparse(node.func)}()"
            raise CellError(
                f"{source.where(node.lineno)}: {name} has nobody to talk to on a rank; print or "
                f"report there what you want to see, or run the cell here, without its first line",
                name=name,
                line=node.lineno,
            )


def _outside_branches(tree: ast.AST) -> Iterator[ast.AST]:
    """What runs with the cell itself, whatever its conditions are."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, (*_SCOPES, ast.If, ast.IfExp, ast.Match, ast.ExceptHandler)):
            yield node
            yield from _outside_branches(node)


def _is_provided(name: str, namespace: Mapping[str, Any]) -> bool:
    if name in _MODULE_NAMES:
        return True
    value = namespace[name]
    if name in _SHELL_NAMES:
        # IPython hides the builtins of some of these while it runs cells.
        plain = getattr(value, "__wrapped__", value)
        return plain is vars(builtins).get(name, _SHELLS) or _owner(value) in _SHELLS
    return name in IN_CELL_NAMES and _owner(value) in _SHELLS


def _owner(value: Any) -> str:
    """Top-level package that a value, or else its class, comes from."""
    for each in (getattr(value, "__module__", None), getattr(value, "__name__", None)):
        top = each.partition(".")[0] if isinstance(each, str) else ""
        if top in _SHELLS:
            return top
    return type(value).__module__.partition(".")[0]
