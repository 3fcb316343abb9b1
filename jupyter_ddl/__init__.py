"""Scale a notebook cell by changing only its first line.

Importing this loads nothing else: every public name is fetched when it is first used.  Type
checkers and editors read the names from ``__init__.pyi``.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would be most of this module's cost
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

# `map` and `train` are public, and not here: a star import must not replace Python's own, nor a
# function of the notebook's.
__all__ = [
    "Cluster",
    "RankGroup",
    "Run",
    "Sampler",
    "__version__",
    "attach_cluster",
    "checkpoint",
    "choice",
    "connect_cluster",
    "device",
    "device_mesh",
    "dist",
    "list_clusters",
    "load_ipython_extension",
    "local_rank",
    "log",
    "loguniform",
    "open_group",
    "prepare",
    "prepare_step",
    "randint",
    "rank",
    "replay",
    "report",
    "resume",
    "runs",
    "search",
    "start_cluster",
    "uniform",
    "world_size",
]

_INCELL = "jupyter_ddl.ranks.incell"

_CLUSTERS = "jupyter_ddl.client.clusters"

_EXPORTS: dict[str, tuple[str, str | None]] = {
    "Cluster": (_CLUSTERS, "Cluster"),
    "RankGroup": ("jupyter_ddl.client.group", "RankGroup"),
    "Run": ("jupyter_ddl.client.run", "Run"),
    "Sampler": ("jupyter_ddl.protocol.sampling", "Sampler"),
    "attach_cluster": (_CLUSTERS, "attach_cluster"),
    "checkpoint": (_INCELL, "checkpoint"),
    "choice": (_INCELL, "choice"),
    "client": ("jupyter_ddl.client", None),
    "connect_cluster": (_CLUSTERS, "connect_cluster"),
    "device": (_INCELL, "device"),
    "device_mesh": (_INCELL, "device_mesh"),
    "dist": ("jupyter_ddl.dist", None),
    "fit": ("jupyter_ddl.sklearn_fit.fit_api", "fit"),
    "list_clusters": (_CLUSTERS, "list_clusters"),
    "local_rank": (_INCELL, "local_rank"),
    "log": (_INCELL, "log"),
    "loguniform": (_INCELL, "loguniform"),
    "map": ("jupyter_ddl.client.api", "map_cell"),
    "open_group": ("jupyter_ddl.client.group", "open_group"),
    "prepare": (_INCELL, "prepare"),
    "prepare_step": (_INCELL, "prepare_step"),
    "randint": (_INCELL, "randint"),
    "rank": (_INCELL, "rank"),
    "replay": ("jupyter_ddl.recording.show", "replay"),
    "report": (_INCELL, "report"),
    "resume": (_INCELL, "resume"),
    "runs": ("jupyter_ddl.client.history", "list_runs"),
    "search": ("jupyter_ddl.client.api", "search"),
    "start_cluster": (_CLUSTERS, "start_cluster"),
    "train": ("jupyter_ddl.client.api", "train"),
    "uniform": (_INCELL, "uniform"),
    "world_size": (_INCELL, "world_size"),
}
"""Where each name lives: module, and attribute (None: the module itself)."""


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
    return sorted({*globals(), *_EXPORTS})


def load_ipython_extension(ipython: Any) -> None:
    """``%load_ext jupyter_ddl``: register the magics."""
    import importlib

    importlib.import_module("jupyter_ddl.magics").load(ipython)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Where the Jupyter server finds its part of this package."""
    import importlib

    name = "jupyter_ddl.server.extension"
    return [{"module": name, "app": importlib.import_module(name).ServerExtension}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """For ``jupyter labextension develop``: the bundle in a checkout."""
    return [{"src": "labextension", "dest": "jupyter_ddl"}]
