"""Does something to a module as soon as the user's code has imported it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["after_import"]


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
