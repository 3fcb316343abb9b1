"""The way down for fits: nodes and units to free slots, and what becomes of them.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from jupyter_ddl.driving.assignments import RunContext, make_assignment
from jupyter_ddl.driving.fit_candidates import FitBatch, Outputs
from jupyter_ddl.driving.fit_graph import Piece
from jupyter_ddl.driving.leases import AttemptLease
from jupyter_ddl.driving.machine import (
    Abandon,
    AskHeld,
    EndWorker,
    Now,
    Send,
    Signal,
    WakeOthers,
    earliest,
)
from jupyter_ddl.formats import format_counted
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
    Failure,
    Notice,
    RankEvent,
    WorkerLeaving,
)
from jupyter_ddl.protocol.fit import FitItem, FitWork
from jupyter_ddl.protocol.fit_results import NodeResult, UnitResult
from jupyter_ddl.protocol.reading import msgpack_decoder
from jupyter_ddl.protocol.run import RunSpec

__all__ = ["FitFlights", "FlightInstruction", "PieceBegun", "PieceDone"]

_DEPTH = 2
"""One assignment runs at a worker and one waits there, so that no slot is ever idle."""
_MAX_CRASHES = 2
_RESULT: msgspec.msgpack.Decoder[NodeResult | UnitResult] = msgpack_decoder(NodeResult | UnitResult)

FlightInstruction: TypeAlias = Send | Abandon | EndWorker | Signal | WakeOthers


@dataclass(frozen=True, slots=True)
class PieceBegun:
    """A rank has begun a piece."""

    batch: FitBatch
    piece: Piece
    event: AttemptStarted


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
    name: str
    batch: FitBatch
    worker: str
    pieces: dict[int, Piece]
    """Not done yet, by number."""
    lease: AttemptLease
    logs: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Log and where in it the output begins, of pieces that run, by number."""
    evicted: set[int] = field(default_factory=set)
    started_s: float | None = None
    n_units: int = 0
    is_given_up: bool = False

    @property
    def doubt(self) -> str:
        """What is to be told of its lease; empty while its worker does what it was sent for."""
        if not self.pieces or not (self.lease.is_doubted or self.lease.is_over):
            return ""
        return self.lease.text(self.worker, format_counted(len(self.pieces), "fit"))


