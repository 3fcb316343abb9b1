"""The way down for fits: nodes and units to workers with a free slot, what became of them back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from jupyter_ddl.drivers.assigning import RunContext, make_assignment
from jupyter_ddl.drivers.fit_batch import FitBatch
from jupyter_ddl.drivers.fit_graph import Piece
from jupyter_ddl.drivers.fit_outputs import Outputs
from jupyter_ddl.drivers.service import WorkerService
from jupyter_ddl.driving.dispatcher import WorkerLostError
from jupyter_ddl.protocol.assignment import (
    StopRun,
    StopTrial,
    StopWhen,
    TrialAssignment,
    derive_seed,
)
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Failure,
    Notice,
    RankEvent,
    WorkerLeaving,
)
from jupyter_ddl.protocol.fit import FitItem, FitWork
from jupyter_ddl.protocol.fit_results import NodeResult, UnitResult
from jupyter_ddl.protocol.run import RunSpec

__all__ = ["FitSender", "PieceDone"]

log = logging.getLogger(__name__)

_DEPTH = 2
"""One assignment runs at a worker and one waits there, so that no slot is ever idle."""
_MAX_CRASHES = 2
_DROP_TIMEOUT_S = 20.0
_RESULT: msgspec.msgpack.Decoder[NodeResult | UnitResult] = msgspec.msgpack.Decoder(
    NodeResult | UnitResult
)


@dataclass(frozen=True, slots=True)
class PieceDone:
    """What became of a piece; without a result it is lost, with ``failure``."""

    batch: FitBatch
    piece: Piece
    at_s: float
    duration_s: float
    node: NodeResult | None = None
    unit: UnitResult | None = None
    failure: Failure | None = None
    log: str = ""
    log_start: int = 0
    log_end: int | None = None


@dataclass(slots=True)
class _Flight:
    batch: FitBatch
    worker: str
    pieces: dict[int, Piece]
    """Not done yet, by number."""
    logs: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Log and where in it the output begins, by number."""
    started_s: float | None = None
    n_units: int = 0
    is_over: asyncio.Event = field(default_factory=asyncio.Event)


