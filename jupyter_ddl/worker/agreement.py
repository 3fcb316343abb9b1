"""What the ranks of a group must decide alike: the checkpoint to go on from, and when to stop.

By the group's own store, not by collectives: it works before the process group is there, beside
it, and with ``--no-init``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from jupyter_ddl.worker.stopping import StopReason

__all__ = ["Agreement"]

T = TypeVar("T")
_PREFIX = "jupyter_ddl/"


class Agreement:
    """One rank's voice.  Used on the rank's main thread.

    Parameters
    ----------
    store : torch.distributed.Store
        Fresh in every round; its timeout is the deadline of every wait here.
    """

    def __init__(self, store: Any, rank: int, world_size: int) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._n_choices = 0
        self._has_left = False

    def first_readable(self, names: Sequence[str], read: Callable[[str], T | None]) -> T | None:
        """Read the first file of rank 0's list that every rank can read.

        Called by all ranks, equally often.

        Parameters
        ----------
        names : sequence of str
            What this rank sees; only rank 0's counts.
        read : callable
            Returns None when this rank cannot read the file of that name.

        Raises
        ------
        torch.distributed.DistError
            Another rank did not come here by the store's deadline.
        """
        self._n_choices += 1
        key = f"{_PREFIX}choice/{self._n_choices}"
        if self._rank == 0:
            self._store.set(key, json.dumps(list(names)))
        for name in json.loads(self._store.get(key)):
            content = read(name)
            if self._all_agree(f"{key}/{name}", content is not None):
                return content
        return None

    def _all_agree(self, key: str, yes: bool) -> bool:
        self._store.set(f"{key}/{self._rank}", "1" if yes else "0")
        votes = self._store.multi_get([f"{key}/{rank}" for rank in range(self._world_size)])
        return all(vote == b"1" for vote in votes)

    def stop_after(
        self, n_reports: int, reason: StopReason | None
    ) -> tuple[int, StopReason] | None:
        """The number of the report at which all ranks stop, and why; None to go on.

        Rank 0 decides, one report ahead.  Ranks that meet in a collective between two reports
        are at most one apart, so all of them see the decision in time and none is left waiting.

        Parameters
        ----------
        n_reports : int
            Reports of this rank so far.
        reason : StopReason or None
            Why rank 0 should stop; other ranks follow it.
        """
        if self._has_left or (self._rank == 0 and reason is None):
            return None
        key = f"{_PREFIX}stop"
        try:
            if self._rank == 0:
                self._store.set(key, json.dumps([n_reports + 1, reason]))
            elif not self._store.check([key]):
                return None
            at, why = json.loads(self._store.get(key))
        except RuntimeError:
            # Rank 0 is through with the cell, or dead, and then the launcher ends this rank too.
            self._has_left = True
            return None
        return int(at), cast(StopReason, why)
