"""Which workers have said nothing lately.  Pure.

Between the last word of a worker and the moment at which it counts as lost, half a minute passes in
which whatever it executes stands still: whoever waits for that is to see why.
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["WorkerSilence", "text_of_silence"]

_LEAST_S = 10.0
_N_SAMPLES = 5
"""A worker that samples more slowly than every two seconds is silent after so many."""
_N_NAMED = 3


class WorkerSilence:
    """All times are seconds in which this process could listen.

    Parameters
    ----------
    interval_s : float
        How often a worker says something; 0: never, and none is silent.
    """

    def __init__(self, interval_s: float) -> None:
        self._after_s = max(_LEAST_S, _N_SAMPLES * interval_s) if interval_s else float("inf")
        self._heard_s: dict[str, float] = {}
        self._told: set[str] = set()

    def keep(self, workers: Collection[str], now_s: float) -> None:
        """The cluster has these workers now; others are forgotten."""
        self._heard_s = {worker: self._heard_s.get(worker, now_s) for worker in workers}
        self._told &= self._heard_s.keys()

    def heard(self, worker: str, now_s: float) -> None:
        """It has said something."""
        if worker in self._heard_s:
            self._heard_s[worker] = now_s

    def excuse(self, now_s: float) -> None:
        """Nobody could be heard until now, whoever spoke."""
        self._heard_s = dict.fromkeys(self._heard_s, now_s)

    def silent(self, now_s: float) -> dict[str, float]:
        """Seconds of silence, by worker."""
        ages = {worker: now_s - heard_s for worker, heard_s in self._heard_s.items()}
        return {worker: age_s for worker, age_s in ages.items() if age_s > self._after_s}

    def news(self, now_s: float) -> tuple[list[str], list[str]]:
        """Who has fallen silent since the last call, and who is heard again."""
        silent = self.silent(now_s).keys()
        fallen, back = sorted(silent - self._told), sorted(self._told - silent)
        self._told = set(silent)
        return fallen, back


def text_of_silence(silent: dict[str, float]) -> str:
    """Of these workers, for people; empty for none."""
    if not silent:
        return ""
    names = sorted(silent, key=lambda worker: -silent[worker])
    more = f" and {len(names) - _N_NAMED} more" if len(names) > _N_NAMED else ""
    one, still = ("worker", "it stands") if len(names) == 1 else ("workers", "they stand")
    return (
        f"nothing was heard of {one} {', '.join(names[:_N_NAMED])}{more} for "
        f"{silent[names[0]]:.0f} s: the network is cut there, or {still} still; what was to be "
        f"done there is repeated elsewhere once the connection is given up"
    )
