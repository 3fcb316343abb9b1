"""Captured values: one cloudpickle stream, with the large buffers beside it by content.

All names go through one pickler, so that a model and its optimizer stay connected.  Functions
of the notebook refer to the namespace they will run in instead of a copy of the notebook's.
"""

from __future__ import annotations

import functools
import importlib
import io
import itertools
import linecache
import pickle
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import psutil

from jupyter_ddl.cell.decorated import reduce_decorated
from jupyter_ddl.cell.source import notebook_cell_of
from jupyter_ddl.cell.tensors import reduce_tensor
from jupyter_ddl.errors import CaptureError
from jupyter_ddl.formats import format_bytes
from jupyter_ddl.protocol.program import MAIN_GLOBALS, CapturedName
from jupyter_ddl.store.blobs import digest_of
from jupyter_ddl.store.code_files import reduce_code
from jupyter_ddl.store.exceptions import reduce_exception
from jupyter_ddl.store.host_limits import host_limits

__all__ = [
    "IN_BAND_LIMIT_BYTES",
    "OUT_OF_BAND_BYTES",
    "Captured",
    "CellPickler",
    "capture",
    "explain_unpicklable",
    "too_large",
]


# The refusal of captures that are too large.

_LISTED = 5


def too_large(
    values: Mapping[str, Any], sizes: Mapping[str, int], in_band: int, total: int
) -> CaptureError:
    """The refusal, with the largest names.

    Parameters
    ----------
    sizes
        Bytes of the names that were pickled; the last one was cut short.
    in_band, total
        The limits, in bytes.
    """
    known = dict(sizes)
    stopped = next(reversed(known))
    for name, value in values.items():
        known[name] = max(known.get(name, 0), _estimate(value))
    largest = sorted(known, key=lambda name: known[name], reverse=True)[:_LISTED]
    listed = ", ".join(
        f"{name} {'> ' if name == stopped else ''}{format_bytes(known[name])}" for name in largest
    )
    return CaptureError(
        f"the values that the cell uses are too large to send, by {stopped!r} (limit "
        f"{format_bytes(in_band)} of objects, {format_bytes(total)} with arrays); "
        f"largest: {listed}; "
        f"load them inside the cell, turn lists into arrays, or raise --capture-limit",
        name=stopped,
        largest=largest,
        sizes=known,
    )


def _estimate(value: Any) -> int:
    """Bytes of a value that was not pickled; a lower bound."""
    n_bytes = getattr(value, "nbytes", None)
    if isinstance(n_bytes, int):
        return n_bytes
    try:
        return sys.getsizeof(value)
    except TypeError:  # an object with a broken __sizeof__
        return 0


# Which part of a value cannot be pickled: ``loader.dataset.lock``, not just ``loader``.
#
# The search goes down into whatever part fails on its own, bounded in depth, number and time.

_MAX_DEPTH = 12
_MAX_TRIES = 400
_MAX_PARTS = 200
_MAX_SECONDS = 2.0

_ADVICE = (
    (("lock", "RLock", "Condition", "Event", "Semaphore", "Thread"), "create it inside the cell"),
    (("generator", "async_generator", "coroutine", "map", "filter", "zip"), "turn it into a list"),
    (("TextIOWrapper", "BufferedReader", "BufferedWriter", "socket"), "open it inside the cell"),
    (("Connection", "Cursor", "Engine", "Session"), "connect inside the cell"),
)


def explain_unpicklable(
    name: str,
    value: Any,
    error: Exception,
    namespace: Mapping[str, Any],
    pickler: Callable[..., Any],
) -> CaptureError:
    """The refusal of a value, with the path to the part that cannot be pickled.

    Parameters
    ----------
    name, value
        The captured variable.
    error
        What pickling it raised.
    pickler
        Class called with ``(file, namespace, buffer_callback)``.

    Returns
    -------
    CaptureError
        Fields ``name``, ``path`` and ``type_name``.
    """
    search = _Search(namespace, pickler)
    path, culprit, cause = search.descend(name, value) or (name, value, error)
    kind = _kind(culprit)
    cause_text = " ".join(str(cause).split())[:200]
    inside = "" if path == name else f", part of {name!r},"
    return CaptureError(
        f"{path}{inside} is a {kind} and cannot travel to another process ({cause_text}); "
        f"{_advice(culprit)}, or leave {name!r} out of the cell",
        name=name,
        path=path,
        type_name=kind,
    )


class _Search:
    def __init__(self, namespace: Mapping[str, Any], pickler: Callable[..., Any]) -> None:
        self._namespace = namespace
        self._pickler = pickler
        self._seen: dict[int, Any] = {}  # keeps what it has seen alive, so that ids stay unique
        self._n_tries = 0
        self._ends_at = time.monotonic() + _MAX_SECONDS

    def descend(self, path: str, value: Any, depth: int = 0) -> tuple[str, Any, Exception] | None:
        """The deepest failing part, or None when ``value`` fails only through what was seen."""
        failure = self._failure(value)
        if failure is None:
            return None
        self._seen[id(value)] = value
        goes_back = False
        for suffix, part in itertools.islice(_parts(value), _MAX_PARTS):
            if id(part) in self._seen:
                goes_back = True
                continue
            if depth >= _MAX_DEPTH or self._spent():
                break
            found = self.descend(path + suffix, part, depth + 1)
            if found is not None:
                return found
        # A part that fails only because it leads back to its owner is not the culprit.
        if goes_back and depth > 0 and not _names_own_type(value, failure):
            return None
        return path, value, failure

    def _failure(self, value: Any) -> Exception | None:
        if value is None or isinstance(value, bool | int | float | str | bytes | types.ModuleType):
            return None
        self._n_tries += 1
        try:
            self._pickler(_Sink(), self._namespace, lambda _: False).dump(value)
        except Exception as error:  # noqa: BLE001 - pickling runs code of the value's own
            return error
        return None

    def _spent(self) -> bool:
        return self._n_tries >= _MAX_TRIES or time.monotonic() > self._ends_at


