"""Scale a notebook cell by changing only its first line.

Importing this loads nothing else: every public name is fetched when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would be most of this module's cost
if TYPE_CHECKING:
    from typing import Any

    from jupyter_ddl import dist
    from jupyter_ddl.worker.incell import (
        checkpoint,
        choice,
        device,
        local_rank,
        log,
        loguniform,
        prepare,
        randint,
        rank,
        report,
        resume,
        uniform,
        world_size,
    )

__version__ = "0.1.0"

__all__ = [
    "__version__",
    "checkpoint",
    "choice",
    "device",
    "dist",
    "load_ipython_extension",
    "local_rank",
    "log",
    "loguniform",
    "prepare",
    "randint",
    "rank",
    "report",
    "resume",
    "uniform",
    "world_size",
]

_INCELL = "jupyter_ddl.worker.incell"

_EXPORTS: dict[str, tuple[str, str | None]] = {
    "checkpoint": (_INCELL, "checkpoint"),
    "choice": (_INCELL, "choice"),
    "device": (_INCELL, "device"),
    "dist": ("jupyter_ddl.dist", None),
    "local_rank": (_INCELL, "local_rank"),
    "log": (_INCELL, "log"),
    "loguniform": (_INCELL, "loguniform"),
    "prepare": (_INCELL, "prepare"),
    "randint": (_INCELL, "randint"),
    "rank": (_INCELL, "rank"),
    "report": (_INCELL, "report"),
    "resume": (_INCELL, "resume"),
    "uniform": (_INCELL, "uniform"),
    "world_size": (_INCELL, "world_size"),
}
"""Where each name lives: module, and attribute (None: the module itself).

The client's names (``start_cluster``, ``search`` …) are added here together with ``__all__``
and the block for type checkers above.
"""


def __getattr__(name: str) -> Any:
    try:
        module_name, attribute = _EXPORTS[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    import importlib

    module = importlib.import_module(module_name)
    value = module if attribute is None else getattr(module, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext jupyter_ddl``: register the magics."""
    import importlib

    importlib.import_module("jupyter_ddl.magics").load(ipython)
