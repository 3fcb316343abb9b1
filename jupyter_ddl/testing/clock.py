"""Time that passes only when it is told to."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any

from jupyter_ddl.driving.machine import Now

__all__ = ["Timer", "VirtualClock"]

_WALL_S = 1_700_000_000.0


class Timer:
    """A call to come."""

    __slots__ = ("_args", "_call")

    def __init__(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._call: Callable[..., object] | None = call
        self._args = args

    def cancel(self) -> None:
        self._call = None

    def run(self) -> None:
        if self._call is not None:
            self._call(*self._args)


class VirtualClock:
    """Calls in the order of their times; those of one time in an order that ``rng`` chooses.

    Nothing ever sleeps: :meth:`step` goes straight to the next call.
    """

    def __init__(self, rng: Random | None = None) -> None:
        self.now_s = 0.0
        self._rng = rng or Random(0)
        self._n = 0
        self._calls: list[tuple[float, float, int, Timer]] = []

    def now(self) -> Now:
        """What a shell would read from its clocks."""
        return Now(self.now_s, _WALL_S + self.now_s)

    def call_at(self, at_s: float, call: Callable[..., object], *args: Any) -> Timer:
        """Have ``call(*args)`` done at a time; one that has passed is as good as now."""
        self._n += 1
        timer = Timer(call, args)
        at_s = max(at_s, self.now_s)
        heapq.heappush(self._calls, (at_s, self._rng.random(), self._n, timer))
        return timer

    def call_later(self, delay_s: float, call: Callable[..., object], *args: Any) -> Timer:
        return self.call_at(self.now_s + delay_s, call, *args)

    def __len__(self) -> int:
        """Calls to come, those that were cancelled included."""
        return len(self._calls)

    def step(self) -> bool:
        """Do the next call; False when there is none."""
        if not self._calls:
            return False
        self.now_s, _, _, timer = heapq.heappop(self._calls)
        timer.run()
        return True
