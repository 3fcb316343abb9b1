"""Keeps Dask from unpickling what comes from elsewhere.

Dask's messages may hold pickles, and whoever unpickles runs what their sender likes.  A controller
whose scheduler and workers are elsewhere has nothing to unpickle: what it asks for comes as plain
numbers, text and bytes.  What else comes is read as if each of its classes were
:class:`Stranger`, so that it shows in a message and does nothing.

What would raise in the middle of Dask's own reading would cut the connection that all workers
share; a :class:`Stranger` does not.
"""

from __future__ import annotations

import builtins
import io
import pickle
from types import SimpleNamespace
from typing import Any

import distributed.client
import distributed.protocol.pickle

from jupyter_ddl import errors

__all__ = ["Stranger", "loads", "unpickle_nothing"]

_PLAIN = frozenset(
    {"bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list"}
    | {"memoryview", "set", "str", "tuple"}
)
"""What values are made of; Dask also looks up how to read a value by its type."""


class Stranger(Exception):
    """Stands for an object that nobody here has asked for."""

    def __init__(self, *args: Any, **_: Any) -> None:
        super().__init__(*args)

    def __setstate__(self, state: Any) -> None:
        """Takes nothing."""

    # A pickle may also fill what it has made.
    def append(self, item: Any) -> None: ...
    def extend(self, items: Any) -> None: ...
    def add(self, item: Any) -> None: ...
    def __setitem__(self, key: Any, value: Any) -> None: ...


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "builtins" and name in _PLAIN:
            return getattr(builtins, name)
        if module in ("builtins", "jupyter_ddl.errors"):
            found = getattr(builtins if module == "builtins" else errors, name, None)
            if isinstance(found, type) and issubclass(found, Exception):
                return found
        if (module, name) == ("jupyter_ddl.errors", "_rebuild"):
            return _error
        if module == "tblib.pickling_support":
            return _error_with_attributes if name.endswith("_with_attrs") else _error_of_tblib
        return type(f"{module}.{name}"[:200].replace("\x00", ""), (Stranger,), {})

    def persistent_load(self, pid: Any) -> Any:
        return Stranger(pid)


# How errors are made anew: ours, and those of Dask, which come with their tracebacks.


def _error(kind: Any, message: Any, fields: Any) -> Any:
    is_ours = isinstance(kind, type) and issubclass(kind, errors.JupyterDDLError)
    return kind(message, **fields) if is_ours else Stranger(message)


def _error_of_tblib(kind: Any, args: Any, *_: Any) -> Any:
    """Without its traceback; for a traceback alone: nothing."""
    is_error = kind is _error or (isinstance(kind, type) and issubclass(kind, Exception))
    return kind(*args) if is_error else None


def _error_with_attributes(kind: Any, attributes: Any, *_: Any) -> Any:
    args = attributes.get("args", ()) if isinstance(attributes, dict) else ()
    return _error_of_tblib(kind, args) or Stranger("what can't be read")


def loads(data: Any, *, buffers: Any = ()) -> Any:
    """What a pickle says, with strangers in place of all but plain values; raises nothing."""
    try:
        return _Unpickler(io.BytesIO(data), buffers=buffers).load()
    except Exception as error:  # noqa: BLE001 - whatever a hostile pickle can make go wrong
        return Stranger(f"what can't be read ({type(error).__name__})")


def unpickle_nothing() -> None:
    """From now on, for the rest of this process.

    Raises
    ------
    RuntimeError
        This Dask keeps its ways to unpickle elsewhere; a test tells first.
    """
    places = (distributed.protocol.pickle, distributed.client)
    if not all(hasattr(place, "loads") for place in places):
        raise RuntimeError(f"Dask {distributed.__version__} unpickles elsewhere than it did")
    for place in places:
        place.loads = loads
    # Its client unpickles workers' warnings with Python's own.
    distributed.client.pickle = SimpleNamespace(loads=loads, dumps=pickle.dumps)