class _Sink:
    """Takes a stream and keeps nothing."""

    def write(self, data: Any) -> int:
        return memoryview(data).nbytes


def _names_own_type(value: Any, failure: Exception) -> bool:
    return type(value).__name__ in str(failure)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What a value consists of, with what is written behind the value's path."""
    if isinstance(value, Mapping):
        for key, part in list(value.items()):
            yield f"[{key!r}]", part
            yield f" key {key!r}", key
    elif isinstance(value, list | tuple | set | frozenset):
        for position, part in enumerate(value):
            yield f"[{position}]", part
    elif isinstance(value, types.FunctionType):
        yield from _function_parts(value)
        return
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
        return
    elif isinstance(value, functools.partial):
        yield ".func", value.func
        yield ".args", value.args
        yield ".keywords", value.keywords
        return
    yield from _attributes(value)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    state = _own_state(value)
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
        state = {**(state[0] or {}), **state[1]}  # __dict__ and __slots__
    if isinstance(state, Mapping):
        for key, part in list(state.items()):
            yield f".{key}", part
    elif state is not None:
        yield ".__getstate__()", state


def _own_state(value: Any) -> Any:
    """What pickle would save of an object: the state that its class chooses, or its dict."""
    if isinstance(value, type):
        return {k: v for k, v in vars(value).items() if not k.startswith("__")}
    try:
        return value.__getstate__()
    except Exception:  # noqa: BLE001 - a broken __getstate__ is the user's own code
        return getattr(value, "__dict__", None)


def _function_parts(value: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
        try:
            part = cell.cell_contents
        except ValueError:  # not bound yet
            continue
        yield f" → {variable}", part
    for variable in _globals_used(value.__code__):
        if variable in value.__globals__:
            part = value.__globals__[variable]
            yield f" → {variable}", part
    for default in value.__defaults__ or ():
        yield ".__defaults__", default
    for key, part in vars(value).items():
        yield f".{key}", part


def _globals_used(code: types.CodeType) -> tuple[str, ...]:
    inner = (part for part in code.co_consts if isinstance(part, types.CodeType))
    return (*code.co_names, *(name for each in inner for name in _globals_used(each)))


def _kind(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _advice(value: Any) -> str:
    kind = type(value)
    device = getattr(getattr(value, "device", None), "type", "cpu")
    if isinstance(device, str) and device != "cpu":
        return "move it to the CPU with .cpu() and to device() inside the cell"
    for names, advice in _ADVICE:
        if kind.__name__ in names:
            return advice
    return "create it inside the cell"


OUT_OF_BAND_BYTES = 64 * 1024
"""Buffers from this size on become blobs of their own."""
IN_BAND_LIMIT_BYTES = 64 * 2**20
_MEMORY_SHARE = 0.5
_NAMED_BY_MODULE = (type, types.FunctionType, types.BuiltinFunctionType, type(functools.cache(len)))


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
    sources : dict of str
        Text of the cells that functions come from, by ``In [n]``.
    functions : tuple of types.FunctionType
        Functions that travel by value.
    """

    names: tuple[CapturedName, ...] = ()
    payload: bytes = b""
    digest: str | None = None
    buffers: tuple[tuple[str, memoryview], ...] = ()
    modules: frozenset[str] = frozenset()
    sources: dict[str, str] = field(default_factory=dict)
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
        sources=pickler.sources,
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
        self._namespace = namespace
        self.modules: set[str] = set()
        self.sources: dict[str, str] = {}
        self.functions: list[types.FunctionType] = []

    def persistent_id(self, obj: Any) -> str | None:
        return MAIN_GLOBALS if obj is self._mark else None

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.ModuleType):
            self.modules.add(obj.__name__)
            if type(obj) is not types.ModuleType and sys.modules.get(obj.__name__) is obj:
                return importlib.import_module, (obj.__name__,)  # torch.backends.cudnn is one
        elif isinstance(obj, _NAMED_BY_MODULE):
            module = getattr(obj, "__module__", None)
            if isinstance(module, str):
                self.modules.add(module)
        elif isinstance(obj, types.CodeType):
            return self._reduce_code(obj)
        reduced = reduce_tensor(obj) or reduce_decorated(obj) or reduce_exception(obj)
        if reduced is not None:
            return reduced
        found = super().reducer_override(obj)
        if found is not NotImplemented and isinstance(obj, types.FunctionType):
            self.functions.append(obj)
        return found

    def _reduce_code(self, code: types.CodeType) -> Any:
        """Code of another cell says so in tracebacks, and brings the lines to show."""
        name = notebook_cell_of(code.co_filename, self._namespace)
        if name is not None and name not in self.sources:
            self.sources[name] = "".join(linecache.getlines(code.co_filename))
        return reduce_code(code, name or "")


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
