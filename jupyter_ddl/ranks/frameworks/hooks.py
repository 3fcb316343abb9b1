"""Attaches to a framework when it is imported in a rank; none is imported for it.

Most libraries are there already: the zygote has imported what cells name.  Others come with the
cell, some late (``transformers`` imports its ``Trainer`` when that is asked for), so imports are
looked at as they happen.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from jupyter_ddl.ranks.imports import after_import

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

_attached = False
_problems: list[str] = []


def attach_to_frameworks() -> None:
    """Attach to the frameworks that are imported, and to others as soon as they are."""
    global _attached
    if not _attached:
        _attached = True
        for name in FRAMEWORKS:
            after_import(name, partial(_attach, name))


def take_problems() -> list[str]:
    """What could not be attached to since the last call, a sentence each."""
    found, _problems[:] = _problems.copy(), []
    return found


def _attach(name: str) -> None:
    try:
        attach: Callable[[Any], None] = importlib.import_module(
            f"{_HERE}.{FRAMEWORKS[name]}"
        ).attach
        attach(sys.modules[name])
    except Exception as error:  # noqa: BLE001 - any version of a framework
        top = name.partition(".")[0]
        version = getattr(sys.modules.get(top), "__version__", "of an unknown version")
        _problems.append(
            f"{top} {version} does not report by itself ({type(error).__name__}: {error}); call "
            f"report(…) in the cell, or install a version that the page on frameworks names"
        )
