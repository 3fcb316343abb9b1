"""Backends by name: ours, and any package's through the entry point ``jupyter_ddl.backends``."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

from jupyter_ddl.backends.base import Backend
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.cluster import ClusterSpec

__all__ = ["backend_names", "check_name", "make_backend"]

_EXTRAS = {"gateway": "jupyter_ddl[gateway]", "kube": "jupyter_ddl[kubernetes]"}
_GROUP = "jupyter_ddl.backends"


def backend_names() -> list[str]:
    """Names that ``%cluster start NAME`` accepts, without importing any backend."""
    return sorted({entry.name for entry in entry_points(group=_GROUP)})


def make_backend(spec: ClusterSpec) -> Backend:
    """The backend that ``spec.backend`` names, not started.

    Raises
    ------
    ClusterError
        No such backend (the message gives the nearest name), or one whose packages are missing.
    """
    for entry in entry_points(group=_GROUP):
        if entry.name == spec.backend:
            backend: Backend = _load(entry)(spec)
            return backend
    check_name(spec.backend)
    raise ClusterError(f"cluster backend {spec.backend!r} is gone")  # uninstalled just now


def check_name(backend: str) -> None:
    """Refuse a backend that nobody provides, without importing any.

    Raises
    ------
    ClusterError
        Gives the nearest name.
    """
    known = backend_names()
    if backend in known:
        return
    near = difflib.get_close_matches(backend, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    raise ClusterError(f"there is no cluster backend {backend!r}; {hint}")


def _load(entry: EntryPoint) -> Callable[[ClusterSpec], Backend]:
    try:
        factory: Callable[[ClusterSpec], Backend] = entry.load()
    except ModuleNotFoundError as error:
        what = _EXTRAS.get(entry.name, str(error.name))
        raise ClusterError(
            f"cluster backend {entry.name!r} needs the package {error.name}, which is not there; "
            f"`pip install '{what}'` where the notebook runs"
        ) from None
    return factory
