"""Why a run waits for something outside it, in a sentence that says what helps."""

from __future__ import annotations

import time
from collections.abc import Callable

from jupyter_ddl.drivers.committer import Committer
from jupyter_ddl.placement.slots import SlotBook

__all__ = ["Pauses"]

_NO_WORKER_S = 60.0
_DISK_FULL_PAUSE_S = 2.0


class Pauses:
    """Used on the controller's loop only.

    Parameters
    ----------
    slots : SlotBook
        Slots of the connected workers.
    n_wanted : callable
        Workers that the cluster was asked for.
    """

    def __init__(self, committer: Committer, slots: SlotBook, n_wanted: Callable[[], int]) -> None:
        self._committer = committer
        self._slots = slots
        self._n_wanted = n_wanted
        self._disk_full = ""
        self._disk_full_until_s = 0.0
        self._no_worker_since_s: float | None = None

    def disk_is_full(self, message: str) -> None:
        """A rank found no space: nothing is sent for two seconds."""
        self._disk_full = message
        self._disk_full_until_s = time.monotonic() + _DISK_FULL_PAUSE_S

    def poll(self) -> None:
        """Note since when there has been no worker; called at every tick."""
        if self._slots.n_slots:
            self._no_worker_since_s = None
        elif self._no_worker_since_s is None:
            self._no_worker_since_s = time.monotonic()

    @property
    def text(self) -> str:
        """Empty while the run waits for nothing."""
        if self._committer.paused:
            return self._committer.paused
        if time.monotonic() < self._disk_full_until_s:
            return self._disk_full
        since = self._no_worker_since_s
        if since is None:
            return _kept_text(self._slots)
        if self._n_wanted() == 0:
            return "the cluster has no workers; `%cluster scale N` starts some"
        if time.monotonic() - since > _NO_WORKER_S:
            # Without the time: what changes every second would be drawn every second.
            return (
                "no worker has been connected for more than a minute; "
                "see `%cluster logs`, or `%cluster scale N`"
            )
        return ""


def _kept_text(slots: SlotBook) -> str:
    """Persistent groups do not end by themselves: where they keep every slot, nothing can run."""
    kept = slots.kept()
    if not kept or sum(kept.values()) < slots.n_slots:
        return ""
    names = ", ".join(kept)
    return (
        f"every slot is kept by `%%distribute run` ({names}); `%runs stop {next(iter(kept))}` ends "
        f"that group, `%cluster scale N` adds slots"
    )
