"""One parallel call of a cell of fits, what waits to be fetched, and what lies on hosts.  Pure."""

from __future__ import annotations

from collections import deque

from jupyter_ddl.driving.fit_graph import FitGraph
from jupyter_ddl.protocol.fit import node_file
from jupyter_ddl.protocol.fit_results import TakenUnit

__all__ = ["FitBatch", "Outputs"]

_REPLY_BYTES = 2 << 20
_DROP_INTERVAL_S = 0.25


class FitBatch:
    """What it consists of, and the outcomes that wait to be fetched.

    Attributes
    ----------
    trials : list of int
        Trial numbers of its candidates.
    cell_id : str
        The execution of the cell that it is of.
    is_whole : bool
        Whether all its units are needed, so that no candidate can be stopped alone.
    import_until_s : float or None
        Until when it waits for its modules to be imported on the workers.
    """

    def __init__(self, number: int, table: str, cell_id: str) -> None:
        self.number = number
        self.table = table
        self.cell_id = cell_id
        self.graph = FitGraph()
        self.trials: list[int] = []
        self.stopped: set[int] = set()
        """Its candidates that were stopped alone."""
        self.n_parts = 0
        self.is_given_up = False
        self.is_whole = False
        self.import_until_s: float | None = None
        self._outbox: deque[TakenUnit] = deque()
        self._n_taken = 0
        self._n_delivered = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left to compute."""
        return self.is_given_up or (self.graph.is_fed and not self.graph.n_units_left)

    @property
    def is_delivered(self) -> bool:
        """Whether nothing more will come to be fetched."""
        is_all = self.graph.is_fed and self._n_delivered == self.graph.n_units
        return self.is_given_up or is_all

    def deliver(self, unit: TakenUnit) -> None:
        """An outcome that is on record."""
        self._outbox.append(unit)
        self._n_delivered += 1

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
        return tuple(taken)


class Outputs:
    """Account of the outputs of prefixes on hosts.

    Parameters
    ----------
    bound_bytes : int
        How much of them may lie in memory.
    """

    def __init__(self, run_id: str, bound_bytes: int) -> None:
        self._run_id = run_id
        self._unwanted: list[str] = []
        self._dropped_s: float | None = None
        self._bytes: dict[int, int] = {}
        self.bound_bytes = bound_bytes
        self.may_have_any = False
        """Whether anything may lie on a host: outputs may be there whose outcome was lost."""

    @property
    def left_bytes(self) -> int:
        """How much more may be kept in memory."""
        return max(0, self.bound_bytes - sum(self._bytes.values()))

    def release(self, batch: FitBatch) -> None:
        """Note what nobody needs any more."""
        for node in batch.graph.take_released():
            self._unwanted.append(node_file(self._run_id, batch.number, node.prefix, node.fold))
        self._bytes[batch.number] = batch.graph.memory_bytes

    @property
    def drop_at_s(self) -> float | None:
        """When the next files are to be removed: a few times a second."""
        if not self._unwanted:
            return None
        return 0.0 if self._dropped_s is None else self._dropped_s + _DROP_INTERVAL_S

    def take_unwanted(self, now_s: float) -> tuple[str, ...]:
        """Files that are to be removed now."""
        at_s = self.drop_at_s
        if at_s is None or now_s < at_s:
            return ()
        self._dropped_s = now_s
        names, self._unwanted = self._unwanted, []
        return tuple(names)
