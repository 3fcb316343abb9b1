"""Follows the steps of a rank group, and tells when it is time to look closer.  Pure."""

from __future__ import annotations

from collections import deque
from statistics import median

from jupyter_ddl.launch.hang import Blame, Sight, judge
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Beat,
    Probe,
    RankEvent,
    RendezvousReady,
    Reported,
)

__all__ = ["StepWatch"]

_MIN_TIMEOUT_S = 60.0
_MEDIAN_FACTOR = 10.0
_FIRST_STEP_FACTOR = 5.0
"""Data is downloaded and kernels are compiled before the first step."""
_N_DURATIONS = 64
_AGAIN_S = 5.0


class StepWatch:
    """One round of one group.  All times are the watcher's own monotonic clock, in seconds.

    Parameters
    ----------
    timeout_s : float, optional
        Without a step of any rank for so long, the group is looked at.  None: 10 times the median
        step, at least 60 s, and 5 minutes before the first step.
    """

    def __init__(self, n_ranks: int, timeout_s: float | None, now_s: float) -> None:
        self._timeout_s = timeout_s
        self._running = set(range(n_ranks))
        self._phases = dict.fromkeys(range(n_ranks), "loading")
        self._n_steps = dict.fromkeys(range(n_ranks), 0)
        self._last_beat_s: dict[int, float] = {}
        self._moved_s: dict[int, float] = {}
        self._began_s = now_s
        self._durations: deque[float] = deque(maxlen=_N_DURATIONS)
        self._last_step_s = now_s
        self._quiet_until_s = now_s

    def moved(self) -> dict[int, tuple[str, float]]:
        """Phase of each running rank, and when it last moved."""
        return {
            rank: (self._phases[rank], self._moved_s.get(rank, self._began_s))
            for rank in self._running
        }

    def observe(self, rank: int, event: RankEvent, now_s: float) -> None:
        """Take note of what a rank has sent."""
        if not isinstance(event, Probe):
            self._moved_s[rank] = now_s
        match event:
            case Reported() | AttemptStarted() | RendezvousReady():
                self._last_step_s = now_s
            case Beat(phase=phase, n_steps=n_steps):
                self._beat(rank, phase, n_steps, now_s)
            case AttemptFinished():
                self._running.discard(rank)
                self._last_step_s = now_s

    def _beat(self, rank: int, phase: str, n_steps: int, now_s: float) -> None:
        made = n_steps - self._n_steps[rank]
        if made > 0:
            since = self._last_beat_s.get(rank)
            if since is not None:
                self._durations.append((now_s - since) / made)
            self._last_beat_s[rank] = now_s
        if made > 0 or phase != self._phases[rank]:
            self._last_step_s = now_s
        self._n_steps[rank] = n_steps
        self._phases[rank] = phase

    @property
    def timeout_s(self) -> float:
        """The hang timeout as of now."""
        if any(self._phases[rank] in ("loading", "rendezvous") for rank in self._running):
            return max(_MIN_TIMEOUT_S, self._timeout_s or 0.0)
        if self._timeout_s is not None:
            return self._timeout_s
        if not self._durations:
            return _FIRST_STEP_FACTOR * _MIN_TIMEOUT_S
        return max(_MIN_TIMEOUT_S, _MEDIAN_FACTOR * median(self._durations))

    def is_due(self, now_s: float) -> bool:
        """Whether the ranks are to be probed now."""
        silent = now_s - self._last_step_s
        return bool(self._running) and silent >= self.timeout_s and now_s >= self._quiet_until_s

    def judge(self, probes: dict[int, Probe], now_s: float) -> Blame | None:
        """Who hangs, by what was seen of the running ranks; None: look again later.

        A step that was made while they were being looked at saves them, unless one is stopped: that
        one went on for a moment only to write its stacks.
        """
        stopped = any(probes[rank].state == "T" for rank in self._running & probes.keys())
        if not stopped and not self.is_due(now_s):
            return None
        sights = [
            Sight(rank, self._phases[rank], self._n_steps[rank], probes.get(rank))
            for rank in sorted(self._running)
        ]
        is_given = self._timeout_s is not None
        blame = judge(sights, now_s - self._last_step_s, self.timeout_s, is_given=is_given)
        if blame is None:
            self._quiet_until_s = now_s + max(_AGAIN_S, self.timeout_s / 2)
        return blame

    @property
    def running(self) -> frozenset[int]:
        return frozenset(self._running)
