"""Attaches to a framework when it is imported in a rank; none is imported for it.

Most libraries are there already: the zygote has imported what cells name.  Others come with the
cell, some late (``transformers`` imports its ``Trainer`` when that is asked for), so imports are
looked at as they happen.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["FRAMEWORKS", "LIBRARIES", "attach_to_frameworks", "take_problems"]

_HERE = __name__.rpartition(".")[0]
FRAMEWORKS = {
    "accelerate.accelerator": "accelerate",
    "keras": "keras",
    "lightgbm": "lightgbm",
    "lightning.fabric": "fabric",
    "lightning.pytorch": "lightning",
    "lightning_fabric": "fabric",
    "pytorch_lightning": "lightning",
    "transformers.trainer": "transformers",
    "xgboost": "xgboost",
}
"""The module that has what we attach to, and ours whose ``attach`` takes it."""

LIBRARIES = frozenset(name.partition(".")[0] for name in FRAMEWORKS)

_problems: list[str] = []


def attach_to_frameworks() -> None:
    """Attach to the frameworks that are imported, and to others as soon as they are."""
    if any(isinstance(each, _Finder) for each in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name in FRAMEWORKS:
        module = sys.modules.get(name)
        if module is not None:
            _attach(name, module)


def take_problems() -> list[str]:
    """What could not be attached to since the last call, a sentence each."""
    found, _problems[:] = _problems.copy(), []
    return found


def _attach(name: str, module: ModuleType) -> None:
    try:
        attach: Callable[[Any], None] = importlib.import_module(
            f"{_HERE}.{FRAMEWORKS[name]}"
        ).attach
        attach(module)
    except Exception as error:  # noqa: BLE001 - any version of a framework
        top = name.partition(".")[0]
        version = getattr(sys.modules.get(top), "__version__", "of an unknown version")
        _problems.append(
            f"{top} {version} does not report by itself ({type(error).__name__}: {error}); call "
            f"report(…) in the cell, or install a version that the page on frameworks names"
        )


class _Finder:
    """Finds the frameworks' modules as the finders behind it do, and adds to their loading."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in FRAMEWORKS:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if finder is self or find is None else find(name, path)
            if spec is not None:
                break
        else:
            return None
        loader: Any = spec.loader
        if loader is not None and hasattr(loader, "exec_module"):
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _attach(name, module)

            loader.exec_module = exec_module
        return spec
