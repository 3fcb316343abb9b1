"""Who may use which slot: fair shares of the workers among the runs of one controller.

Pure bookkeeping.  A slot executes one assignment at a time; with ``depth`` 2 a second one may wait
at the worker, so that short trials leave no gap between batches.  A run that finds no free place
stands in line, and until it has got one, no run that came later or holds more takes another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

__all__ = ["SlotBook"]


class SlotBook:
    """Slots of the connected workers, and the assignments that hold them."""

    def __init__(self) -> None:
        self._n_slots: dict[str, int] = {}
        self._held: dict[str, Counter[str]] = {}  # address -> run -> assignments
        self._runs: list[str] = []
        self._line: list[str] = []
        """Runs that were refused a place which is theirs by right, the longest waiting first."""

    @property
    def n_slots(self) -> int:
        """Slots of all connected workers."""
        return sum(self._n_slots.values())

    def n_busy(self, address: str) -> int:
        """Slots of one worker that execute something."""
        load = self._held.get(address, Counter()).total()
        return min(load, self._n_slots.get(address, 0))

    def busy_addresses(self) -> list[str]:
        """Workers that hold an assignment, the most loaded ones first."""
        loaded = [address for address, held in self._held.items() if held.total()]
        return sorted(loaded, key=lambda address: -self._held[address].total())

    def set_workers(self, slots: Mapping[str, int]) -> None:
        """Replace the set of connected workers; holdings of lost ones are forgotten."""
        self._n_slots = dict(slots)
        self._held = {a: held for a, held in self._held.items() if a in self._n_slots}

    def join(self, run_id: str) -> None:
        """A run begins to compete for slots."""
        if run_id not in self._runs:
            self._runs.append(run_id)

    def leave(self, run_id: str) -> None:
        """A run no longer competes, and holds nothing any more."""
        if run_id in self._runs:
            self._runs.remove(run_id)
        self.withdraw(run_id)
        for held in self._held.values():
            del held[run_id]

    def share(self) -> int:
        """Slots that one of the competing runs may hold at once, at least 1."""
        return max(1, -(-self.n_slots // max(1, len(self._runs))))

    def take(self, run_id: str, depth: int, max_parallel: int) -> str | None:
        """Hold a place on the least loaded worker for ``run_id``; None when there is none for it.

        A run that gets None because others hold the places stands in line from then on; it calls
        :meth:`withdraw` when it wants none any more.
        """
        limit = min(self.share(), max_parallel) * depth
        n_held = self._n_held(run_id)
        if n_held >= limit:
            self.withdraw(run_id)
            return None
        free = [a for a, n in self._n_slots.items() if self._load(a) < n * depth]
        if not free or self._others_first(run_id, n_held):
            if run_id not in self._line:
                self._line.append(run_id)
            return None
        self.withdraw(run_id)
        address = min(free, key=lambda a: (self._load(a) / self._n_slots[a], a))
        self._held.setdefault(address, Counter())[run_id] += 1
        return address

    def take_group(self, run_id: str, n_ranks: int) -> list[str] | None:
        """Hold ``n_ranks`` free slots, all or none; one address per rank, a worker's together."""
        free: list[str] = []
        for address in sorted(self._n_slots):
            free += [address] * max(0, self._n_slots[address] - self._load(address))
        if len(free) < n_ranks:
            return None
        taken = free[:n_ranks]
        for address in taken:
            self._held.setdefault(address, Counter())[run_id] += 1
        return taken

    @property
    def n_free(self) -> int:
        """Slots that nothing holds."""
        return sum(max(0, n - self._load(a)) for a, n in self._n_slots.items())

    def holders(self) -> dict[str, int]:
        """Slots held, by run."""
        held: Counter[str] = Counter()
        for counter in self._held.values():
            held.update(counter)
        return {run_id: n for run_id, n in held.items() if n}

    def withdraw(self, run_id: str) -> None:
        """A run stands in line no longer: it wants no place now."""
        if run_id in self._line:
            self._line.remove(run_id)

    def _others_first(self, run_id: str, n_held: int) -> bool:
        """Whether a run that waits for longer than this one holds no more than it does."""
        for other in self._line:
            if other == run_id:
                return False
            if self._n_held(other) <= n_held:
                return True
        return False

    def give(self, run_id: str, address: str) -> None:
        """Return a place; harmless for a worker that is gone."""
        held = self._held.get(address)
        if held is not None and held[run_id] > 0:
            held[run_id] -= 1

    def addresses(self) -> Iterable[str]:
        return self._n_slots.keys()

    def _load(self, address: str) -> int:
        return self._held.get(address, Counter()).total()

    def _n_held(self, run_id: str) -> int:
        return sum(held[run_id] for held in self._held.values())
