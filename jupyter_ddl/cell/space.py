"""The search space of a cell: declarations, ``--space`` and ``--grid`` put together.

A parameter that the cell assigns at its top level gets a hole there, so that its value stands
where the user wrote it; any other is put into the namespace before the cell runs.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyter_ddl import dist
from jupyter_ddl.cell.declarations import assigned_name, find_declarations
from jupyter_ddl.cell.nearest import did_you_mean
from jupyter_ddl.cell.scopes import bound_names
from jupyter_ddl.cell.source import CellSource
from jupyter_ddl.errors import CellError, SpaceError
from jupyter_ddl.spec.program import Hole
from jupyter_ddl.spec.space import (
    Choice,
    Distribution,
    ParamValue,
    RandInt,
    Space,
    Uniform,
    n_grid_points,
    validate_distribution,
)

__all__ = ["MAX_GRID_POINTS", "CellSpace", "check_grid", "is_finite", "read_space"]

MAX_GRID_POINTS = 1_000_000

Grid = Sequence[tuple[str, tuple[ParamValue, ...]]]


@dataclass(frozen=True, slots=True)
class CellSpace:
    """What a search varies, and where in the cell.

    Attributes
    ----------
    space : dict of Distribution
        By name, declarations first.
    holes : tuple of Hole
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
    holes: tuple[Hole, ...] = ()
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
    holes: list[Hole] = []
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
        holes.append(_hole(declaration.name, declaration.dist, statement))
        if statement.value is not None and not holes[-1].by_index:
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
            holes.append(Hole(name, place.lineno, place.col_offset))
            if place.value is not None:
                replaced.append(place.value)
    return CellSpace(
        space=space,
        holes=tuple(sorted(holes, key=lambda hole: (hole.line, hole.column))),
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


def _hole(name: str, found: Distribution, statement: ast.stmt) -> Hole:
    by_index = isinstance(found, Choice) and found.by_index
    labels = found.values if isinstance(found, Choice) and by_index else ()
    return Hole(name, statement.lineno, statement.col_offset, by_index=by_index, labels=labels)


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
