"""Waits for something to become true, with a deadline and without a fixed sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_S = 0.02


def until(predicate: Callable[[], T], timeout_s: float, what: str = "") -> T:
    """Poll ``predicate`` and return its first true value.

    Raises
    ------
    AssertionError
        ``timeout_s`` passed; shows the last value.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        seen = predicate()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(
                f"{what or 'the condition'} did not come true within {timeout_s:g} s; "
                f"last seen: {seen!r}"
            )
        time.sleep(_POLL_S)
