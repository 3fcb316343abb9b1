"""Who may use which slot: fair shares of the workers among the runs of one controller.

Pure bookkeeping.  A slot executes one assignment at a time; with ``depth`` 2 a second one may wait
at the worker, so that short trials leave no gap between batches.  A run that finds no free place
stands in line, and until it has got one, no run that came later or holds more takes another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from jupyter_ddl.placement.gpus import GpuBook, Grant

__all__ = ["SlotBook", "wanted_workers"]


# How many workers an adaptive cluster should have.  Pure.


def wanted_workers(
    demand_slots: int,
    current: int,
    minimum: int,
    maximum: int,
    *,
    may_shrink: bool,
    slots_per_worker: int = 1,
) -> int:
    """Number of workers to ask for.

    Parameters
    ----------
    demand_slots
        Trials that could run at once.
    may_shrink
        Whether demand has been below ``current`` for so long that surplus workers go: starting
        one costs more than keeping it for a while.
    """
    target = min(max(-(-demand_slots // slots_per_worker), minimum), maximum)
    if target >= current or may_shrink:
        return target
    return min(current, maximum)


class SlotBook:
    """Slots of the connected workers, and the assignments that hold them."""

    def __init__(self) -> None:
        self.gpus = GpuBook()
        self._n_slots: dict[str, int] = {}
        self._n_open = 0
        self._held: dict[str, Counter[str]] = {}  # address -> run -> assignments
        self._n_of: Counter[str] = Counter()
        """Assignments of each run: asked for at every event, whatever the number of workers."""
        self._runs: list[str] = []
        self._line: list[str] = []
        """Runs that were refused a place which is theirs by right, the longest waiting first."""
        self._leaving: set[str] = set()
        """Workers that were told to go: nothing new is sent to them."""
        self._gpu_line: list[str] = []
        """Runs that wait for GPUs only: they keep nobody from slots."""

    @property
    def n_slots(self) -> int:
        """Slots of all connected workers that stay."""
        return self._n_open

    def n_busy(self, address: str) -> int:
        """Slots of one worker that execute something."""
        return min(self._load(address), self._n_slots.get(address, 0))

    def holders_on(self, address: str) -> list[str]:
        """Runs that execute something on one worker."""
        return [run_id for run_id, n in self._held.get(address, Counter()).items() if n]

    def busy_addresses(self) -> list[str]:
        """Workers that hold an assignment, the most loaded ones first."""
        loaded = [address for address, held in self._held.items() if held.total()]
        return sorted(loaded, key=lambda address: -self._held[address].total())

    def set_workers(self, slots: Mapping[str, int]) -> None:
        """Replace the set of connected workers; holdings of lost ones are forgotten."""
        self._n_slots = dict(slots)
        self._held = {a: held for a, held in self._held.items() if a in self._n_slots}
        self._n_of = sum(self._held.values(), Counter())
        self._leaving &= self._n_slots.keys()
        self._n_open = sum(n for _, n in self._open_slots())

    def retire(self, address: str) -> None:
        """Give out no place on a worker any more: it is about to go."""
        if address in self._n_slots:
            self._leaving.add(address)
            self._n_open = sum(n for _, n in self._open_slots())

    def is_leaving(self, address: str) -> bool:
        """Whether it is about to go: behind what it has lost, nothing begins any more."""
        return address in self._leaving

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
        del self._n_of[run_id]
        self.gpus.leave(run_id)

    def share(self) -> int:
        """Slots that one of the competing runs may hold at once, at least 1."""
        return max(1, -(-self.n_slots // max(1, len(self._runs))))

    def take(self, run_id: str, depth: int, max_parallel: int) -> str | None:
        """Hold a place on the least loaded worker for ``run_id``; None when there is none for it.

        Where ``depth`` allows for it, a place may be behind an assignment of the same run: what
        another one has there may take hours.
        A run that gets None because others hold the places stands in line from then on; it calls
        :meth:`withdraw` when it wants none any more.
        """
        limit = min(self.share(), max_parallel) * depth
        n_held = self._n_held(run_id)
        if n_held >= limit:
            self.withdraw(run_id)
            return None
        free = [a for a, n in self._open_slots() if self._has_room(run_id, a, n, depth)]
        if not free or self._others_first(run_id, n_held):
            if run_id not in self._line:
                self._line.append(run_id)
            return None
        self.withdraw(run_id)
        address = min(free, key=lambda a: (self._load(a) / self._n_slots[a], a))
        self._hold(run_id, address)
        return address

    def take_group(self, run_id: str, n_ranks: int) -> list[str] | None:
        """Hold ``n_ranks`` free slots, all or none; one address per rank, a worker's together.

        A run that gets None stands in line as with :meth:`take`, unless it holds its share.
        """
        n_held = self._n_held(run_id)
        if n_held and n_held + n_ranks > self.share():
            self.withdraw(run_id)
            return None
        free = self._free()
        if len(free) < n_ranks or self._others_first(run_id, n_held):
            if run_id not in self._line:
                self._line.append(run_id)
            return None
        self.withdraw(run_id)
        taken = free[:n_ranks]
        for address in taken:
            self._hold(run_id, address)
        return taken

    def take_with_gpus(self, run_id: str, n_ranks: int, gpus_per_rank: int) -> Grant | None:
        """Hold ``n_ranks`` free slots with their GPUs, all or none, as :meth:`take_group` does.

        A run that finds slots but no GPUs stands in a line of its own.
        """
        if not gpus_per_rank:
            taken = self.take_group(run_id, n_ranks)
            return None if taken is None else Grant(tuple(taken))
        n_held = self._n_held(run_id)
        if n_held and n_held + n_ranks > self.share():
            self.withdraw(run_id)
            return None
        free = self._free()
        grant = self.gpus.choose(free, n_ranks, gpus_per_rank)
        is_later = self._others_first(run_id, n_held) or self._others_first(
            run_id, n_held, self._gpu_line
        )
        if grant is None or is_later:
            line = self._line if len(free) < n_ranks else self._gpu_line
            if run_id not in line:
                line.append(run_id)
            return None
        self.withdraw(run_id)
        for address in grant.workers:
            self._hold(run_id, address)
        self.gpus.hold(run_id, grant)
        return grant

    def take_joining(self, run_id: str, suits: Callable[[str], bool]) -> str | None:
        """Hold a free slot of a worker that suits, for one more rank of a group that runs.

        It stands in no line for it: the group goes on without.
        """
        n_held = self._n_held(run_id)
        if n_held >= self.share() or self._others_first(run_id, n_held):
            return None
        address = next(filter(suits, self._free()), None)
        if address is not None:
            self._hold(run_id, address)
        return address

    @property
    def n_free(self) -> int:
        """Slots that nothing holds."""
        return len(self._free())

    def n_within_reach(self, run_id: str, gpus_per_rank: int = 0) -> int:
        """Ranks that find room now, unless a run that waits for longer is to have the places."""
        n_held = self._n_held(run_id)
        if self._others_first(run_id, n_held):
            return 0
        if not gpus_per_rank:
            return self.n_free
        if self._others_first(run_id, n_held, self._gpu_line):
            return 0
        return self.gpus.n_placeable(self._free(), gpus_per_rank, if_all_free=False)

    def n_placeable(self, gpus_per_rank: int) -> int:
        """Ranks that would find room if nothing else ran."""
        slots = [address for address, n in sorted(self._open_slots()) for _ in range(n)]
        if not gpus_per_rank:
            return len(slots)
        return self.gpus.n_placeable(slots, gpus_per_rank, if_all_free=True)

    def holders(self) -> dict[str, int]:
        """Slots held, by run."""
        return {run_id: n for run_id, n in self._n_of.items() if n}

    def kept(self) -> dict[str, int]:
        """Slots of holders that do not compete for them: persistent groups."""
        return {name: n for name, n in self.holders().items() if name not in self._runs}

    def withdraw(self, run_id: str) -> None:
        """A run stands in line no longer: it wants no place now."""
        for line in (self._line, self._gpu_line):
            if run_id in line:
                line.remove(run_id)

    def in_line(self) -> set[str]:
        """Runs that were refused a place, and have neither got one nor withdrawn since.

        While one of them is there, others may be refused places that are free: whoever leaves the
        line has to wake those that remain.
        """
        return {*self._line, *self._gpu_line}

    def _others_first(self, run_id: str, n_held: int, line: Sequence[str] | None = None) -> bool:
        """Whether a run that waits for longer than this one holds no more than it does."""
        for other in self._line if line is None else line:
            if other == run_id:
                return False
            if self._n_held(other) <= n_held:
                return True
        return False

    def give(self, run_id: str, address: str, gpus: Sequence[str] = ()) -> None:
        """Return a place; harmless for a worker that is gone."""
        self.gpus.give(run_id, gpus)
        held = self._held.get(address)
        if held is not None and held[run_id] > 0:
            held[run_id] -= 1
            self._n_of[run_id] -= 1

    def addresses(self) -> Iterable[str]:
        return self._n_slots.keys()

    def _open_slots(self) -> list[tuple[str, int]]:
        return [(a, n) for a, n in self._n_slots.items() if a not in self._leaving]

    def _free(self) -> list[str]:
        """An address per free slot, those of a worker together."""
        free: list[str] = []
        for address, n_slots in sorted(self._open_slots()):
            free += [address] * max(0, n_slots - self._load(address))
        return free

    def _has_room(self, run_id: str, address: str, n_slots: int, depth: int) -> bool:
        n_own = self._held.get(address, Counter())[run_id]
        return n_own < (n_slots - (self._load(address) - n_own)) * depth

    def _load(self, address: str) -> int:
        held = self._held.get(address)
        return 0 if held is None else held.total()

    def _n_held(self, run_id: str) -> int:
        return self._n_of[run_id]

    def _hold(self, run_id: str, address: str) -> None:
        self._held.setdefault(address, Counter())[run_id] += 1
        self._n_of[run_id] += 1