class FitFlights:
    """Assignments of one run that are on their way.

    Parameters
    ----------
    session : int
        Of the run; names of assignments differ from one to the next.
    do : callable
        Takes instructions.
    ask : callable
        Takes questions; their answers go to :meth:`held`.
    """

    def __init__(
        self,
        spec: RunSpec,
        context: RunContext,
        outputs: Outputs,
        session: int,
        do: Callable[[FlightInstruction], None],
        ask: Callable[[AskHeld], object],
    ) -> None:
        self._spec = spec
        self._context = context
        self._outputs = outputs
        self._session = session
        self._do = do
        self._ask = ask
        self._n_assignments = 0
        self._n_pieces = 0
        self._crashes: dict[tuple[int, Piece], int] = {}
        self._losses: dict[tuple[int, Piece], int] = {}
        self._flights: dict[str, _Flight] = {}
        self._is_stopped = False
        self.served: set[str] = set()
        """Addresses of workers that have had work of this run."""

    def __len__(self) -> int:
        """Assignments on their way."""
        return len(self._flights)

    def __contains__(self, assignment_id: str) -> bool:
        return assignment_id in self._flights

    def has(self, batch: FitBatch) -> bool:
        """Whether anything of a batch is on its way."""
        return any(flight.batch is batch for flight in self._flights.values())

    # -- assignments -----------------------------------------------------------------------------

    def fill(self, batches: Sequence[FitBatch], now: Now) -> None:
        """Send assignments as long as there are a place and something for it."""
        slots, run_id = self._context.slots, self._spec.run_id
        n_parallel = self._spec.verb.max_parallel or max(1, slots.n_slots)
        for batch in batches:
            while batch.graph.n_ready:
                address = slots.take(run_id, _DEPTH, n_parallel)
                if address is None:
                    return
                pieces = batch.graph.next_pieces(n_parallel, self._outputs.bound_bytes)
                self._launch(batch, pieces, address, now)
        slots.withdraw(run_id)

    def _launch(self, batch: FitBatch, pieces: Sequence[Piece], address: str, now: Now) -> None:
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
            spill_dir=str(self._context.run_dir / "spill"),
            memory_left_bytes=self._outputs.left_bytes,
        )
        n_units = 0 if pieces[0].is_node else len(pieces)
        lease = AttemptLease(self._context.attempt_lease_s, now.mono_s)
        self._flights[name] = _Flight(name, batch, address, numbered, lease, n_units=n_units)
        self._outputs.may_have_any |= pieces[0].is_node
        self.served.add(address)
        self._do(Send(msgspec.structs.replace(assignment, fit=work), address))

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

    def ended(self, name: str, lost: str, now: Now) -> Iterator[PieceDone | Notice]:
        """An assignment is over: what it has not done is done again, but not forever."""
        flight = self._flights.pop(name)
        if lost and flight.pieces and not flight.batch.is_given_up and not self._is_stopped:
            n_again = format_counted(len(flight.pieces), "fit")
            text = flight.doubt or f"a worker was lost; {n_again} of it are done again"
            yield Notice(now.wall_s, text)
        at_fault = set(flight.evicted)
        if lost:
            at_fault |= set(flight.logs) or set(flight.pieces)
        for number in sorted(at_fault & flight.pieces.keys()):
            piece = flight.pieces[number]
            key = flight.batch.number, piece
            self._losses[key] = n_lost = self._losses.get(key, 0) + 1
            if n_lost > self._spec.limits.max_evictions:
                del flight.pieces[number]
                text = f"its process was lost {n_lost} times; the last time: {lost or 'evicted'}"
                failure = Failure("launch", "WorkerLostError", text)
                yield PieceDone(flight.batch, piece, now.wall_s, 0.0, failure=failure)
        if not flight.batch.is_given_up and not self._is_stopped:
            flight.batch.graph.put_back(flight.pieces.values())
            self._outputs.release(flight.batch)
        n_done = flight.n_units - len(flight.pieces)
        if n_done > 0 and flight.started_s is not None:
            flight.batch.graph.observe_units(n_done, max(0.0, now.mono_s - flight.started_s))
        self._context.slots.give(self._spec.run_id, flight.worker)
        self._do(WakeOthers())

    # -- events ----------------------------------------------------------------------------------

    def arrived(
        self, name: str, events: Sequence[RankEvent], now: Now
    ) -> Iterator[PieceBegun | PieceDone | Notice]:
        """What events of an assignment mean; those of pieces that are done mean nothing."""
        flight = self._flights.get(name)
        if flight is None:
            return
        flight.lease.heard(now.mono_s)
        for event in events:
            match event:
                case AttemptStarted(trial=number) if number in flight.pieces:
                    if flight.started_s is None:
                        flight.started_s = now.mono_s
                    flight.logs[number] = event.log, event.log_start
                    if self._is_wanted(flight, number):
                        yield PieceBegun(flight.batch, flight.pieces[number], event)
                    else:
                        self._stop_piece(flight, number)
                case AttemptFinished(trial=number) if number in flight.pieces:
                    if (done := self._finished(flight, event)) is not None:
                        yield done
                case Notice():
                    yield event
                case WorkerLeaving():
                    self._context.slots.retire(flight.worker)

    def _finished(self, flight: _Flight, event: AttemptFinished) -> PieceDone | None:
        if event.outcome in ("evicted", "cancelled", "moved", "pruned"):
            if event.outcome == "evicted":
                flight.evicted.add(event.trial)
            return None  # it goes back with the assignment
        piece = flight.pieces[event.trial]
        result = _result_of(event)
        log, log_start = flight.logs.pop(event.trial, ("", 0))
        if result is None and not self._is_lost(flight.batch, piece, event):
            return None
        del flight.pieces[event.trial]
        return PieceDone(
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

    def _is_lost(self, batch: FitBatch, piece: Piece, event: AttemptFinished) -> bool:
        """Whether a piece whose process died is given up; too much memory is no accident."""
        kind = "crash" if event.failure is None else event.failure.kind
        key = batch.number, piece
        self._crashes[key] = self._crashes.get(key, 0) + 1
        return kind == "memory" or self._crashes[key] >= _MAX_CRASHES

    # -- leases ----------------------------------------------------------------------------------

    @property
    def due_s(self) -> float | None:
        """When :meth:`poll` has something to do."""
        return earliest(*(flight.lease.due_s for flight in self._flights.values()))

    @property
    def doubt(self) -> str:
        """Which worker does not say that it does its work; empty: none."""
        return next(filter(None, (flight.doubt for flight in self._flights.values())), "")

    def poll(self, now: Now) -> None:
        """Ask for silent assignments; those whose lease is over are repeated elsewhere."""
        for flight in self._flights.values():
            action = flight.lease.poll(now.mono_s)
            if action == "ask":
                self._ask(AskHeld(flight.name))
            elif action == "end":
                self._give_up(flight)

    def held(self, name: str, now: Now, *, is_held: bool) -> None:
        """What a worker says of an assignment; no answer in time is none that it is held."""
        if (flight := self._flights.get(name)) is not None:
            is_leaving = self._context.slots.is_leaving(flight.worker)
            stuck = flight.started_s is None and is_leaving
            flight.lease.answered(now.mono_s, is_held=is_held and not stuck)

    def _give_up(self, flight: _Flight) -> None:
        """Wait for an assignment no longer, and end its worker: what is behind it never begins."""
        if not flight.is_given_up:
            flight.is_given_up = True
            self._context.slots.retire(flight.worker)
            self._do(Abandon(flight.name))
            self._do(EndWorker(flight.worker))

    # -- signals ---------------------------------------------------------------------------------

    @staticmethod
    def _is_wanted(flight: _Flight, number: int) -> bool:
        piece, batch = flight.pieces[number], flight.batch
        is_stopped = not piece.is_node and batch.graph.unit(piece.index) is None
        return not batch.is_given_up and not is_stopped

    def stop_units(self, batch: FitBatch, units: Sequence[int]) -> None:
        """End units that have begun; those on their way are ended when they begin."""
        stopped = {Piece(False, index) for index in units}
        for flight in self._flights.values():
            for number in flight.logs if flight.batch is batch else ():
                if flight.pieces.get(number) in stopped:
                    self._stop_piece(flight, number)

    def _stop_piece(self, flight: _Flight, number: int) -> None:
        stop = StopTrial(self._spec.run_id, number, 1, "cancelled", "now")
        self._do(Signal(flight.worker, (stop,)))

    def stop_batch(self, batch: FitBatch) -> tuple[str, ...]:
        """End all that runs at the workers of a batch; returns these workers."""
        workers = tuple({f.worker: None for f in self._flights.values() if f.batch is batch})
        for worker in workers:
            self._do(Signal(worker, (StopRun(self._spec.run_id, "now"),)))
        return workers

    def stop_all(self, when: StopWhen) -> None:
        """Begin nothing more; with ``now``, end what runs."""
        self._is_stopped = True
        stop = StopRun(run_id=self._spec.run_id, when=when)
        for worker in {flight.worker: None for flight in self._flights.values()}:
            self._do(Signal(worker, (stop,)))

    def abandon(self, batch: FitBatch | None = None) -> None:
        """Wait no longer for what had its time to stop."""
        for flight in self._flights.values():
            if batch is None or flight.batch is batch:
                self._give_up(flight)


def _result_of(event: AttemptFinished) -> NodeResult | UnitResult | None:
    """What a piece came to; None without a result, or with what no honest worker would send."""
    if event.outcome != "complete":
        return None
    try:
        return _RESULT.decode(event.result)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _seed_number(item: FitItem) -> int:
    """A number that belongs to what is computed, not to when: seeds must not depend on timing."""
    kind = item.candidate if item.prefix is None else -1 - item.prefix
    return hash((kind, item.fold)) & 0x7FFFFFFF
