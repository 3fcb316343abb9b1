"""Room that comes free: pods of stopped clusters hold theirs until they have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jupyter_ddl.cluster.kubernetes.sight import is_ending

__all__ = ["ComingRoom"]

_ENDING_S = 90.0
"""Pods that have not ended by then are on a node that is lost: their room does not come free."""

Json = dict[str, Any]


class ComingRoom:
    """What lack of room may be held against a cluster, as other pods end.

    Parameters
    ----------
    clock : callable
        Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since_s: float | None = None
        self.none_before_s = float("-inf")
        """When lack of room may be believed at the earliest.

        Kubernetes tries a pod that a quota has refused again after as long as it has waited.
        """

    def n_ending(self, pods: Iterable[Json]) -> int:
        """How many of these pods are about to set room free."""
        n_ending = sum(map(is_ending, pods))
        if not n_ending:
            self._since_s = None
            return 0
        now_s = self._clock()
        if self._since_s is None:
            self._since_s = now_s
        waited_s = now_s - self._since_s
        if waited_s > _ENDING_S:
            return 0
        self.none_before_s = now_s + waited_s
        return n_ending
