"""Says who waits for whom in a cell of a persistent group that takes long.  Pure.

A cell tells of no steps, so nothing here ends it: what is seen is told, and its user decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from jupyter_ddl.driving.hangs import Sight, grouped, judge, read_place
from jupyter_ddl.protocol.cells import RankSeen
from jupyter_ddl.protocol.group import ranks_label

__all__ = ["CellWatch"]

_FIRST_S = 5.0
"""How long a cell is executed before its ranks are looked at; again in as long as it then took."""
_LONGEST_S = 60.0
_CLOSER_S = 2.0
"""Whoever waits for others may do so for a moment in each step: it is looked at once more."""
_N_RUNS = 8
"""A thread that was that often on a CPU since has not waited in one call; being looked at wakes it,
too."""


class CellWatch:
    """One cell of a group of several ranks.

    Parameters
    ----------
    n_ranks : int
        Of the group.
    targets : sequence of int
        Ranks that execute the cell.
    now_s : float
        As all times, of the watcher's own monotonic clock.
    """

    def __init__(self, n_ranks: int, targets: Sequence[int], now_s: float) -> None:
        self._targets = frozenset(targets)
        self._others = sorted(set(range(n_ranks)) - self._targets)
        self._began_s = now_s
        self._before: Mapping[int, RankSeen | None] = {}
        self.due_s: float | None = now_s + _FIRST_S
        """When its ranks are to be looked at; None: they are."""
        self.notice = ""
        """Who waits for whom; empty: nobody, as far as is known."""

    def look(self) -> None:
        """Its ranks are being looked at."""
        self.due_s = None

    def looked(self, seen: Mapping[int, RankSeen | None], now_s: float) -> None:
        """Take note of what was seen.

        Parameters
        ----------
        seen
            Of ranks that still execute it; None: its worker did not answer.
        """
        ran_s = now_s - self._began_s
        sights = [Sight(rank, "cell", 0, each) for rank, each in sorted(seen.items())]
        waiting = [sight for sight in sights if sight.place.waits_in]
        stands = [sight for sight in waiting if self._stands(sight)]
        silent = [sight for sight in sights if sight.is_stopped or sight.probe is None]
        self.notice = self._told(sights, ran_s) if stands or silent else ""
        is_unclear = bool(waiting) and not self.notice
        self.due_s = now_s + (_CLOSER_S if is_unclear else min(ran_s, _LONGEST_S))
        self._before = seen

    def _stands(self, sight: Sight) -> bool:
        """Whether it is where it was in the look before, and has done nothing in between."""
        now, before = sight.probe, self._before.get(sight.rank)
        if not isinstance(now, RankSeen) or before is None:
            return False
        return now.n_runs - before.n_runs < _N_RUNS and sight.place == read_place(before.stacks)

    def _told(self, sights: Sequence[Sight], ran_s: float) -> str:
        # A rank that computes is waited for: whoever waits is told so.
        blame = judge(sights, 0.0, math.inf)
        texts = grouped(sights) if blame is None else [blame.text]
        ended = sorted(self._targets - {sight.rank for sight in sights})
        if ended:
            texts.append(f"{ranks_label(ended)} {'has' if len(ended) == 1 else 'have'} ended it")
        if self._others:
            verb = "does" if len(self._others) == 1 else "do"
            texts.append(f"{ranks_label(self._others)} {verb} not execute it")
        return f"after {ran_s:.0f} s {'; '.join(texts)}"
