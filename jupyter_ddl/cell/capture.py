"""Captured values: one cloudpickle stream, with the large buffers beside it by content.

All names go through one pickler, so that a model and its optimizer stay connected.  Functions
of the notebook refer to the namespace they will run in instead of a copy of the notebook's.
"""

from __future__ import annotations

import io
import pickle
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle
import psutil

from jupyter_ddl.cell.culprit import explain_unpicklable
from jupyter_ddl.cell.sizes import too_large
from jupyter_ddl.cell.tensors import reduce_tensor
from jupyter_ddl.spec.program import MAIN_GLOBALS, CapturedName
from jupyter_ddl.store.blobs import digest_of
from jupyter_ddl.store.host_limits import host_limits

__all__ = [
    "IN_BAND_LIMIT_BYTES",
    "OUT_OF_BAND_BYTES",
    "Captured",
    "CellPickler",
    "capture",
]

OUT_OF_BAND_BYTES = 64 * 1024
"""Buffers from this size on become blobs of their own."""
IN_BAND_LIMIT_BYTES = 64 * 10**6
_MEMORY_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Captured:
    """Captured values, ready to be stored.

    Attributes
    ----------
    names : tuple of CapturedName
        In the order of the stream.
    payload : bytes
        ``len(names)`` pickles one after another; empty when nothing is captured.
    digest : str or None
        Of the payload.
    buffers : tuple
        ``(digest, view)`` in the order in which unpickling asks for them; the views are the
        notebook's own memory.
    modules : frozenset of str
        Modules that the values refer to by name.
    functions : tuple of types.FunctionType
        Functions that travel by value.
    """

    names: tuple[CapturedName, ...] = ()
    payload: bytes = b""
    digest: str | None = None
    buffers: tuple[tuple[str, memoryview], ...] = ()
    modules: frozenset[str] = frozenset()
    functions: tuple[types.FunctionType, ...] = ()


def capture(
    values: Mapping[str, Any],
    namespace: Mapping[str, Any],
    limit_bytes: int | None = None,
) -> Captured:
    """Pickle and hash the values that travel with a cell; buffers are never copied.

    Parameters
    ----------
    values
        By name, in the order in which they are to be restored.
    namespace
        The notebook's own globals (the very dict, as functions refer to it).
    limit_bytes
        Most bytes, in and beside the stream; None: 64 MB in it, half of the free memory in all.

    Raises
    ------
    CaptureError
        Unpicklable (field ``path`` leads to the culprit) or over the limit (largest listed).
    """
    if not values:
        return Captured()
    in_band = IN_BAND_LIMIT_BYTES if limit_bytes is None else limit_bytes
    available = min(psutil.virtual_memory().available, host_limits().memory_bytes)
    total = limit_bytes or int(available * _MEMORY_SHARE)
    stream = _Stream(in_band)
    buffers: list[memoryview] = []
    n_buffered = 0

    def keep(buffer: pickle.PickleBuffer) -> bool:
        nonlocal n_buffered
        view = buffer.raw()
        if view.nbytes < OUT_OF_BAND_BYTES:
            return True  # in band
        n_buffered += view.nbytes
        if n_buffered + stream.tell() > total:
            raise _OverLimitError
        buffers.append(view)
        return False

    pickler = CellPickler(stream, namespace, keep)
    sizes: dict[str, int] = {}
    for name, value in values.items():
        before = stream.tell() + n_buffered
        try:
            pickler.dump(value)
        except _OverLimitError:
            sizes[name] = stream.tell() + n_buffered - before
            raise too_large(values, sizes, in_band, total) from None
        except Exception as error:
            culprit = explain_unpicklable(name, value, error, namespace, CellPickler)
            raise culprit from error
        sizes[name] = stream.tell() + n_buffered - before
    payload = stream.getvalue()
    return Captured(
        names=tuple(
            CapturedName(name, _type_name(value), sizes[name]) for name, value in values.items()
        ),
        payload=payload,
        digest=digest_of(payload),
        buffers=tuple((digest_of(view), view) for view in buffers),
        modules=frozenset(pickler.modules),
        functions=tuple(pickler.functions),
    )


class CellPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """cloudpickle that leaves the notebook's globals to the rank.

    Notes
    -----
    ``globals_ref`` maps the id of a function's globals to the dict that its copies will share.
    For the notebook's namespace that dict is a mark, which goes out as a persistent id.  The
    mark must not be empty: cloudpickle would put the module's attributes into it.
    """

    def __init__(
        self,
        file: Any,
        namespace: Mapping[str, Any],
        buffer_callback: Callable[[pickle.PickleBuffer], bool] | None,
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)
        self._mark = {"__name__": "__main__"}
        self.globals_ref[id(namespace)] = self._mark
        main = sys.modules.get("__main__")
        if main is not None:
            self.globals_ref[id(main.__dict__)] = self._mark
        self.modules: set[str] = set()
        self.functions: list[types.FunctionType] = []

    def persistent_id(self, obj: Any) -> str | None:
        return MAIN_GLOBALS if obj is self._mark else None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.ModuleType):
            self.modules.add(obj.__name__)
        elif isinstance(obj, type | types.FunctionType | types.BuiltinFunctionType):
            module = getattr(obj, "__module__", None)
            if isinstance(module, str):
                self.modules.add(module)
        else:
            reduced = reduce_tensor(obj)
            if reduced is not None:
                return reduced
        found = super().reducer_override(obj)
        if found is not NotImplemented and isinstance(obj, types.FunctionType):
            self.functions.append(obj)
        return found


class _OverLimitError(Exception):
    """The values are larger than allowed; pickling stops here."""


class _Stream(io.BytesIO):
    """Refuses to grow over a limit, before the memory is used."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__()
        self._limit_bytes = limit_bytes

    def write(self, data: Any) -> int:
        if self.tell() + memoryview(data).nbytes > self._limit_bytes:
            raise _OverLimitError
        return super().write(data)


def _type_name(value: Any) -> str:
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    return (
        kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"
    )
