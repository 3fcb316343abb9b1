"""Bytes over the host's network interfaces a second."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

__all__ = ["NetworkMeter"]


class NetworkMeter:
    """Used on one thread; loopback is left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before: tuple[float, int, int] | None = None

    def look(self) -> tuple[float | None, float | None]:
        """(received, sent) in bytes per second since the last look; None at first."""
        now = (self._clock(), *_totals())
        before, self._before = self._before, now
        if before is None:
            return None, None
        passed_s = max(1e-3, now[0] - before[0])
        received, sent = now[1] - before[1], now[2] - before[2]
        # An interface that has gone takes its count along.
        return round(max(0, received) / passed_s), round(max(0, sent) / passed_s)


def _totals() -> tuple[int, int]:
    try:
        interfaces = psutil.net_io_counters(pernic=True)
    except OSError:
        return 0, 0
    counted = [counts for name, counts in interfaces.items() if name not in ("lo", "lo0")]
    return sum(c.bytes_recv for c in counted), sum(c.bytes_sent for c in counted)
