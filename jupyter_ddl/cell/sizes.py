"""Sizes as a person reads them, and the refusal of captures that are too large."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from jupyter_ddl.errors import CaptureError

__all__ = ["size_text", "too_large"]

_LISTED = 5


def size_text(n_bytes: int) -> str:
    """``1.5 GB``, in powers of 1000."""
    size = float(n_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


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
        f"{name} {'> ' if name == stopped else ''}{size_text(known[name])}" for name in largest
    )
    return CaptureError(
        f"the values that the cell uses are too large to send, by {stopped!r} (limit "
        f"{size_text(in_band)} of objects, {size_text(total)} with arrays); largest: {listed}; "
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
