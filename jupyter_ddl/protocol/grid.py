"""The points of a finite space: how many there are, and the n-th of them, without listing any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from jupyter_ddl.protocol.space import (
    Distribution,
    OneOf,
    ParamValue,
    grid_value,
    is_active,
    n_values,
)

__all__ = ["Grid", "n_grid_points"]

_Decided: TypeAlias = dict[str, ParamValue]
"""Values of parameters that conditions name, as far as they are chosen."""


class Grid:
    """All combinations of the values of active parameters, the last one changing fastest.

    Raises
    ------
    SpaceError
        A parameter has infinitely many values.
    """

    def __init__(self, space: Mapping[str, Distribution]) -> None:
        self._axes = tuple((name, dist, n_values(name, dist)) for name, dist in space.items())
        self._parts: dict[str, set[OneOf]] = {}
        for dist in space.values():
            for part in (part for alternative in dist.when for part in alternative):
                self._parts.setdefault(part.name, set()).add(part)
        self._counted: dict[tuple[int, frozenset[tuple[str, OneOf | None]]], int] = {}
        self.n_points = self._count(0, {})

    def point(self, number: int) -> dict[str, ParamValue]:
        """The combination of this number, from 0."""
        found: dict[str, ParamValue] = {}
        decided: _Decided = {}
        for at, (name, dist, n) in enumerate(self._axes):
            if not is_active(dist.when, decided):
                continue
            if name not in self._parts:
                index, number = divmod(number, self._count(at + 1, decided))
                found[name] = grid_value(dist, index)
                continue
            for index in range(n):
                found[name] = decided[name] = grid_value(dist, index)
                n_below = self._count(at + 1, decided)
                if number < n_below:
                    break
                number -= n_below
        return found

    def _count(self, at: int, decided: _Decided) -> int:
        """Combinations of the parameters from ``at`` on."""
        # Only what conditions can see matters: values that satisfy the same parts count alike.
        known = (self._satisfied(name, value) for name, value in decided.items())
        key = at, frozenset(pair for pairs in known for pair in pairs)
        if key not in self._counted:
            self._counted[key] = self._count_anew(at, decided)
        return self._counted[key]

    def _count_anew(self, at: int, decided: _Decided) -> int:
        total = 1
        for below, (name, dist, n) in enumerate(self._axes[at:], at + 1):
            if not is_active(dist.when, decided):
                continue
            if name in self._parts:
                values = (grid_value(dist, index) for index in range(n))
                return total * sum(self._count(below, {**decided, name: value}) for value in values)
            total *= n
        return total

    def _satisfied(self, name: str, value: ParamValue) -> frozenset[tuple[str, OneOf | None]]:
        held = frozenset((name, part) for part in self._parts[name] if value in part.values)
        return held or frozenset({(name, None)})


def n_grid_points(space: Mapping[str, Distribution]) -> int:
    """Number of combinations of a finite space; raises as :class:`Grid` does."""
    return Grid(space).n_points
