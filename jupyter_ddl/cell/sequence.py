"""The sequence that a map goes over, as a list."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from jupyter_ddl.errors import CaptureError, CellError
from jupyter_ddl.nearest import did_you_mean

__all__ = ["read_items"]


def read_items(over: str, namespace: Mapping[str, Any]) -> list[Any]:
    """Elements of the mapped sequence.

    Parameters
    ----------
    over
        Its name in the notebook.

    Raises
    ------
    CellError
        It is missing, empty or unsized, or reading it would use it up.
    CaptureError
        Its own code raised.
    """
    if over not in namespace:
        hint = did_you_mean(over, namespace)
        raise CellError(f"--over {over}: the notebook has no such name{hint}", name=over)
    value = namespace[over]
    kind = type(value).__name__
    if hasattr(value, "__next__"):
        raise CellError(
            f"--over {over} is a {kind}, which one pass would use up; "
            f"make a list first: {over} = list({over})"
        )
    if kind == "DataFrame":
        raise CellError(
            f"--over {over} is a DataFrame, whose elements are its column names; "
            f"map over {over}.to_dict('records') or a list of parts"
        )
    try:
        n_items = len(value)
    except TypeError:
        raise CellError(
            f"--over {over} is a {kind} without a length; expected a list or another sequence"
        ) from None
    if n_items == 0:
        raise CellError(f"--over {over} is empty, there is nothing to map over")
    try:
        # One more than it promises: an iteration that never ends must not hang here.
        items = list(itertools.islice(iter(value), n_items + 1))
    except Exception as error:  # iterating runs the value's own code
        raise CaptureError(
            f"--over {over}: reading its elements failed: {type(error).__name__}: {error}"
        ) from error
    if len(items) != n_items:
        raise CellError(
            f"--over {over} has length {n_items} but yields "
            f"{'more' if len(items) > n_items else len(items)} elements; pass a list"
        )
    return items
