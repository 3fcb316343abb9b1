"""Where in a space a parameter exists: regions, and the parameters that were declared in them.

A region is written as :data:`~jupyter_ddl.protocol.space.When` is, but for :data:`ALWAYS`, which
is one alternative that asks nothing, and :data:`NEVER`, which has no alternative.  Every
alternative also has the conditions of the parameters that it tests, so regions that have nothing in
common are seen to exclude each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from jupyter_ddl.errors import SpaceError
from jupyter_ddl.protocol.space import (
    Choice,
    Distribution,
    OneOf,
    ParamValue,
    Space,
    When,
    n_values,
    when_text,
)

__all__ = ["ALWAYS", "NEVER", "Parameter", "Parameters", "Region"]

Region: TypeAlias = When
_Box: TypeAlias = tuple[OneOf, ...]

ALWAYS: Region = ((),)
NEVER: Region = ()

_MAX_ALTERNATIVES = 64


def _meet(left: _Box, right: _Box) -> _Box | None:
    parts = {part.name: part for part in left}
    for part in right:
        known = parts.get(part.name, part)
        values = tuple(value for value in known.values if value in part.values)
        if not values:
            return None
        parts[part.name] = OneOf(part.name, values)
    return tuple(parts.values())


def _without_covered(boxes: list[_Box]) -> Region:
    kept: list[_Box] = []
    for at, box in enumerate(boxes):
        others = (*kept, *boxes[at + 1 :])
        if not any(_covers(other, box) for other in others):
            kept.append(box)
    return tuple(kept)


def _covers(large: _Box, small: _Box) -> bool:
    """Whether ``large`` holds wherever ``small`` does."""
    parts = {part.name: part.values for part in small}
    return all(
        part.name in parts and all(value in part.values for value in parts[part.name])
        for part in large
    )


def _check_size(boxes: Iterable[_Box]) -> None:
    if len(tuple(boxes)) > _MAX_ALTERNATIVES:
        raise SpaceError(
            f"the conditions of this space have more than {_MAX_ALTERNATIVES} alternatives; use "
            f"fewer or, and test one choice at a time"
        )


@dataclass(slots=True)
class Parameter:
    """A declared parameter.

    Attributes
    ----------
    key : str
        What regions call it until all are declared.
    name : str
        What it was declared as.
    dist : Distribution
        Without a condition.
    objects : tuple
        The values themselves, as tests see them, in the order of their labels.
    where : str
        Of its first declaration, for messages.
    """

    key: str
    name: str
    dist: Distribution
    region: Region
    objects: tuple[Any, ...]
    where: str


class Parameters:
    """The parameters of a space, in the order in which they are declared."""

    def __init__(self) -> None:
        self._all: dict[str, Parameter] = {}

    def declare(
        self,
        name: str,
        dist: Distribution,
        where: str,
        region: Region = ALWAYS,
        objects: tuple[Any, ...] = (),
    ) -> str:
        """Add a parameter; returns its key.

        A name may be declared again where branches exclude each other.  If both declarations are
        equal, they are one parameter.

        Raises
        ------
        SpaceError
            The name is declared already for trials that are in this region.
        """
        same = [each for each in self._all.values() if each.name == name]
        for each in same:
            if self.both(each.region, region):
                raise SpaceError(
                    f"hyper-parameter {name!r} is declared twice: {each.where} and {where}; "
                    f"keep one of them",
                    name=name,
                )
        for each in same:
            if each.dist == dist and self._stands_before(region, each):
                each.region = self.either(each.region, region)
                return each.key
        key = name if not same else f"{name}\0{len(same)}"
        self._all[key] = Parameter(key, name, dist, region, objects, where)
        return key

    def __getitem__(self, key: str) -> Parameter:
        return self._all[key]

    def both(self, one: Region, other: Region) -> Region:
        """Where both regions are."""
        found: dict[_Box, None] = {}
        order = list(self._all)
        for left in one:
            for right in other:
                box = _meet(left, right)
                if box is not None:
                    found[tuple(sorted(box, key=lambda part: order.index(part.name)))] = None
        _check_size(found)
        return _without_covered(list(found))

    def one_of(self, key: str, values: Iterable[ParamValue]) -> Region:
        """Where a parameter exists and has one of these values."""
        wanted = tuple(values)
        if not wanted:
            return NEVER
        return self._simplified(self.both(self._all[key].region, ((OneOf(key, wanted),),)))

    def either(self, *regions: Region) -> Region:
        """Where one of the regions is."""
        return self._simplified(tuple(box for region in regions for box in region))

    def space(self) -> Space:
        """All of them by their final names, with their conditions."""
        names = self.names()
        return {
            names[each.key]: msgspec.structs.replace(each.dist, when=_named(each.region, names))
            for each in self._all.values()
        }

    def names(self) -> dict[str, str]:
        """Final names by key: what was declared, with the branch where several declare it."""
        found: dict[str, str] = {}
        for each in self._all.values():
            same = [other for other in self._all.values() if other.name == each.name]
            label = f"[{_labels(same)[same.index(each)]}]" if len(same) > 1 else ""
            found[each.key] = each.name + label
        return found

    def _stands_before(self, region: Region, parameter: Parameter) -> bool:
        """Whether a region tests only what is declared before a parameter."""
        order = list(self._all)
        at = order.index(parameter.key)
        return all(order.index(part.name) < at for box in region for part in box)

    def _simplified(self, region: Region) -> Region:
        """The same region with as few alternatives and parts as are easily found."""
        boxes = list(dict.fromkeys(region))
        _check_size(boxes)
        while True:
            joined = self._joined(boxes)
            boxes = [self._without_full(box) for box in (boxes if joined is None else joined)]
            if joined is None:
                return _without_covered(list(dict.fromkeys(boxes)))

    def _joined(self, boxes: list[_Box]) -> list[_Box] | None:
        """The boxes with two of them in one, if they differ in the values of one parameter."""
        for at, left in enumerate(boxes):
            for right in boxes[at + 1 :]:
                one, other = ({part.name: part.values for part in box} for box in (left, right))
                differing = [name for name in one if one[name] != other.get(name)]
                if one.keys() == other.keys() and len(differing) == 1:
                    (name,) = differing
                    values = self._in_order(name, (*one[name], *other[name]))
                    box = tuple(OneOf(name, values) if part.name == name else part for part in left)
                    return [box, *(each for each in boxes if each not in (left, right))]
        return None

    def _in_order(self, key: str, values: tuple[ParamValue, ...]) -> tuple[ParamValue, ...]:
        dist = self._all[key].dist
        if isinstance(dist, Choice):
            return tuple(value for value in dist.values if value in values)
        return tuple(sorted(set(values), key=lambda value: float(value or 0)))

    def _without_full(self, box: _Box) -> _Box:
        """The box without parts that every trial satisfies which satisfies the others."""
        for part in box:
            known = self._all[part.name]
            rest = tuple(other for other in box if other != part)
            is_full = len(part.values) == n_values(known.name, known.dist)
            if is_full and any(_covers(each, rest) for each in known.region):
                return self._without_full(rest)
        return box


def _named(region: Region, names: Mapping[str, str]) -> When:
    if region == ALWAYS:
        return ()
    return tuple(tuple(OneOf(names[part.name], part.values) for part in box) for box in region)


def _labels(same: list[Parameter]) -> list[str]:
    """Texts that tell parameters of one name apart: the values that lead to each."""
    inner = {box[-1].name for each in same for box in each.region}
    last = ["|".join(map(str, each.region[0][-1].values)) for each in same]
    is_one_test = len(inner) == 1 and all(len(each.region) == 1 for each in same)
    if is_one_test and len(set(last)) == len(last):
        return last
    return [when_text(each.region).replace(" = ", "=").replace("\0", "") for each in same]
