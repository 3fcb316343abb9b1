"""The search space of a cell: declarations, ``--space`` and ``--grid`` put together.

A parameter that the cell assigns at its top level gets a placeholder there, so that its value
stands where the user wrote it; any other is put into the namespace before the cell runs.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyter_ddl import dist
from jupyter_ddl.cell.branches import finite_values
from jupyter_ddl.cell.declarations import Assignment, assigned_name, find_declarations
from jupyter_ddl.cell.names import bound_names
from jupyter_ddl.cell.regions import Parameters
from jupyter_ddl.cell.source import CellSource
from jupyter_ddl.cell.space_dict import read_space_dict
from jupyter_ddl.errors import SpaceError
from jupyter_ddl.protocol.grid import n_grid_points
from jupyter_ddl.protocol.program import Labels, Placeholder
from jupyter_ddl.protocol.space import (
    Choice,
    Distribution,
    ParamValue,
    Space,
    Uniform,
    variable_of,
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
        By name, those of ``--space`` and ``--grid`` first: tests in the cell may be about them.
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
    labels: dict[str, Labels] = field(default_factory=dict)
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
    parameters = Parameters()
    items = read_space_dict(space_name, namespace, parameters) if space_name else ()
    known = {parameters[item.key].name: item.key for item in items}
    for name, values in grid:
        found = dist.build("choice", f"--grid {name}", values, {})
        origin = f"by --grid {name}=…"
        known[name] = parameters.declare(name, found, origin, objects=finite_values(found))
    declarations = find_declarations(source, namespace, parameters, known)
    space, names = parameters.space(), parameters.names()
    if not space:
        raise _empty(source)
    placeholders: list[Placeholder] = []
    replaced: list[ast.expr] = []
    for declaration in declarations:
        statement, name = declaration.statement, names[declaration.key]
        placeholders.append(_hole(name, space[name], statement))
        if statement.value is not None and not placeholders[-1].by_index:
            replaced.append(statement.value)
    injected: list[str] = []
    outside = (*(names[item.key] for item in items), *(name for name, _ in grid))
    for name in dict.fromkeys(outside):
        place = _first_assignment(source, variable_of(name))
        if place is None:
            injected.append(variable_of(name))
            continue
        if space[name].when:
            raise SpaceError(
                f"{source.where(place.lineno)}: {ast.unparse(place)!r} assigns a hyper-parameter "
                f"that only some trials have; leave the line out, or declare it in the cell, below "
                f"an if",
                line=place.lineno,
            )
        placeholders.append(Placeholder(name, place.lineno, place.col_offset))
        if place.value is not None:
            replaced.append(place.value)
    return CellSpace(
        space=space,
        placeholders=tuple(
            sorted(placeholders, key=lambda placeholder: (placeholder.line, placeholder.column))
        ),
        injected=tuple(dict.fromkeys(injected)),
        replaced=tuple(replaced),
        labels={
            names[item.key]: Labels(item.path, found.values)
            for item in items
            if isinstance(found := space[names[item.key]], Choice) and found.by_index
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


def _first_assignment(source: CellSource, name: str) -> Assignment | None:
    for statement in source.tree.body:
        if assigned_name(statement) == name:
            assert isinstance(statement, Assignment)
            return statement
        for bound, line in bound_names([statement]):
            if bound == name:
                raise SpaceError(
                    f"{source.where(line)}: hyper-parameter {name!r} is bound by "
                    f"{ast.unparse(statement).splitlines()[0]!r}, where no value can be inserted; "
                    f"write {name} = … on its own at the top level, or leave it out",
                    line=line,
                )
    return None
