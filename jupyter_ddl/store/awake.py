"""Time in which this process could act: without a closed lid, a paused machine, a SIGSTOP.

Whoever stood still has heard nobody meanwhile, and has no right to call anybody silent for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["TICK_S", "AwakeClock", "AwakeLoop", "awake_s"]

TICK_S = 1.0
"""Whoever has such a clock looks at it as often as that."""
_LONGEST_S = 3.0
"""Between two looks; a loop that is kept busy for that long has heard nobody either."""
_TOLD_S = 10.0


def _since_boot_s() -> float:
    """Seconds that the host was there, those that it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class AwakeClock:
    """Monotonic seconds that go on by one at most while nobody looks at them.

    Parameters
    ----------
    monotonic, since_boot : callable
        Seconds without and with those in which the host slept.
    """

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        since_boot: Callable[[], float] = _since_boot_s,
    ) -> None:
        self._monotonic = monotonic
        self._since_boot = since_boot
        self._seen_s = self._awake_s = monotonic()
        self._boot_s = since_boot()
        self._still_s = 0.0

    def read(self) -> float:
        seen_s, boot_s = self._monotonic(), self._since_boot()
        passed_s, whole_s = seen_s - self._seen_s, boot_s - self._boot_s
        self._seen_s, self._boot_s = seen_s, boot_s
        counted_s = passed_s if passed_s <= _LONGEST_S else TICK_S
        self._awake_s += counted_s
        if whole_s > _LONGEST_S:
            self._still_s += whole_s - counted_s
        return self._awake_s

    def take_still_s(self) -> float:
        """Seconds that it stood still since this was last asked; 0 for what nobody notices."""
        self.read()
        still_s, self._still_s = self._still_s, 0.0
        return still_s if still_s >= _TOLD_S else 0.0


class AwakeLoop(asyncio.SelectorEventLoop):
    """An event loop whose deadlines all count by an :class:`AwakeClock`."""

    def __init__(self) -> None:
        self.clock = AwakeClock()
        self._ticking: asyncio.TimerHandle | None = None
        super().__init__()

    def time(self) -> float:
        return self.clock.read()

    def run_forever(self) -> None:
        self._tick()
        super().run_forever()

    def _tick(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        self._ticking = self.call_later(TICK_S, self._tick)


def awake_s() -> float:
    """The time of the running loop: what all deadlines of a controller are compared with."""
    return asyncio.get_running_loop().time()
