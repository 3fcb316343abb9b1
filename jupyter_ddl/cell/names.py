"""The free names of a cell: what it reads before it has bound it.

The walk follows the order of execution.  It is conservative: a name that the cell binds only on
some paths, or reads before it binds it, is free, so that the notebook's value travels.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from jupyter_ddl.cell.scopes import Read, bound_names, catches, global_reads

__all__ = ["CellNames", "read_names"]

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
    """
    walk = _Walk(tree, frozenset(id(node) for node in skipped))
    walk.block(tree.body)
    walk.resolve_uncalled()
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
