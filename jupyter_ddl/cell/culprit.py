"""Which part of a value cannot be pickled: ``loader.dataset.lock``, not just ``loader``.

The search goes down into whatever part fails on its own, bounded in depth, number and time.
"""

from __future__ import annotations

import functools
import itertools
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jupyter_ddl.errors import CaptureError

__all__ = ["explain_unpicklable"]

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
