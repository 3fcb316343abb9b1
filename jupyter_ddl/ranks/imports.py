"""Does something to a module as soon as it is imported, and to functions wherever they are."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["after_import", "note_names", "replace_everywhere"]

_Function = Callable[..., Any]
_noted: dict[_Function, list[dict[str, Any]]] = {}
_n_noted = 0
"""Of the modules there are, in the order of their imports, those that were looked through."""


def note_names(functions: Iterable[_Function]) -> None:
    """Look once where these functions have been imported to.

    A zygote does it for its ranks: thousands of modules are not in a forked process's own memory,
    and to touch each of them costs a rank more than the rest of its start.
    """
    global _n_noted
    modules = list(sys.modules.values())
    _noted.clear()
    _noted.update({function: _names_of(function, modules) for function in functions})
    _n_noted = len(modules)


def replace_everywhere(original: _Function, replacement: _Function) -> None:
    """In all modules that there are: it may have been imported from its own."""
    noted = _noted.get(original)
    if noted is None:
        found = _names_of(original, list(sys.modules.values()))
    else:
        n_later = max(0, len(sys.modules) - _n_noted)
        later = list(itertools.islice(reversed(sys.modules.values()), n_later))
        found = [*noted, *_names_of(original, later)]
        # What is replaced once more, as in a rank that turns out to belong to a group, is there.
        _noted[replacement] = found
    for names in found:
        names[original.__name__] = replacement


def _names_of(function: _Function, modules: Iterable[Any]) -> list[dict[str, Any]]:
    """Of the modules that have it under its own name."""
    every = (getattr(module, "__dict__", {}) for module in modules)
    return [names for names in every if names.get(function.__name__) is function]


def after_import(name: str, act: Callable[[], None]) -> None:
    """Call ``act`` once module ``name`` is there: now, or right after its first import.

    Of several calls for one module, the first is served first.
    """
    if name in sys.modules:
        act()
        return
    # One finder for each name: two would ask each other, and a missing module cost 2**n questions.
    for finder in sys.meta_path:
        if isinstance(finder, _After) and finder.name == name:
            finder.acts.append(act)
            return
    sys.meta_path.insert(0, _After(name, act))


class _After(MetaPathFinder):
    """Finds nothing itself: what the finders behind it find is followed by ``acts``."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.name = name
        self.acts = [act]

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.name or self not in sys.meta_path:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(name, path, target)
            if spec is not None:
                break
        else:
            return None
        loader: Any = spec.loader
        if not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def execute_and_act(module: ModuleType) -> None:
            execute(module)
            # Not before: many only ask whether a library is there, and import it later.
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                for act in self.acts:
                    act()

        loader.exec_module = execute_and_act
        return spec
