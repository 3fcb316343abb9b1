"""One batch of a fit: which nodes and units can run, what each waits for, what may go.  Pure."""

from __future__ import annotations

import heapq
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from jupyter_ddl.protocol.fit import FitNode, FitUnit
from jupyter_ddl.protocol.fit_results import NodeResult
from jupyter_ddl.studies.batching import BatchSizer

__all__ = ["FitGraph", "Piece"]

_CHUNK_S = 0.15
"""Short nodes are sent together, about so long ones."""
_N_SEEN = 8
_UNITS_FIRST_SHARE = 0.5
"""Above this share of the memory bound, units that free outputs go before nodes that add some."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A node or unit by its index in the batch."""

    is_node: bool
    index: int


@dataclass(slots=True)
class _Node:
    spec: FitNode
    n_waits_for: int = 0
    depth: int = 0
    users: list[Piece] = field(default_factory=list)
    n_users_left: int = 0
    result: NodeResult | None = None
    is_released: bool = False


_KEY_BYTES = 16


class _Units:
    """The units of a batch, in arrays: there may be a hundred thousand."""

    def __init__(self) -> None:
        self._candidates = array("l")
        self._folds = array("l")
        self._places = array("l")
        self._n_of: dict[int, int] = {}
        """Units of each candidate."""
        self._keys = bytearray()
        self._nodes: dict[int, tuple[int, ...]] = {}
        self._is_settled = bytearray()

    def __len__(self) -> int:
        return len(self._is_settled)

    def add(self, unit: FitUnit, is_settled: bool) -> None:
        if unit.nodes:
            self._nodes[len(self)] = unit.nodes
        self._candidates.append(unit.candidate)
        self._folds.append(unit.fold)
        place = self._n_of.get(unit.candidate, 0)
        self._n_of[unit.candidate] = place + 1
        self._places.append(place)
        self._keys += unit.key
        self._is_settled.append(is_settled)

    def get(self, index: int) -> FitUnit | None:
        """A unit; None once it is settled."""
        if self._is_settled[index]:
            return None
        key = bytes(self._keys[_KEY_BYTES * index : _KEY_BYTES * (index + 1)])
        nodes = self._nodes.get(index, ())
        return FitUnit(self._candidates[index], self._folds[index], nodes, key)

    def place(self, index: int) -> int:
        return self._places[index]

    def settle(self, index: int) -> FitUnit | None:
        """The unit that is settled by this; None if it was settled before."""
        unit = self.get(index)
        self._is_settled[index] = True
        return unit

    def open_of(self, candidate: int) -> list[int]:
        """Units of a candidate that are not settled."""
        each = zip(self._candidates, self._is_settled, strict=True)
        return [i for i, (c, is_settled) in enumerate(each) if c == candidate and not is_settled]


