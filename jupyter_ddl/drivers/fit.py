"""Drives the fits of one cell: the kernel feeds batches, units come back as they are done.

As everywhere, an outcome counts once it is committed; only then may the kernel fetch it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from jupyter_ddl.drivers.assigning import RunContext
from jupyter_ddl.drivers.driving import RunDriver
from jupyter_ddl.drivers.fit_batch import FitBatch
from jupyter_ddl.drivers.fit_candidates import Candidates
from jupyter_ddl.drivers.fit_client import FitClient
from jupyter_ddl.drivers.fit_graph import Piece
from jupyter_ddl.drivers.fit_outputs import Outputs
from jupyter_ddl.drivers.fit_records import FitRecords
from jupyter_ddl.drivers.fit_sending import FitSender, PieceDone
from jupyter_ddl.driving.shell import read_clocks
from jupyter_ddl.errors import SpecError
from jupyter_ddl.ledger.file import LedgerWriter
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import encoded_snapshot, with_totals
from jupyter_ddl.protocol.assignment import Prewarm, StopWhen
from jupyter_ddl.protocol.events import AttemptStarted, Event, Notice, RunFinished, StopRequested
from jupyter_ddl.protocol.fit import FeedFit, FinishFit, TakeFit, TellFit
from jupyter_ddl.protocol.fit_results import FitResults, NodeResult, TakenUnit
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.protocol.verb import StopHow
from jupyter_ddl.verbs.fit import Fit

__all__ = ["FitDriver"]

log = logging.getLogger(__name__)

_SHORT_UNIT_S = 0.02
_GATHER_S = 0.03


class FitDriver(RunDriver):
    """One run from its first batch to its last record.  Used on the controller's loop only."""

    def __init__(
        self,
        spec: RunSpec,
        verb: Fit,
        ledger: LedgerWriter,
        state: RunState,
        context: RunContext,
    ) -> None:
        super().__init__(spec, ledger, state, context)
        self._outputs = Outputs(spec.run_id, verb, context)
        self._sender: FitSender = FitSender(
            spec, context, self._outputs, self._session, self._done, self.wake
        )
        self._sender.on_started = self._started
        self._sender.on_notice = self._committer.put
        self._candidates = Candidates(state, verb.metric)
        self._batches: dict[int, FitBatch] = {}
        self._records = FitRecords(self._candidates, self._put)
        self._client = FitClient(verb)
        self._finish: FinishFit | None = None

    # -- what the controller sees ----------------------------------------------------------------

    @property
    def demand_slots(self) -> int:
        if self._stop.when is not None or self.is_ending:
            return 0
        return sum(b.graph.n_ready for b in self._active()) + len(self._sender)

    @property
    def paused(self) -> str:
        """Why the run waits for something outside it; empty when it doesn't."""
        if self._committer.paused:
            return self._committer.paused
        if self._context.slots.n_slots == 0 and self._context.n_wanted():
            return "no worker is connected"
        return ""

    @property
    def mark(self) -> tuple[object, ...]:
        """What a snapshot would differ by."""
        return self.state.seq, self.paused

    def snapshot(self) -> EncodedSnapshot:
        return encoded_snapshot(self.state, time.time(), self.paused)

    def stop(self, how: StopHow, by: str, reason: str = "") -> None:
        """End the run: what is computed is kept, what runs ends now or with its unit."""
        when: StopWhen = "now" if how == "now" else "next_report"
        if self.is_ending or not self._stop.request(
            when, reason or f"stopped by {by}", read_clocks()
        ):
            return
        self._put(StopRequested(at_s=time.time(), when=when, by=by))
        self._sender.stop_all(when)
        self._tell_all()

    def stop_trial(self, trial: int, when: StopWhen, by: str) -> bool:
        """Stop one candidate: its folds that are not done end now, for a fit has no reports.

        Raises
        ------
        SpecError
            It can't be stopped alone.
        """
        batch = next((b for b in self._batches.values() if trial in b.trials), None)
        if (batch is not None and batch.is_whole) or self._candidates.is_told(trial):
            raise SpecError(
                f"row {trial} of run {self.spec.run_id} is no candidate: who has begun it needs "
                f"all its parts; stop the run instead"
            )
        if batch is None or self.is_ending or self._stop.when is not None:
            return False
        units = batch.graph.stop_candidate(batch.trials.index(trial))
        if not units:
            return False
        now = time.time()
        self._records.stop(trial, batch, units)
        ends = self._candidates.given_up([trial], now)
        asked = StopRequested(at_s=now, when="now", trial=trial, by=by, cell_id=batch.cell_id)
        self._put(asked, *ends)
        self._sender.stop_units(batch, units)
        self._outputs.release(batch)
        return True

    # -- what the kernel asks --------------------------------------------------------------------

    async def feed(self, request: FeedFit) -> None:
        """Take in a part of a batch.

        Raises
        ------
        SpecError
            The run is over, or parts are missing.
        """
        await self._check_open()
        batch = self._batches.get(request.batch)
        if batch is None:
            batch = self._batches[request.batch] = FitBatch(
                request.batch, request.table, request.cell_id
            )
            await self._import(request.imports)
        if request.part < batch.n_parts:
            return
        if request.part > batch.n_parts or batch.graph.is_fed:
            raise SpecError(f"part {request.part} of batch {request.batch} was not expected")
        batch.n_parts += 1
        numbers, events = self._candidates.add(
            request.candidates, request.first_candidate, request.cell_id
        )
        now = time.time()
        self._put(*events, *(Notice(now, text) for text in request.notes))
        batch.trials += numbers
        batch.is_whole |= any(candidate.is_whole for candidate in request.candidates)
        first = batch.graph.n_units
        known = {
            first + offset: fold
            for offset, unit in enumerate(request.units)
            if (fold := self._records.of_before(unit.key)) is not None
        }
        trials = {first + i: batch.trials[u.candidate] for i, u in enumerate(request.units)}
        left_out = [i for i, trial in trials.items() if self._candidates.is_left_out(trial)]
        batch.graph.add(request.nodes, request.units, frozenset((*known, *left_out)))
        for index, fold in known.items():
            self._records.take_from_before(batch, index, fold, trials[index])
        for index in left_out:
            if index not in known:
                batch.deliver(TakenUnit(index, is_stopped=True))
        if request.is_last:
            batch.graph.begin()
        self._wake.set()

    async def tell(self, request: TellFit) -> None:
        """Note how plain Dask work of the cell gets on.

        Raises
        ------
        SpecError
            The run is over.
        """
        await self._check_open()
        self._client.heard()
        self._put(*self._candidates.told(request, time.time()))

    async def _check_open(self) -> None:
        await self.begun.wait()
        if self.is_ending or self._stop.when is not None:
            raise SpecError(f"run {self.spec.run_id} is over and takes no more fits")

    async def take(self, request: TakeFit) -> FitResults:
        """Outcomes of a batch that the kernel has not got yet; waits for one if there is none."""
        self._client.heard()
        batch = self._batches.get(request.batch)
        if batch is None:
            raise SpecError(f"batch {request.batch} was not fed to run {self.spec.run_id}")
        units = batch.take(request.n_taken)
        if not units and not batch.is_over and self._stop.when is None:
            try:
                async with asyncio.timeout(request.timeout_s):
                    await batch.news.wait()
            except TimeoutError:
                pass
            if (unit_s := batch.graph.unit_s) is not None and unit_s < _SHORT_UNIT_S:
                await asyncio.sleep(_GATHER_S)  # others come close behind it
            units = batch.take(request.n_taken)
        is_stopped = not units and self._stop.when is not None and self._is_quiet()
        return FitResults(units, is_stopped, self._stop.reason if is_stopped else "")

    async def finish(self, request: FinishFit) -> None:
        """The cell is over, or gives a batch up."""
        if request.batch is None:
            self._finish = request
            self._stop_pieces()
        elif (batch := self._batches.pop(request.batch, None)) is not None and not batch.is_over:
            batch.is_given_up = True
            self._put(*self._candidates.given_up(batch.trials, time.time()))
            self._sender.drop(batch)
        self._wake.set()

    def _stop_pieces(self) -> None:
        if len(self._sender):
            self._sender.stop_all("now")

    async def _import(self, imports: tuple[str, ...]) -> None:
        if not imports:
            return
        addresses = list(self._context.slots.addresses())
        control = self._context.dispatcher.control
        await asyncio.gather(*(control(address, Prewarm(imports)) for address in addresses))

    # -- the run ---------------------------------------------------------------------------------

    async def _drive(self) -> RunFinished:
        if self._session > 1:
            await asyncio.to_thread(self._records.read, self._ledger)
        await self._open(self._context.slots.n_slots)
        while not self._is_over():
            await self._wait()
            if self._stop.when is None and self._finish is None:
                self._sender.fill(self._active())
            self._outputs.drop_soon()
        return with_totals(self.state, self._end())

    async def _recorded_end(self) -> None:
        await super()._recorded_end()
        await self._outputs.close()

    def _leave(self) -> None:
        self._tell_all()

    def _poll(self) -> None:
        self._client.poll()

    def _is_quiet(self) -> bool:
        return not len(self._sender) and self._committer.is_idle and self._records.is_idle

    def _is_over(self) -> bool:
        if not self._is_quiet():
            return False
        if self._finish is not None or self._stop.when is not None:
            return True
        return self._client.is_gone and not any(True for _ in self._active())

    def _end(self) -> RunFinished:
        now = time.time()
        if self._finish is not None and self._stop.when is None:
            asked = self._finish
            return RunFinished(now, asked.state, asked.reason)
        if self._stop.when is not None:
            return RunFinished(now, "cancelled", self._stop.reason)
        return RunFinished(now, "cancelled", "the notebook's kernel ended before the cell did")

    def _active(self) -> Sequence[FitBatch]:
        return [b for b in self._batches.values() if b.graph.is_fed and not b.is_over]

    # -- outcomes --------------------------------------------------------------------------------

    def _started(self, batch: FitBatch, piece: Piece, event: AttemptStarted) -> None:
        unit = None if piece.is_node else batch.graph.unit(piece.index)
        if unit is not None:
            self._put(*self._candidates.started(batch.trials[unit.candidate], event))

    def _done(self, done: PieceDone) -> None:
        batch, index = done.batch, done.piece.index
        if done.piece.is_node:
            result = done.node or NodeResult("nowhere", reason="failed")
            batch.graph.settle_node(index, result)
            self._outputs.settled(batch, index, result)
        else:
            self._records.done(done)
        self._outputs.release(batch)

    def _committed(self, events: Sequence[Event]) -> None:
        self._wake.set()
        self._records.committed(events)

    def _tell_all(self) -> None:
        for batch in self._batches.values():
            batch.news.set()
        self._wake.set()
