"""Which packages a piece of code uses: what it imports, and what that needs in turn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement

from jupyter_ddl.worker.facts import Installed, normal_name, top_levels

__all__ = ["Scope", "distributions_of", "needs_of", "scope_of"]

_REQUIRES = re.compile(r"^Requires-Dist:(.+)$", re.MULTILINE)


class Scope(NamedTuple):
    """Packages that count, by normalised name."""

    direct: frozenset[str]
    """Imported by the code itself."""
    needed: frozenset[str]
    """Those, and all that they require."""


def scope_of(imports: Iterable[str], installed: Mapping[str, Installed]) -> Scope:
    """The packages behind top-level modules.

    Modules that no installed package brings do not count: they travel with the cell.
    """
    return needs_of(distributions_of(imports, installed), installed)


def needs_of(names: Iterable[str], installed: Mapping[str, Installed]) -> Scope:
    """Packages, and all that they require."""
    direct = frozenset(names)
    needed = set(direct)
    waiting = list(direct)
    while waiting:
        name = waiting.pop()
        if name in installed:
            new = _requires(installed[name]) - needed
            needed |= new
            waiting += new
    return Scope(direct, frozenset(needed))


def distributions_of(imports: Iterable[str], installed: Mapping[str, Installed]) -> set[str]:
    """Names of the packages that bring top-level modules."""
    found: set[str] = set()
    unknown = []
    for top in imports:
        name = normal_name(top)
        if name in installed:
            found.add(name)
        else:
            unknown.append(top)
    if unknown:
        # `sklearn` comes from `scikit-learn`: look through all of them, 20 ms the first time.
        for name, each in installed.items():
            if not top_levels(name, each).isdisjoint(unknown):
                found.add(name)
    return found


@cache
def _requires(installed: Installed) -> frozenset[str]:
    """What a package requires here, without extras."""
    directory = Path(installed.directory)
    file = directory / ("METADATA" if directory.suffix == ".dist-info" else "PKG-INFO")
    try:
        head = file.read_text(errors="replace").partition("\n\n")[0]
    except OSError:
        return frozenset()
    found = set()
    for text in _REQUIRES.findall(head):
        try:
            requirement = Requirement(text.strip())
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found.add(normal_name(requirement.name))
    return frozenset(found)
