"""Functions that ``functools`` has made of the notebook's travel by what they are made of.

``pickle`` knows them by their names only, which no rank can import from a notebook.  What they have
memoised stays here: a rank begins with empty caches.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

__all__ = ["is_importable", "reduce_decorated"]

_Cached = type(functools.lru_cache(len))
_a_dispatcher: Any = functools.singledispatch(len)
_SINGLE_DISPATCH: types.CodeType = _a_dispatcher.__code__
_OWN_OF_CACHES = frozenset({"__wrapped__", "cache_parameters"})
_OWN_OF_DISPATCHERS = frozenset({"__wrapped__", "register", "dispatch", "registry", "_clear_cache"})


def reduce_decorated(value: Any) -> Any:
    """How a function of this kind is pickled, or None where pickle's own way is right.

    A reduction whose arguments lead back to the value itself (a memoised function that calls
    itself) is one that pickle can resolve: the notebook's functions exist before their globals.
    """
    if isinstance(value, _Cached):
        if is_importable(value):
            return None
        settings = value.cache_parameters()
        arguments = (value.__wrapped__, settings["maxsize"], settings["typed"])
        return _cached, arguments, _attributes(value, _OWN_OF_CACHES)
    if isinstance(value, functools.cached_property):
        state = {key: part for key, part in vars(value).items() if key != "lock"}
        return _cached_property, (type(value), hasattr(value, "lock")), state
    if isinstance(value, types.FunctionType) and value.__code__ is _SINGLE_DISPATCH:
        if is_importable(value):
            return None
        dispatcher: Any = value
        functions = dict(dispatcher.registry)
        parts = functions, _attributes(value, _OWN_OF_DISPATCHERS)
        return functools.singledispatch, (functions[object],), parts, None, None, _register
    return _reduce_shells(value)


def is_importable(value: Any) -> bool:
    """Whether a module, other than the notebook, has this very object under its own name."""
    name, path = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if name == "__main__" or name not in sys.modules:
        return False
    found: Any = sys.modules[name]
    for part in path.split("."):
        found = getattr(found, part, None)
    return found is value


def _attributes(value: Any, left_out: frozenset[str]) -> dict[str, Any]:
    return {key: part for key, part in vars(value).items() if key not in left_out}


def _cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


def _cached_property(kind: type[Any], has_lock: bool) -> Any:
    made: Any = object.__new__(kind)
    if has_lock:  # before Python 3.12
        made.lock = threading.RLock()
    return made


def _register(dispatcher: Any, state: tuple[dict[type, Any], dict[str, Any]]) -> None:
    functions, attributes = state
    for kind, function in functions.items():
        dispatcher.register(kind, function)
    vars(dispatcher).update(attributes)


# -- names that IPython puts into a notebook, in functions that use them ---------------------------


def _reduce_shells(value: Any) -> Any:
    autocall: Any = sys.modules.get("IPython.core.autocall")
    if autocall is not None and isinstance(value, autocall.ExitAutocall):
        return getattr, (builtins, "exit")
    if isinstance(value, types.MethodType) and value.__name__ == "get_ipython":
        shells: Any = sys.modules.get("IPython.core.interactiveshell")
        if shells is not None and isinstance(value.__self__, shells.InteractiveShell):
            return _of_a_rank, ("get_ipython",)
    return None


def _of_a_rank(name: str) -> Any:
    return getattr(importlib.import_module("jupyter_ddl.ranks.incell"), name)
