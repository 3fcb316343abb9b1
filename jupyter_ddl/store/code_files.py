"""Pickles code with the name of its file, which tracebacks and ``inspect`` go by."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import cloudpickle

__all__ = ["reduce_code"]


def reduce_code(code: types.CodeType, filename: str = "") -> Any:
    """How a pickler reduces code, in cloudpickle's way.

    From 3.1.3 on cloudpickle itself calls every file ``<dynamic-code>``.

    Parameters
    ----------
    filename : str, optional
        What the file is to be called; empty: as it is.
    """
    make, parts = cloudpickle.Pickler.dispatch_table[types.CodeType](code)
    return _make, (make, parts, filename or code.co_filename)


def _make(
    make: Callable[..., types.CodeType], parts: tuple[Any, ...], filename: str
) -> types.CodeType:
    return make(*parts).replace(co_filename=filename)
