"""Functions as searches: what calls them on a rank, in the form in which they were written.

``f(lr=…, width=…)`` takes its hyper-parameters by name, ``f(config)`` as one dict, ``f(trial)``
asks an Optuna trial for them (:mod:`jupyter_ddl.cell.suggestions` reads which).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jupyter_ddl.cell.suggestions import read_suggestions
from jupyter_ddl.errors import OptionError

__all__ = ["Objective", "objective_of"]

_FUNCTION = "objective_function"
_KINDS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Objective(NamedTuple):
    """A function as the source of a cell.

    ``names`` are what the source uses, ``space`` what is searched.
    """

    source: str
    names: dict[str, Any]
    space: Mapping[str, Any]


def objective_of(
    function: Callable[..., Any], space: Mapping[str, Any] | None, metric: str
) -> Objective:
    """A function that returns, or reports, what it is judged by.

    Raises
    ------
    OptionError
        The space is missing.
    SpaceError
        An objective of a trial asks for something that can't be read from its source.
    """
    name = getattr(function, "__name__", "")
    if not name.isidentifier() or name in _names_in(space or {}):
        name = _FUNCTION
    only = _only_parameter(function)
    if space:
        form = "config" if only is not None and only not in _names_in(space) else "keywords"
    elif only is not None:
        form, space = "trial", read_suggestions(function, only)
    else:
        raise OptionError(
            f"search({name}) needs space={{'name': distribution, …}}, unless {name} takes one "
            f"argument, an Optuna trial"
        )
    source = (
        f"from jupyter_ddl.ranks.objectives import by_{form} as _call\n"
        f"{metric} = _call({name}, __ddl_params__, {metric!r})\n"
    )
    return Objective(source, {name: function}, space)


def _only_parameter(function: Callable[..., Any]) -> str | None:
    """The name of the only argument that a call has to have."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return None
    needed = [each for each in parameters if each.kind in _KINDS and each.default is each.empty]
    is_alone = len(needed) == 1 and not any(
        each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in parameters
    )
    return needed[0].name if is_alone else None


def _names_in(space: Mapping[str, Any]) -> set[str]:
    """All names of a space, also those of branches."""
    found = set(space)
    for value in space.values():
        if isinstance(value, Mapping):
            for branch in value.values():
                found |= _names_in(branch) if isinstance(branch, Mapping) else set()
    return found
