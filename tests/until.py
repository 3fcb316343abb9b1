"""Waits for something to become true, with a deadline and without a fixed sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_POLL_S = 0.02
PATIENCE_S = 120.0
"""No test fails because its machine is busy: only one that is dead takes so long."""


def until(predicate: Callable[[], T], timeout_s: float, what: str = "") -> T:
    """Poll ``predicate`` and return its first true value.

    ``timeout_s`` is how long it may take on a quiet machine; a test that wants to know how long
    something took belongs to ``bench/``.

    Raises
    ------
    AssertionError
        It did not come true; shows the last value.
    """
    deadline = time.monotonic() + max(timeout_s, PATIENCE_S)
    while True:
        seen = predicate()
        if seen:
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(
                f"{what or 'the condition'} did not come true (expected within {timeout_s:g} s); "
                f"last seen: {seen!r}"
            )
        time.sleep(_POLL_S)
