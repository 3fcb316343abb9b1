"""One parallel call of the cell: what it consists of, and the outcomes that wait to be fetched."""

from __future__ import annotations

import asyncio
from collections import deque

from jupyter_ddl.drivers.fit_graph import FitGraph
from jupyter_ddl.protocol.fit_results import TakenUnit

__all__ = ["FitBatch"]

_REPLY_BYTES = 2 << 20


class FitBatch:
    """Used on the controller's loop only.

    Attributes
    ----------
    trials : list of int
        Trial numbers of its candidates.
    cell_id : str
        The execution of the cell that it is of.
    is_whole : bool
        Whether all its units are needed, so that no candidate can be stopped alone.
    """

    def __init__(self, number: int, table: str, cell_id: str) -> None:
        self.number = number
        self.table = table
        self.cell_id = cell_id
        self.graph = FitGraph()
        self.trials: list[int] = []
        self.n_parts = 0
        self.is_given_up = False
        self.is_whole = False
        self.news = asyncio.Event()
        self._outbox: deque[TakenUnit] = deque()
        self._n_taken = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left to compute."""
        return self.is_given_up or (self.graph.is_fed and not self.graph.n_units_left)

    def deliver(self, unit: TakenUnit) -> None:
        """An outcome that is on record."""
        self._outbox.append(unit)
        self.news.set()

    def take(self, n_taken: int) -> tuple[TakenUnit, ...]:
        """Outcomes from number ``n_taken`` on, as many as fit into a reply."""
        while self._n_taken < n_taken and self._outbox:
            self._outbox.popleft()
            self._n_taken += 1
        taken: list[TakenUnit] = []
        size = 0
        for unit in self._outbox:
            if size > _REPLY_BYTES:
                break
            taken.append(unit)
            size += len(unit.outcome) + 300
        if not taken:
            self.news.clear()
        return tuple(taken)
