"""What the drivers of all verbs share: a run's first record, its waits, its last record."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import msgspec

from jupyter_ddl.drivers.assigning import RunContext
from jupyter_ddl.drivers.service import WorkerService
from jupyter_ddl.driving.committer import Committer
from jupyter_ddl.driving.ending import RunStop
from jupyter_ddl.driving.shell import read_clocks
from jupyter_ddl.ledger.file import LedgerWriter
from jupyter_ddl.ledger.reducer import fold
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.protocol.events import Event, RunFinished, RunStarted
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.verb import StopHow

__all__ = ["RunDriver"]

_TICK_S = 0.5


class RunDriver(ABC):
    """One run in one session.  Used on the controller's loop only."""

    _sender: WorkerService

    def __init__(
        self, spec: RunSpec, ledger: LedgerWriter, state: RunState, context: RunContext
    ) -> None:
        self.spec = spec
        self.state = state
        self.begun = asyncio.Event()
        """Set once this session's first record is committed."""
        self.is_ending = False
        """Whether the run's last record is written or about to be: nothing changes any more."""
        self._ledger = ledger
        self._context = context
        self._session = state.session + 1
        self.on_change: Callable[[], None] = lambda: None
        """Called when a snapshot may look different from now on; nearly free to call."""
        self._committer = Committer(ledger, self._recorded)
        self._stop = RunStop(spec.limits)
        self._wake = asyncio.Event()

    # -- what each driver does in its own way ------------------------------------------------------

    @abstractmethod
    async def _drive(self) -> RunFinished:
        """Everything up to the run's last record."""

    @abstractmethod
    def stop(self, how: StopHow, by: str, reason: str = "") -> None:
        """End the run before its time."""

    @abstractmethod
    def _committed(self, events: Sequence[Event]) -> None:
        """Act upon what is on record now."""

    @abstractmethod
    def _poll(self) -> None:
        """See what nobody tells; called at least twice a second."""

    async def _recorded_end(self) -> None:
        """Give back what the run has on the workers, once its last record is committed."""
        await self._sender.release_workers()

    @abstractmethod
    def _leave(self) -> None:
        """End what belongs to this session, however it ended."""

    # -- the run ---------------------------------------------------------------------------------

    def wake(self) -> None:
        """Slots, workers or what is to be done have changed."""
        self._wake.set()

    async def run(self) -> None:
        """Drive the run to its end.  Cancelling it leaves a ledger that can be resumed.

        Raises
        ------
        Exception
            Events can't be committed for another reason than a full disk.
        """
        committing = asyncio.create_task(self._committer.run(), name=f"commit {self.spec.run_id}")
        self._context.slots.join(self.spec.run_id)
        try:
            end = await self._drive()
            self.is_ending = True
            usage = self._context.usage(self.spec.run_id)
            self._put(msgspec.structs.replace(end, usage=usage))
            await self._committer.drain()
            await self._recorded_end()
        finally:
            self.is_ending = True
            self._leave()
            await self._sender.close()
            self._context.slots.leave(self.spec.run_id)
            committing.cancel()
            await asyncio.gather(committing, return_exceptions=True)
            self._ledger.close()

    async def _open(self, max_parallel: int) -> None:
        """Commit this session's first record."""
        self._stop.begin(self.state, read_clocks())
        started = RunStarted(
            at_s=time.time(),
            session=self._session,
            n_slots=self._context.slots.n_slots,
            max_parallel=max_parallel,
            controller_pid=self._context.pid,
        )
        self._put(started)
        # Folded before anything is told: it opens the trials that only ended with the run.
        await self._committer.drain()
        self.begun.set()

    async def _wait(self) -> None:
        """Until something happens, at most half a second; then see whether it is time to stop."""
        try:
            async with asyncio.timeout(_TICK_S):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()
        if self._committer.error is not None:
            raise self._committer.error
        self._poll()
        if self._stop.is_timed_out(read_clocks()):
            text = f"stopped by its timeout of {self.spec.limits.timeout_s:.0f} s"
            self.stop("now", by="timeout", reason=text)
        if self._stop.is_given_up(read_clocks()):
            self._sender.give_up()  # what it had is cancelled with the run
        self.on_change()

    def _put(self, *events: Event) -> None:
        self._committer.put(events)

    def _recorded(self, events: Sequence[Event]) -> None:
        for event in events:
            fold(self.state, event)
        self._committed(events)
        self.on_change()
