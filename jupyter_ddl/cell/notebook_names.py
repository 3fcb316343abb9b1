"""Free names held against the notebook: what travels, what a rank provides, what is missing."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_ddl.cell.names import CellNames
from jupyter_ddl.cell.source import CellSource
from jupyter_ddl.errors import CellError
from jupyter_ddl.nearest import did_you_mean

__all__ = ["IN_CELL_NAMES", "check_defined", "names_to_capture"]

IN_CELL_NAMES = frozenset({
    "report", "checkpoint", "resume", "rank", "world_size", "local_rank", "device", "prepare",
    "log", "uniform", "loguniform", "randint", "choice", "display", "get_ipython", "jupyter_ddl",
})  # fmt: skip
"""What every rank provides, whether or not the cell imports it."""

_MODULE_NAMES = frozenset({
    "__name__", "__doc__", "__builtins__", "__spec__", "__package__", "__loader__",
    "__annotations__",
})  # fmt: skip
_SHELLS = frozenset({"IPython", "ipykernel", "jupyter_ddl"})
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
        Names the first one, its line and the nearest name (fields ``name``, ``line``).
    """
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


def _is_provided(name: str, namespace: Mapping[str, Any]) -> bool:
    if name in _MODULE_NAMES:
        return True
    value = namespace[name]
    if name in _SHELL_NAMES:
        wrapped = getattr(value, "__wrapped__", None)
        return wrapped is getattr(builtins, name) or _owner(value) in _SHELLS
    return name in IN_CELL_NAMES and _owner(value) in _SHELLS


def _owner(value: Any) -> str:
    """Top-level package that a value, or else its class, comes from."""
    for each in (getattr(value, "__module__", None), getattr(value, "__name__", None)):
        top = each.partition(".")[0] if isinstance(each, str) else ""
        if top in _SHELLS:
            return top
    return type(value).__module__.partition(".")[0]
