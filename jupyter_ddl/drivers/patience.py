"""How long a rank group waits for slots, and who is told to have them when it gives up."""

from __future__ import annotations

import time
from collections.abc import Callable

from jupyter_ddl.drivers.admission import waiting_text
from jupyter_ddl.errors import PlacementError
from jupyter_ddl.placement.slots import SlotBook

__all__ = ["Patience"]

_STUCK_S = 600.0
"""Slots that are missing, or kept by persistent groups, do not become free by themselves: a lost
worker is replaced within seconds, and a person who would end a group has come by then."""


class Patience:
    """Used on the controller's loop only.

    Parameters
    ----------
    timeout_s : float, optional
        For slots, whatever keeps them from being free.  None: as long as other runs use them, and
        ten minutes for what does not change by itself.
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self,
        run_id: str,
        n_fewest: int,
        slots: SlotBook,
        timeout_s: float | None,
        gpus_per_rank: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_id = run_id
        self._n_fewest = n_fewest
        self._slots = slots
        self._timeout_s = timeout_s
        self._gpus_per_rank = gpus_per_rank
        self._clock = clock
        self._waiting_since_s: float | None = None
        self._stuck_since_s: float | None = None

    def poll(self, *, is_waiting: bool) -> None:
        """Called at every tick; ``is_waiting``: a group could begin if it had slots.

        Raises
        ------
        PlacementError
            It has waited for too long; names who holds the slots.
        """
        if not is_waiting:
            self._waiting_since_s = self._stuck_since_s = None
            return
        now = self._clock()
        if self._waiting_since_s is None:
            self._waiting_since_s = now
        if not self._is_stuck:
            self._stuck_since_s = None
        elif self._stuck_since_s is None:
            self._stuck_since_s = now
        waited_s = now - self._waiting_since_s
        if self._timeout_s is not None:
            if waited_s >= self._timeout_s:
                raise self._error(waited_s, "--admission-timeout")
        elif self._stuck_since_s is not None and now - self._stuck_since_s >= _STUCK_S:
            raise self._error(now - self._stuck_since_s, "slots that do not become free")

    @property
    def _is_stuck(self) -> bool:
        slots = self._slots
        n_kept = sum(slots.kept().values())
        return min(slots.n_slots - n_kept, slots.n_placeable(self._gpus_per_rank)) < self._n_fewest

    def _error(self, waited_s: float, why: str) -> PlacementError:
        text = waiting_text(self._run_id, self._n_fewest, self._slots, self._gpus_per_rank)
        return PlacementError(
            f"given up after waiting {waited_s:.0f} s for slots ({why}): {text}",
            waited_s=waited_s,
            holders=self._slots.holders(),
        )
