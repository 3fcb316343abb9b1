"""Exceptions that arrive in another process as they were raised.

Pickle makes an exception anew by calling its class with ``args``, which many classes can't be
called with: they take keyword-only arguments, or make their message of what they are given.  Such
an exception travels as its class, ``args`` and attributes, and no ``__init__`` is called.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import cloudpickle

__all__ = ["pickled", "reduce_exception"]


def pickled(value: Any) -> bytes:
    """The stream of a value, by cloudpickle, with exceptions as :func:`reduce_exception` has it."""
    stream = io.BytesIO()
    _Pickler(stream, protocol=5).dump(value)
    return stream.getvalue()


def reduce_exception(value: Any) -> Any:
    """How an exception is pickled; None where pickle's own way is right, or for other values.

    Arguments that can't be pickled arrive as their ``repr``, attributes that can't be are left out.
    """
    if not isinstance(value, BaseException) or _arrives(value):
        return None
    args = tuple(each if _is_picklable(each) else repr(each) for each in value.args)
    kept = {n: v for n, v in vars(value).items() if v is not value and _is_picklable(v)}
    return _made_anew, (type(value), args), kept or None


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def reducer_override(self, obj: Any) -> Any:
        return reduce_exception(obj) or super().reducer_override(obj)


def _arrives(error: BaseException) -> bool:
    """Whether pickle's own way gives the same exception."""
    try:
        copy = pickle.loads(cloudpickle.dumps(error, protocol=5))
        is_same = type(copy) is type(error) and vars(copy).keys() == vars(error).keys()
        return is_same and (str(copy), repr(copy.args)) == (str(error), repr(error.args))
    except Exception:  # noqa: BLE001 - pickling runs code of the class's own
        return False


def _is_picklable(value: Any) -> bool:
    try:
        pickle.loads(pickled(value))
    except Exception:  # noqa: BLE001 - the same
        return False
    return True


def _made_anew(kind: type[BaseException], args: tuple[Any, ...]) -> BaseException:
    # Python's own keep what they are made of elsewhere than in ``args``, too.
    error = kind(*args) if kind.__module__ == "builtins" else kind.__new__(kind, *args)
    error.args = args
    return error
