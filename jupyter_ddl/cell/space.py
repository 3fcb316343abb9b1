"""The search space of a cell: declarations, ``--space`` and ``--grid`` put together.

A parameter that the cell assigns at its top level gets a placeholder there, so that its value
stands where the user wrote it; any other is put into the namespace before the cell runs.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from jupyter_ddl import dist
from jupyter_ddl.cell.names import IN_CELL_NAMES, bound_names
from jupyter_ddl.cell.source import CellSource
from jupyter_ddl.errors import CellError, SpaceError
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.protocol.program import Placeholder
from jupyter_ddl.protocol.space import (
    Choice,
    Distribution,
    ParamValue,
    RandInt,
    Space,
    Uniform,
    n_grid_points,
    validate_distribution,
)

__all__ = [
    "MAX_GRID_POINTS",
    "CellSpace",
    "Declaration",
    "UnknownValueError",
    "assigned_name",
    "check_grid",
    "evaluate",
    "find_declarations",
    "is_finite",
    "read_space",
]


# Values of the arguments of ``loguniform(…)`` and its kin, before any rank runs.
#
# Literals are read; names come from the notebook or from a literal assignment in the cell; of calls
# only those are made that are pure arithmetic (``range``, ``numpy.logspace`` …).

_PURE_BUILTINS: dict[str, Any] = {
    function.__name__: function
    for function in (abs, float, int, len, list, max, min, pow, range, round, sorted, str, sum)
} | {"tuple": tuple, "True": True, "False": False, "None": None}
_PURE_MODULES = frozenset({"math", "numpy"})
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
    return function.attr in ("keys", "values", "items", "tolist", "split", "copy")


# Hyper-parameters that a cell declares: ``lr = loguniform(1e-4, 1e-1)`` at its top level.


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


MAX_GRID_POINTS = 1_000_000

Grid = Sequence[tuple[str, tuple[ParamValue, ...]]]


@dataclass(frozen=True, slots=True)
class CellSpace:
    """What a search varies, and where in the cell.

    Attributes
    ----------
    space : dict of Distribution
        By name, declarations first.
    placeholders : tuple of Placeholder
        Statements whose right-hand side a trial's value replaces.
    injected : tuple of str
        Names that the cell does not assign: they are bound before it runs.
    replaced : tuple of ast.expr
        Right-hand sides that no rank evaluates.
    labels : dict
        Parameters of ``--space`` whose values are objects, with their labels.
    grid_only : bool
        Every parameter comes from ``--grid``.
    """

    space: Space
    placeholders: tuple[Placeholder, ...] = ()
    injected: tuple[str, ...] = ()
    replaced: tuple[ast.expr, ...] = ()
    labels: dict[str, tuple[ParamValue, ...]] = field(default_factory=dict)
    grid_only: bool = False


def read_space(
    source: CellSource,
    namespace: Mapping[str, Any],
    space_name: str | None = None,
    grid: Grid = (),
) -> CellSpace:
    """All hyper-parameters of a search.

    Parameters
    ----------
    space_name
        Notebook name of a dict of distributions (``--space``).
    grid
        Names with values (``--grid``).

    Raises
    ------
    SpaceError
        No hyper-parameter, one declared twice, or one that nothing can be drawn from.
    CellError
        ``--space`` is not a dict, or a declaration's argument is not known before the run.
    """
    space: Space = {}
    origins: dict[str, str] = {}
    placeholders: list[Placeholder] = []
    replaced: list[ast.expr] = []

    def add(name: str, found: Distribution, origin: str) -> None:
        if name in space:
            raise SpaceError(
                f"hyper-parameter {name!r} is declared twice: {origins[name]} and {origin}; "
                f"keep one of them",
                name=name,
            )
        space[name] = found
        origins[name] = origin

    for declaration in find_declarations(source, namespace):
        statement = declaration.statement
        add(declaration.name, declaration.dist, f"in {source.where(statement.lineno)}")
        placeholders.append(_hole(declaration.name, declaration.dist, statement))
        if statement.value is not None and not placeholders[-1].by_index:
            replaced.append(statement.value)
    from_space = _space_dict(space_name, namespace) if space_name else {}
    for name, found in from_space.items():
        add(name, found, f"in --space {space_name}")
    for name, values in grid:
        add(name, dist.build("choice", f"--grid {name}", values, {}), f"by --grid {name}=…")
    if not space:
        raise _empty(source)
    injected: list[str] = []
    for name in (*from_space, *(name for name, _ in grid)):
        place = _first_assignment(source, name)
        if place is None:
            injected.append(name)
        else:
            placeholders.append(Placeholder(name, place.lineno, place.col_offset))
            if place.value is not None:
                replaced.append(place.value)
    return CellSpace(
        space=space,
        placeholders=tuple(
            sorted(placeholders, key=lambda placeholder: (placeholder.line, placeholder.column))
        ),
        injected=tuple(injected),
        replaced=tuple(replaced),
        labels={
            name: found.values
            for name, found in from_space.items()
            if isinstance(found, Choice) and found.by_index
        },
        grid_only=len(space) == len(grid),
    )


def is_finite(space: Space) -> bool:
    """Whether every parameter has finitely many values."""
    return all(not isinstance(found, Uniform) or found.step is not None for found in space.values())


def check_grid(space: Space) -> int:
    """Number of points of a grid.

    Raises
    ------
    SpaceError
        For a continuous parameter, or more than :data:`MAX_GRID_POINTS` points; the message
        shows the size and each parameter's share.
    """
    n_points = n_grid_points(space)
    if n_points > MAX_GRID_POINTS:
        shares = " × ".join(
            f"{n_grid_points({name: found}):,} {name}" for name, found in space.items()
        )
        raise SpaceError(
            f"the grid has {n_points:,} points ({shares}), more than {MAX_GRID_POINTS:,}; give "
            f"fewer values or use --sampler random --trials N",
            n_points=n_points,
        )
    return n_points


def _hole(name: str, found: Distribution, statement: ast.stmt) -> Placeholder:
    by_index = isinstance(found, Choice) and found.by_index
    labels = found.values if isinstance(found, Choice) and by_index else ()
    return Placeholder(
        name, statement.lineno, statement.col_offset, by_index=by_index, labels=labels
    )


def _empty(source: CellSource) -> SpaceError:
    return SpaceError(
        f"{source.filename} has no hyper-parameter to search; declare one at the top level, e.g. "
        f"lr = loguniform(1e-4, 1e-1), or pass --grid lr=0.1,0.01"
    )


def _first_assignment(source: CellSource, name: str) -> ast.Assign | ast.AnnAssign | None:
    for statement in source.tree.body:
        if assigned_name(statement) == name:
            assert isinstance(statement, ast.Assign | ast.AnnAssign)
            return statement
        for bound, line in bound_names([statement]):
            if bound == name:
                raise SpaceError(
                    f"{source.where(line)}: hyper-parameter {name!r} is bound by "
                    f"{ast.unparse(statement).splitlines()[0]!r}, where no value can be put in; "
                    f"write {name} = … on its own at the top level, or leave it out",
                    line=line,
                )
    return None


def _space_dict(space_name: str, namespace: Mapping[str, Any]) -> Space:
    if space_name not in namespace:
        raise CellError(
            f"--space {space_name}: the notebook has no such name"
            f"{did_you_mean(space_name, namespace)}"
        )
    value = namespace[space_name]
    if not isinstance(value, Mapping):
        raise CellError(
            f"--space {space_name} is a {type(value).__name__}; expected a dict such as "
            f"{{'lr': jupyter_ddl.dist.loguniform(1e-4, 1e-1)}}"
        )
    found: Space = {}
    for name, item in value.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise CellError(f"--space {space_name}: key {name!r} is not a Python name")
        found[name] = _distribution(f"--space {space_name}: {name}", item)
    return found


def _distribution(where: str, value: Any) -> Distribution:
    if isinstance(value, Uniform | RandInt | Choice):
        validate_distribution(where, value)
        if isinstance(value, Choice) and value.by_index:
            raise CellError(
                f"{where} chooses between objects, which jupyter_ddl.dist.choice keeps by name "
                f"only; give a plain list of them"
            )
        return value
    if isinstance(value, list | tuple):
        return dist.build("choice", where, tuple(value) if len(value) != 1 else (value,), {})
    if isinstance(value, range) and value.step > 0 and len(value):
        keywords = {"step": value.step}
        return dist.build("randint", where, (value.start, value[-1]), keywords)
    kind = type(value)
    if kind.__module__.partition(".")[0] == "optuna":
        return _from_optuna(where, kind.__name__, value)
    raise CellError(
        f"{where} is {dist.label_of(value)!r}; in a dict write jupyter_ddl.dist.loguniform(…), "
        f"uniform(…), randint(…), choice(…) or a list of values"
    )


def _from_optuna(where: str, kind: str, value: Any) -> Distribution:
    if kind == "CategoricalDistribution":
        return dist.build("choice", where, tuple(value.choices), {})
    if kind == "IntDistribution":
        keywords = {"log": value.log, "step": value.step}
        return dist.build("randint", where, (value.low, value.high), keywords)
    if kind == "FloatDistribution":
        function = "loguniform" if value.log else "uniform"
        keywords = {} if value.log else {"step": value.step}
        return dist.build(function, where, (value.low, value.high), keywords)
    raise CellError(
        f"{where} is an Optuna {kind}; expected Float-, Int- or CategoricalDistribution"
    )
