"""What the ranks of a group must decide alike: the checkpoint to go on from, and when to stop.

By the group's own store, not by collectives: it works before the process group is there, beside
it, and with ``--no-init``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, get_args

from jupyter_ddl.protocol.group import ranks_label
from jupyter_ddl.ranks.membership import Membership, membership
from jupyter_ddl.ranks.stopping import StopReason

__all__ = ["GroupVotes"]

T = TypeVar("T")
_PREFIX = "jupyter_ddl/"
_STOP = f"{_PREFIX}stop"
_REASONS: tuple[StopReason | None, ...] = (None, *get_args(StopReason))
_AHEAD_S = 0.2
_POLL_S = 0.001
_MAX_AHEAD = 12
"""Reports that rank 0 decides upon at once where they come fast.  Asking the store takes a rank and
rank 0 0.1 ms of CPU each, and a switch back and forth while the others wait."""


class GroupVotes:
    """One rank's voice.  Used on the rank's main thread.

    Parameters
    ----------
    store : torch.distributed.Store
        Fresh in every round; its timeout is the deadline of every wait here.
    members : Membership, optional
        What the driver has told this process of the others.
    """

    def __init__(
        self, store: Any, rank: int, world_size: int, members: Membership = membership
    ) -> None:
        self.store = store
        self._members = members
        self._rank = rank
        self._world_size = world_size
        self._n_choices = 0
        self.n_gathered = 0
        """Calls of :meth:`gather` since the round began."""
        self._has_left = False
        self._undecided = 2
        """The first report of which this rank does not know whether all stop there."""
        self.next_look = self._undecided - (rank == 0)
        """The first report at which :meth:`stop_after` has something to do."""
        self._word = 0
        self._spoke: tuple[int, float] | None = None

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
            self.store.set(key, json.dumps(list(names)))
        for name in json.loads(self.store.get(key)):
            content = read(name)
            if self._all_agree(f"{key}/{name}", content is not None):
                return content
        return None

    def _all_agree(self, key: str, yes: bool) -> bool:
        self.store.set(f"{key}/{self._rank}", "1" if yes else "0")
        ranks = self._members.first(self._world_size)
        votes = self.store.multi_get([f"{key}/{rank}" for rank in ranks])
        return all(vote == b"1" for vote in votes)

    def gather(self, value: Any) -> list[Any]:
        """Plain data of the ranks that are there, this one's first; called equally often by all.

        A rank that is lost in the meantime is waited for no longer, and one that was started again
        not at all: what it has to say counts if it is there.

        Raises
        ------
        TimeoutError
            A rank that is there did not come here by the store's deadline.
        """
        self.n_gathered += 1
        # Of two slots each: nobody is two ahead of a rank that it waits for.
        key = f"{_PREFIX}gathered/{self.n_gathered % 2}"
        self.store.set(f"{key}/{self._rank}", json.dumps([self.n_gathered, value]))
        found = {self._rank: value}
        others = set(range(self._world_size)) - {self._rank}
        deadline_s = time.monotonic() + self.store.timeout.total_seconds()
        while True:
            lives = self._members.lives(self._world_size)
            awaited = {rank for rank in others if lives.get(rank) == 1}
            for rank in tuple(others):
                said = self._said(f"{key}/{rank}")
                if said is not None and said[0] >= self.n_gathered:
                    others.discard(rank)
                    awaited.discard(rank)
                    if said[0] == self.n_gathered:
                        found[rank] = said[1]
            if not awaited:
                return list(found.values())
            if time.monotonic() > deadline_s:
                timeout_s = self.store.timeout.total_seconds()
                who = ranks_label(awaited)
                raise TimeoutError(f"rank {self._rank} timed out waiting for {who} ({timeout_s} s)")
            time.sleep(_POLL_S)

    def _said(self, key: str) -> tuple[int, Any] | None:
        if not self.store.check([key]):
            return None
        number, value = json.loads(self.store.get(key))
        return number, value

    def stop_after(
        self, n_reports: int, reason: StopReason | None
    ) -> tuple[int, StopReason] | None:
        """The number of the report at which all ranks stop, and why; None to go on.

        Rank 0 decides before its last report that is decided upon is over.  Ranks that meet in a
        collective between two reports are at most one apart, so its word is there when another rank
        comes to the next one, and none is left waiting.

        Parameters
        ----------
        n_reports : int
            Reports of this rank so far, with this one.
        reason : StopReason or None
            Why rank 0 should stop; other ranks follow it.
        """
        if self._has_left or n_reports < self.next_look:
            return None
        try:
            stop = self._decide(n_reports, reason) if self._rank == 0 else self._hear()
            self.next_look = self._undecided - (self._rank == 0)
            return stop
        except RuntimeError:
            # Rank 0 is through with the cell, or dead, and then the launcher ends this rank too.
            self._has_left = True
            return None

    def _decide(self, n_reports: int, reason: StopReason | None) -> tuple[int, StopReason] | None:
        now_s = time.monotonic()
        n_ahead = 1
        if self._spoke is not None:
            n_before, before_s = self._spoke
            pace_s = max(1e-6, now_s - before_s) / max(1, n_reports - n_before)
            n_ahead = max(1, min(_MAX_AHEAD, int(_AHEAD_S / pace_s)))
        self._spoke = n_reports, now_s
        self._undecided = n_reports + 1 + (0 if reason else n_ahead)
        before, self._word = self._word, _word_of(self._undecided, reason)
        # Once this is answered, the word is there for all to read.
        self.store.add(_STOP, self._word - before)
        return None if reason is None else (self._undecided, reason)

    def _hear(self) -> tuple[int, StopReason] | None:
        # Adding nothing is the one way to read that neither waits for the key nor asks twice.
        word = self.store.add(_STOP, 0)
        if not word:
            return None  # rank 0 has not spoken yet
        self._undecided, number = divmod(word, len(_REASONS))
        reason = _REASONS[number]
        return None if reason is None else (self._undecided, reason)


def _word_of(undecided: int, reason: StopReason | None) -> int:
    """Both as one number: what a store adds up, it also tells in one round trip."""
    return undecided * len(_REASONS) + _REASONS.index(reason)