class FitSender(WorkerService):
    """Keeps the slots of one run busy.

    Parameters
    ----------
    on_done : callable
        Takes each piece that is done for good.
    """

    def __init__(
        self,
        spec: RunSpec,
        context: RunContext,
        outputs: Outputs,
        session: int,
        on_done: Callable[[PieceDone], None],
        wake: Callable[[], None],
    ) -> None:
        super().__init__(spec.run_id, context)
        self._spec = spec
        self._outputs = outputs
        self._session = session
        self._on_done = on_done
        self._wake = wake
        self._n_assignments = 0
        self._n_pieces = 0
        self._crashes: dict[tuple[int, Piece], int] = {}
        self._flights: list[_Flight] = []
        self._is_stopped = False
        self._n_dropping = 0
        self.on_started: Callable[[FitBatch, Piece, AttemptStarted], None] = lambda *_: None
        self.on_notice: Callable[[Sequence[Event]], None] = lambda _: None

    def __len__(self) -> int:
        """Assignments on their way."""
        return len(self._flights)

    # -- assignments -----------------------------------------------------------------------------

    def fill(self, batches: Sequence[FitBatch]) -> None:
        """Send assignments as long as there are a place and something for it."""
        slots, run_id = self._context.slots, self._spec.run_id
        if self._n_dropping:
            return
        n_parallel = self._spec.verb.max_parallel or max(1, slots.n_slots)
        for batch in batches:
            while batch.graph.n_ready:
                address = slots.take(run_id, _DEPTH, n_parallel)
                if address is None:
                    return
                pieces = batch.graph.next_pieces(n_parallel, self._outputs.bound_bytes)
                if not pieces:
                    slots.give(run_id, address)
                    break
                self._launch(batch, pieces, address)
        slots.withdraw(run_id)

    def _launch(self, batch: FitBatch, pieces: Sequence[Piece], address: str) -> None:
        self._n_assignments += 1
        numbered = {self._n_pieces + 1 + i: piece for i, piece in enumerate(pieces)}
        self._n_pieces += len(pieces)
        items = tuple(self._item(batch, number, piece) for number, piece in numbered.items())
        trials = [
            TrialAssignment(item.number, 1, {}, derive_seed(self._spec.seed, _seed_number(item)))
            for item in items
        ]
        name = f"{self._spec.run_id}-{self._session}-{self._n_assignments}"
        assignment = make_assignment(
            self._spec, self._context, trials, name, fresh=False, best_value=None
        )
        work = FitWork(
            table=batch.table,
            batch=batch.number,
            items=items,
            spill_dir=str(self._outputs.spill_dir),
            memory_left_bytes=self._outputs.left_bytes,
        )
        assignment = msgspec.structs.replace(assignment, fit=work)
        n_units = 0 if pieces[0].is_node else len(pieces)
        flight = _Flight(batch, address, numbered, n_units=n_units)
        self._flights.append(flight)
        self._served.add(address)
        self._spawn(self._fly(flight, assignment))

    def _item(self, batch: FitBatch, number: int, piece: Piece) -> FitItem:
        graph = batch.graph
        if piece.is_node:
            node = graph.node(piece.index)
            return FitItem(
                number=number,
                candidate=-1,
                fold=node.fold,
                prefix=node.prefix,
                have=graph.outputs(node.parents),
                n_users=graph.n_users(piece.index),
            )
        unit = graph.unit(piece.index)
        if unit is None:
            raise ValueError(f"unit {piece.index} was settled before it was sent")
        return FitItem(number, unit.candidate, unit.fold, have=graph.outputs(unit.nodes))

    async def _fly(self, flight: _Flight, assignment: Any) -> None:
        try:
            await self._context.dispatcher.execute(
                assignment, flight.worker, lambda events: self._observe(flight, events)
            )
        except WorkerLostError as error:
            log.info("%s: %s", self._spec.run_id, error.message)
            if flight.pieces:
                text = f"a worker was lost; {len(flight.pieces)} fits of it are done again"
                self.on_notice([Notice(time.time(), text, "warning")])
        except Exception:  # the wall of a loop task: its pieces must not be lost with it
            log.exception("%s: an assignment failed", self._spec.run_id)
        finally:
            self._land(flight)

    def _land(self, flight: _Flight) -> None:
        if flight in self._flights:
            self._flights.remove(flight)
        if not flight.batch.is_given_up and not self._is_stopped:
            flight.batch.graph.put_back(flight.pieces.values())
        n_done = flight.n_units - len(flight.pieces)
        if n_done > 0 and flight.started_s is not None:
            flight.batch.graph.observe_units(n_done, time.monotonic() - flight.started_s)
        flight.is_over.set()
        self._context.slots.give(self._spec.run_id, flight.worker)
        self._context.wake_all()

    # -- events ----------------------------------------------------------------------------------

    def _observe(self, flight: _Flight, events: Sequence[RankEvent]) -> None:
        for event in events:
            match event:
                case AttemptStarted(trial=number) if number in flight.pieces:
                    flight.started_s = flight.started_s or time.monotonic()
                    flight.logs[number] = event.log, event.log_start
                    self._started(flight, number, event)
                case AttemptFinished(trial=number) if number in flight.pieces:
                    self._finished(flight, event)
                case Notice():
                    self.on_notice([event])
                case WorkerLeaving():
                    self._context.slots.retire(flight.worker)
        self._wake()

    def _finished(self, flight: _Flight, event: AttemptFinished) -> None:
        if event.outcome in ("evicted", "cancelled", "moved", "pruned"):
            return  # it goes back with the assignment
        piece = flight.pieces[event.trial]
        result = _RESULT.decode(event.result) if event.outcome == "complete" else None
        if result is None and not self._is_lost(flight.batch, piece, event):
            return
        del flight.pieces[event.trial]
        log, log_start = flight.logs.pop(event.trial, ("", 0))
        self._on_done(
            PieceDone(
                batch=flight.batch,
                piece=piece,
                at_s=event.at_s,
                duration_s=event.duration_s,
                node=result if isinstance(result, NodeResult) else None,
                unit=result if isinstance(result, UnitResult) else None,
                failure=event.failure,
                log=log,
                log_start=log_start,
                log_end=event.log_end,
            )
        )

    def _is_lost(self, batch: FitBatch, piece: Piece, event: AttemptFinished) -> bool:
        """Whether a piece whose process died is given up; too much memory is no accident."""
        kind = "crash" if event.failure is None else event.failure.kind
        key = batch.number, piece
        self._crashes[key] = self._crashes.get(key, 0) + 1
        return kind == "memory" or self._crashes[key] >= _MAX_CRASHES

    # -- signals ---------------------------------------------------------------------------------

    def _started(self, flight: _Flight, number: int, event: AttemptStarted) -> None:
        piece = flight.pieces[number]
        if not piece.is_node and flight.batch.graph.unit(piece.index) is None:
            self._stop_piece(flight, number)  # its candidate was stopped before it began
        else:
            self.on_started(flight.batch, piece, event)

    def stop_units(self, batch: FitBatch, units: Sequence[int]) -> None:
        """End units that have begun; those on their way are ended when they begin."""
        stopped = {Piece(False, index) for index in units}
        for flight in self._flights:
            for number in flight.logs if flight.batch is batch else ():
                if flight.pieces.get(number) in stopped:
                    self._stop_piece(flight, number)

    def _stop_piece(self, flight: _Flight, number: int) -> None:
        stop = StopTrial(self._spec.run_id, number, 1, "cancelled", "now")
        self._spawn(self._context.dispatcher.control(flight.worker, stop))

    def drop(self, batch: FitBatch) -> None:
        """Nobody waits for a batch any more: end what runs of it."""
        flying = [flight for flight in self._flights if flight.batch is batch]
        if flying:
            self._spawn(self._drop(flying))

    async def _drop(self, flying: Sequence[_Flight]) -> None:
        self._n_dropping += 1
        workers = {flight.worker for flight in flying}
        control, run_id = self._context.dispatcher.control, self._spec.run_id
        try:
            await asyncio.gather(*(control(w, StopRun(run_id, "now")) for w in workers))
            landed = [asyncio.create_task(flight.is_over.wait()) for flight in flying]
            _, late = await asyncio.wait(landed, timeout=_DROP_TIMEOUT_S)
            for task in late:
                task.cancel()
            # A stopped run's workers begin nothing of it for a while, unless this is said.
            await asyncio.gather(*(control(w, StopRun(run_id, is_over=True)) for w in workers))
        finally:
            self._n_dropping -= 1
            self._wake()

    def stop_all(self, when: StopWhen) -> None:
        """Begin nothing more; with ``now``, end what runs."""
        self._is_stopped = True
        stop = StopRun(run_id=self._spec.run_id, when=when)
        for worker in {flight.worker for flight in self._flights}:
            self._spawn(self._context.dispatcher.control(worker, stop))


def _seed_number(item: FitItem) -> int:
    """A number that belongs to what is computed, not to when: seeds must not depend on timing."""
    kind = item.candidate if item.prefix is None else -1 - item.prefix
    return hash((kind, item.fold)) & 0x7FFFFFFF
