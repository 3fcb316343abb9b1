"""A cell of fits in virtual time: what a kernel feeds, fetches, and does not wait for any more."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.protocol.fit import FeedFit, FinishFit, FitCandidate, FitNode, FitUnit, TakeFit
from jupyter_ddl.protocol.fit_results import FitResults, TakenUnit
from jupyter_ddl.protocol.requests import FitBody
from jupyter_ddl.protocol.run import RunSpec

__all__ = ["FedBatch", "KernelWorld", "SimulatedKernel", "outcome_of"]


class FedBatch:
    """A batch as the kernel knows it."""

    def __init__(self, rng: Random, number: int, first_candidate: int) -> None:
        n_folds = rng.randint(1, 3)
        values = [rng.randint(0, 3) for _ in range(rng.randint(1, 4))]
        self.is_whole = rng.random() < 0.1
        n_prefixes = rng.choice([0, 0, 1, 2, 3])
        parents = [tuple(p for p in range(i) if rng.random() < 0.6) for i in range(n_prefixes)]
        self.nodes = tuple(
            FitNode(prefix, fold, tuple(fold * n_prefixes + p for p in parents[prefix]))
            for fold in range(n_folds)
            for prefix in range(n_prefixes)
        )
        # Two fits of a candidate may be the same, as in ``cv=[(train, test)] * 2``.
        folds = [*range(n_folds), *(rng.randrange(n_folds) for _ in range(rng.randint(0, 2)))]
        units: list[FitUnit] = []
        for fold in folds:
            for candidate, value in enumerate(values):
                prefix = candidate % n_prefixes if n_prefixes else None
                nodes = () if prefix is None else (fold * n_prefixes + prefix,)
                key = f"{number}-{value}-{fold}".encode().ljust(16, b".")
                units.append(FitUnit(candidate, fold, nodes, key))
        self.units = tuple(units)
        self.number = number
        self.first_candidate = first_candidate
        n_units = Counter(unit.candidate for unit in units)
        self.candidates = tuple(
            FitCandidate({"v": value}, n_units[i], is_whole=self.is_whole)
            for i, value in enumerate(values)
        )
        self.size = rng.choice([1, 3, 100])
        self.done: dict[int, TakenUnit] = {}

    def feeds(self, run_id: str, cell_id: str, imports: bool) -> list[FeedFit]:
        starts = range(0, len(self.units), self.size)
        return [
            FeedFit(
                run_id=run_id,
                batch=self.number,
                part=part,
                table="t",
                candidates=self.candidates if part == 0 else (),
                first_candidate=self.first_candidate,
                nodes=self.nodes if part == 0 else (),
                units=self.units[start : start + self.size],
                imports=("sklearn",) if imports and part == 0 else (),
                is_last=start == starts[-1],
                cell_id=cell_id,
            )
            for part, start in enumerate(starts)
        ]


class KernelWorld(Protocol):
    """The cluster, as the kernel sees it."""

    rng: Random
    spec: RunSpec
    cell_id: str
    parts: list[FedBatch]
    is_alive: bool
    """Whether the kernel is."""
    is_over: bool
    was_stopped: bool
    stopped_trials: set[int]
    was_given_up: set[int]

    def ask(self, body: FitBody) -> None:
        """Send a request to the controller."""
        ...

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """Do something in a while."""
        ...


def outcome_of(part: FedBatch, candidate: int, fold: int) -> bytes:
    return f"{part.number}:{part.candidates[candidate].params['v']}:{fold}".encode()


class SimulatedKernel:
    """The cell, as ``FitRun`` does it."""

    def __init__(self, world: KernelWorld) -> None:
        self._world = world
        self._rng = world.rng
        self.n_requests = 0
        self._current = 0
        self._feeds: deque[FeedFit] = deque()
        self._n_taken = 0
        self.is_over = False
        self._ending = ""
        self.state = "complete"
        self._take_s = self._rng.choice([0.25, 5.0])
        """How long a request for outcomes waits for some: as ``FitRun``'s, and a patient one's."""

    @property
    def _part(self) -> FedBatch:
        return self._world.parts[self._current]

    def begin_batch(self) -> None:
        imports = self._rng.random() < 0.5
        self._feeds = deque(self._part.feeds("f1", self._world.cell_id, imports))
        self._n_taken = 0
        self._go_on()

    def controller_lost(self) -> None:
        """Told again what was told before."""
        if not self.is_over:
            self._world.later(0.2, self._finish if self._ending else self.begin_batch)

    def _go_on(self) -> None:
        world, part = self._world, self._part
        if not world.is_alive:
            self.is_over = True
        elif self._feeds:
            world.ask(self._feeds[0])
        elif len(part.done) < len(part.units):
            world.ask(TakeFit("f1", part.number, self._n_taken, self._take_s))
        else:
            world.ask(FinishFit("f1", batch=part.number))

    def replied(self, body: FitBody, results: FitResults | None) -> None:
        world, part = self._world, self._part
        if not world.is_alive:
            self.is_over = True
            return
        match body:
            case FeedFit():
                self._feeds.popleft()
                self._go_on()
            case TakeFit():
                assert results is not None
                self._taken(part, results)
            case FinishFit(batch=None):
                self.is_over = True
            case FinishFit():
                self._batch_over()

    def _taken(self, part: FedBatch, results: FitResults) -> None:
        world = self._world
        self._n_taken += len(results.units)
        is_raised = False
        for unit in results.units:
            if unit.unit not in part.done:
                part.done[unit.unit] = unit
            spec = part.units[unit.unit]
            if unit.is_stopped:
                assert world.stopped_trials, "a unit was left out, and nobody has stopped any"
            elif unit.lost is None:
                assert unit.outcome == outcome_of(part, spec.candidate, spec.fold), (
                    "another's outcome"
                )
            is_raised |= unit.has_raised
        assert len({u.unit for u in results.units}) == len(results.units), "an outcome came twice"
        if results.is_stopped:
            assert world.was_stopped or world.spec.limits.timeout_s is not None
            self.is_over = True
        elif is_raised:
            self.state = "failed"
            world.was_given_up.add(part.number)
            world.ask(FinishFit("f1", batch=part.number))
        else:
            self._go_on()

    def _batch_over(self) -> None:
        world = self._world
        if self.state == "failed" and self._rng.random() < 0.5:
            self._finish()
        elif self._current + 1 < len(world.parts):
            self._current += 1
            self.begin_batch()
        else:
            self._finish()

    def _finish(self) -> None:
        self._ending = self.state
        ending: Any = self.state
        self._world.ask(FinishFit("f1", ending))

    def refused(self, body: FitBody, error: JupyterDDLError) -> None:
        world = self._world
        stopped = world.was_stopped or world.spec.limits.timeout_s is not None
        assert stopped or world.is_over or not world.is_alive, error.message
        self.is_over = True