class FitGraph:
    """Nodes before units, units before what they free is let go."""

    def __init__(self) -> None:
        self._nodes: list[_Node] = []
        self._units = _Units()
        self._n_waits: dict[int, int] = {}
        """Nodes that a unit still waits for."""
        self._ready_nodes: list[tuple[int, float, int]] = []
        self._ready_units: deque[int] = deque()
        self._unit_sizer = BatchSizer()
        self._seconds: dict[int, deque[float]] = {}
        self._released: list[int] = []
        self.n_units_left = 0
        self.memory_bytes = 0
        """Of outputs in memory."""
        self.is_fed = False
        """Whether the whole batch is known."""
        self._is_abandoned = False

    @property
    def n_units(self) -> int:
        return len(self._units)

    @property
    def n_ready(self) -> int:
        return len(self._ready_nodes) + len(self._ready_units)

    @property
    def unit_s(self) -> float | None:
        """Median duration of a unit; None: not known yet."""
        return self._unit_sizer.median_trial_s

    def unit(self, index: int) -> FitUnit | None:
        """A unit; None once it is settled."""
        return self._units.get(index)

    def place(self, index: int) -> int:
        """Number of a unit among those of its candidate: two may have equal parameters and fold."""
        return self._units.place(index)

    def node(self, index: int) -> FitNode:
        return self._nodes[index].spec

    def n_users(self, index: int) -> int:
        return len(self._nodes[index].users)

    def outputs(self, nodes: Iterable[int]) -> tuple[int, ...]:
        """Prefixes of those nodes whose outputs are kept."""
        return tuple(
            self._nodes[index].spec.prefix
            for index in nodes
            if (result := self._nodes[index].result) is not None and result.where != "nowhere"
        )

    # -- in --------------------------------------------------------------------------------------

    def add(
        self, nodes: Sequence[FitNode], units: Sequence[FitUnit], done: frozenset[int] = frozenset()
    ) -> None:
        """Take in a part of the batch; units at the indices ``done`` need not be computed."""
        first = len(self._nodes)
        for offset, spec in enumerate(nodes):
            node = _Node(spec)
            self._nodes.append(node)
            for parent in spec.parents:
                above = self._nodes[parent]
                above.users.append(Piece(True, first + offset))
                above.n_users_left += 1
                node.depth = max(node.depth, above.depth + 1)
                node.n_waits_for += above.result is None
        for unit in units:
            self._add_unit(unit, len(self._units) in done)

    def _add_unit(self, unit: FitUnit, is_done: bool) -> None:
        index = len(self._units)
        self._units.add(unit, is_done)
        if is_done:
            return
        self.n_units_left += 1
        n_waits = 0
        for each in unit.nodes:
            node = self._nodes[each]
            node.users.append(Piece(False, index))
            node.n_users_left += 1
            n_waits += node.result is None
        if n_waits:
            self._n_waits[index] = n_waits
        else:
            self._ready_units.append(index)

    def begin(self) -> None:
        """All parts are in: what waits for nothing can run, unless nobody needs it."""
        self.is_fed = True
        for index in reversed(range(len(self._nodes))):
            if not self._nodes[index].n_users_left:
                self._drop(index)
        for index, node in enumerate(self._nodes):
            if node.result is None and not node.n_waits_for:
                self._push(index)

    def _drop(self, index: int) -> None:
        """A node that nobody uses (its units were done before) is not computed."""
        node = self._nodes[index]
        node.result = NodeResult("nowhere")
        for parent in node.spec.parents:
            self._let_go(parent)

    def _push(self, index: int) -> None:
        node = self._nodes[index]
        heapq.heappush(self._ready_nodes, (node.depth, -self._estimate(node.spec.prefix), index))

    # -- out -------------------------------------------------------------------------------------

    def next_pieces(self, n_slots: int, bound_bytes: int) -> list[Piece]:
        """Jobs for one assignment; all nodes or all units, empty when nothing is ready."""
        units_first = self.memory_bytes > bound_bytes * _UNITS_FIRST_SHARE
        if self._ready_nodes and not (units_first and self._ready_units):
            return [Piece(True, index) for index in self._next_nodes(n_slots)]
        n_ready = len(self._ready_units)
        size = self._unit_sizer.next_size(n_ready, 2 * n_slots) if n_ready else 0
        return [Piece(False, self._ready_units.popleft()) for _ in range(min(size, n_ready))]

    def _next_nodes(self, n_slots: int) -> list[int]:
        share = max(1, -(-len(self._ready_nodes) // (2 * n_slots)))
        chosen: list[int] = []
        total_s = 0.0
        while self._ready_nodes and len(chosen) < share:
            index = self._ready_nodes[0][2]
            seconds = self._estimate(self._nodes[index].spec.prefix)
            if chosen and total_s + seconds > _CHUNK_S:
                break
            heapq.heappop(self._ready_nodes)
            chosen.append(index)
            total_s += seconds
        return chosen

    def _estimate(self, prefix: int) -> float:
        """Seconds that a prefix takes on a fold; long as long as nobody knows."""
        seen = self._seconds.get(prefix)
        return median(seen) if seen else 1e6 - prefix

    def put_back(self, pieces: Iterable[Piece]) -> None:
        """Jobs that were sent and not done."""
        if self._is_abandoned:
            return
        for piece in pieces:
            if piece.is_node:
                self._push_again(piece.index)
            elif self._units.get(piece.index) is not None:
                self._ready_units.appendleft(piece.index)

    def _push_again(self, index: int) -> None:
        """A node whose process was lost; nobody may need it any more."""
        node = self._nodes[index]
        if node.result is None and not node.n_users_left:
            self._drop(index)
        elif node.result is None:
            self._push(index)

    # -- results ---------------------------------------------------------------------------------

    def settle_node(self, index: int, result: NodeResult) -> None:
        """A node was computed, or could not be."""
        node = self._nodes[index]
        if node.result is not None:
            return
        node.result = result
        if result.where == "memory":
            self.memory_bytes += result.size_bytes
        if result.duration_s:
            seen = self._seconds.setdefault(node.spec.prefix, deque(maxlen=_N_SEEN))
            seen.append(result.duration_s)
        for parent in node.spec.parents:
            self._let_go(parent)
        if not self._is_abandoned:
            for user in node.users:
                self._told(user, result.reason)
        # Its users may be gone already, where something else that they need has failed.
        self._release_unused(index)

    def _told(self, user: Piece, reason: Literal["", "failed", "random", "bound"]) -> None:
        """One of what ``user`` waits for is there."""
        if not user.is_node:
            if user.index not in self._n_waits:
                return  # its candidate was stopped
            left = self._n_waits[user.index] = self._n_waits[user.index] - 1
            if not left:
                del self._n_waits[user.index]
                self._ready_units.append(user.index)
            return
        node = self._nodes[user.index]
        node.n_waits_for -= 1
        if reason in ("failed", "random"):
            # What comes behind it would fail, or differ from fit to fit, as well.
            self.settle_node(user.index, NodeResult("nowhere", reason=reason))
        elif not node.n_waits_for and node.result is None:
            self._push(user.index)

    def settle_unit(self, index: int) -> FitUnit | None:
        """A unit has its outcome; None when it had one before."""
        unit = self._units.settle(index)
        if unit is None:
            return None
        self.n_units_left -= 1
        for each in unit.nodes:
            self._let_go(each)
        return unit

    def stop_candidate(self, candidate: int) -> list[int]:
        """Settle what a candidate has no outcome for; returns these units."""
        stopped = self._units.open_of(candidate)
        for index in stopped:
            self._n_waits.pop(index, None)
            self.settle_unit(index)
        gone = frozenset(stopped)
        self._ready_units = deque(i for i in self._ready_units if i not in gone)
        if self.is_fed:  # before, others may come that use them
            self._drop_unused()
        return stopped

    def has_open(self, candidate: int) -> bool:
        """Whether a candidate has units without an outcome."""
        return bool(self._units.open_of(candidate))

    def abandon(self) -> None:
        """Nobody waits for the batch any more: nothing of it is begun, or kept."""
        self._is_abandoned = True
        self._ready_nodes.clear()
        self._ready_units.clear()
        self._n_waits.clear()
        for index in range(len(self._nodes)):
            self._release_unused(index)

    def _drop_unused(self) -> None:
        """Nodes that nobody needs any more are not begun; one that runs is let go when it ends."""
        ready = {index for _, _, index in self._ready_nodes}
        for index in reversed(range(len(self._nodes))):
            node = self._nodes[index]
            is_begun = not node.n_waits_for and index not in ready
            if node.result is None and not node.n_users_left and not is_begun:
                self._drop(index)
        self._ready_nodes = [
            entry for entry in self._ready_nodes if self._nodes[entry[2]].result is None
        ]
        heapq.heapify(self._ready_nodes)

    def _let_go(self, index: int) -> None:
        self._nodes[index].n_users_left -= 1
        self._release_unused(index)

    def _release_unused(self, index: int) -> None:
        node = self._nodes[index]
        result = node.result
        is_used = node.n_users_left > 0 and not self._is_abandoned
        if is_used or result is None or node.is_released or result.where == "nowhere":
            return
        node.is_released = True
        self._released.append(index)
        if result.where == "memory":
            self.memory_bytes -= result.size_bytes

    def take_released(self) -> list[FitNode]:
        """Nodes whose last user is done, since the last call."""
        released, self._released = self._released, []
        return [self._nodes[index].spec for index in released]

    def observe_units(self, n_units: int, seconds: float) -> None:
        """An assignment of ``n_units`` took ``seconds``."""
        self._unit_sizer.observe(n_units, seconds)
