"""The dict of ``--space``: distributions by name, and dicts of them where a choice has branches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from jupyter_ddl import dist
from jupyter_ddl.cell.branches import finite_values
from jupyter_ddl.cell.regions import ALWAYS, Parameters, Region
from jupyter_ddl.errors import CellError
from jupyter_ddl.nearest import did_you_mean
from jupyter_ddl.protocol.space import (
    Choice,
    Distribution,
    ParamValue,
    RandInt,
    Uniform,
    validate_distribution,
    variable_of,
)

__all__ = ["Item", "read_space_dict"]


@dataclass(frozen=True, slots=True)
class Item:
    """One parameter of the dict.

    Attributes
    ----------
    key : str
        Of the parameter among :class:`~jupyter_ddl.cell.regions.Parameters`.
    path : tuple
        The keys that lead to its values.
    """

    key: str
    path: tuple[ParamValue, ...]


def read_space_dict(
    space_name: str, namespace: Mapping[str, Any], parameters: Parameters
) -> tuple[Item, ...]:
    """Add what a notebook's dict holds to ``parameters``; returns where each of them stands.

    A dict in the place of a distribution is a choice of its keys, and what is below a key exists
    in trials that choose it.

    Raises
    ------
    CellError
        It is not a dict of distributions.
    SpaceError
        A distribution that nothing can be drawn from, or a name that exists already.
    """
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
    items: list[Item] = []
    _read(value, f"--space {space_name}", (), ALWAYS, parameters, items)
    return tuple(items)


def _read(
    level: Mapping[Any, Any],
    where: str,
    path: tuple[ParamValue, ...],
    region: Region,
    parameters: Parameters,
    items: list[Item],
) -> None:
    for name, value in level.items():
        if not isinstance(name, str) or not variable_of(name).isidentifier():
            raise CellError(f"{where}: key {name!r} is not a Python name")
        here = f"{where}: {name}"
        if not isinstance(value, Mapping):
            found = _distribution(here, value)
            inside = parameters.both(region, found.when or ALWAYS)
            found = msgspec.structs.replace(found, when=())
            objects = tuple(value) if isinstance(value, list | tuple) else finite_values(found)
            key = parameters.declare(name, found, f"in {where}", inside, objects)
            items.append(Item(key, (*path, name)))
            continue
        found = dist.build("choice", here, tuple(value) if len(value) > 1 else ([*value],), {})
        key = parameters.declare(name, found, f"in {where}", region, finite_values(found))
        items.append(Item(key, (*path, name)))
        for branch, below in value.items():
            if not isinstance(below, Mapping):
                raise CellError(
                    f"{here} is a dict, and so a choice of its keys; {branch!r} has "
                    f"{dist.label_of(below)}, expected a dict of what that branch searches, "
                    f"{{}} for nothing"
                )
            inside = parameters.one_of(key, [branch])
            _read(below, f"{here} = {branch}", (*path, name, branch), inside, parameters, items)


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
