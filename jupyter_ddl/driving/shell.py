"""Carries out over Dask what the machine of a run decides, and tells it what comes of that."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from jupyter_ddl.background import BackgroundTasks
from jupyter_ddl.driving.calls import WorkerLostError
from jupyter_ddl.driving.committer import Committer
from jupyter_ddl.driving.file_sync import OnEvents
from jupyter_ddl.driving.machine import (
    Abandon,
    Answered,
    Arrived,
    Ask,
    Begun,
    CommitPaused,
    Committed,
    Ended,
    EndWorker,
    Instruction,
    NotAnswered,
    Now,
    Over,
    Record,
    Refuse,
    ReleaseWorkers,
    RemoveFile,
    Reply,
    Send,
    Signal,
    StopWanted,
    Told,
    TrialStopWanted,
    WaitUntil,
    WakeOthers,
    Woken,
    Work,
)
from jupyter_ddl.errors import JupyterDDLError, SpecError
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.assignment import Assignment, Control, StopRun, StopWhen
from jupyter_ddl.protocol.events import Event, RankEvent
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.protocol.verb import StopHow
from jupyter_ddl.store.awake import awake_s
from jupyter_ddl.store.blobs import BlobMissingError

__all__ = ["Deadline", "Hands", "RunDriver", "RunMachine", "read_clocks"]

log = logging.getLogger(__name__)


class Hands(Protocol):
    """What reaches the workers: :class:`~jupyter_ddl.driving.dispatcher.Dispatcher`, or a fake."""

    async def execute(self, assignment: Assignment, worker: str, on_events: OnEvents) -> None:
        """Run one assignment; returns when all its events were delivered."""
        ...

    async def control(self, worker: str, control: Control) -> None:
        """Deliver a signal to a worker's ranks; a worker that is gone needs none."""
        ...

    async def end_worker(self, worker: str) -> None:
        """End a worker that does not do its work, if it is ours."""
        ...


class RunMachine(Protocol):
    """The machine of one run, as its shell and the controller see it."""

    spec: RunSpec
    state: RunState

    def handle(self, event: Any, now: Now) -> list[Instruction]: ...

    @property
    def has_begun(self) -> bool: ...

    @property
    def is_ending(self) -> bool: ...

    @property
    def demand_slots(self) -> int: ...

    def is_running(self, trial: int) -> bool: ...

    def paused(self, now: Now) -> str: ...

    def mark(self, now: Now) -> tuple[object, ...]: ...

    def snapshot(self, now: Now) -> EncodedSnapshot: ...


def read_clocks() -> Now:
    """The clocks of the running loop's machines."""
    return Now(awake_s(), time.time())


class Deadline:
    """Calls something at a time, once; a new time takes the place of the former one."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._timer: asyncio.TimerHandle | None = None

    def set(self, at_s: float | None) -> None:
        """From now on it is this time of the running loop; None: no call any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if at_s is not None:
            self._timer = asyncio.get_running_loop().call_at(at_s, self._call)


class RunDriver:
    """One run in one session.  Used on the controller's loop only.

    Parameters
    ----------
    answer : callable
        Does the work of an :class:`~jupyter_ddl.driving.machine.Ask`.
    wake_all : callable
        Tells every run that a slot may have become free.
    """

    def __init__(
        self,
        machine: RunMachine,
        ledger: LedgerWriter,
        hands: Hands,
        answer: Callable[[Work], Awaitable[object]],
        *,
        run_dir: Path,
        slots: SlotBook,
        wake_all: Callable[[], None],
    ) -> None:
        self.begun = asyncio.Event()
        """Set once this session's first record is committed."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when a snapshot may look different from now on; nearly free to call."""
        self._machine = machine
        self._ledger = ledger
        self._hands = hands
        self._answer = answer
        self._run_dir = run_dir
        self._slots = slots
        self._wake_all = wake_all
        self._committer = Committer(ledger, self._on_committed, self._on_commit_paused)
        self._events: deque[Any] = deque()
        self._is_handling = False
        self._is_closed = False
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flights: dict[str, asyncio.Task[None]] = {}
        self._tasks = BackgroundTasks(log, machine.spec.run_id, self._on_task_error)
        self._deadline = Deadline(self.wake)
        self._requests: dict[int, asyncio.Future[Any]] = {}
        self._n_requests = 0

    # -- what the controller sees ----------------------------------------------------------------

    @property
    def ledger_bytes(self) -> int:
        """How far the run's ledger is committed."""
        return self._ledger.committed_bytes

    @property
    def spec(self) -> RunSpec:
        return self._machine.spec

    @property
    def state(self) -> RunState:
        return self._machine.state

    @property
    def is_ending(self) -> bool:
        """Whether the run's last record is written or about to be: nothing changes any more."""
        return self._is_closed or self._machine.is_ending

    @property
    def demand_slots(self) -> int:
        """Slots that trials could use at once, were there enough."""
        return 0 if self.is_ending else self._machine.demand_slots

    @property
    def mark(self) -> tuple[object, ...]:
        """What a snapshot would differ by."""
        return self._machine.mark(read_clocks())

    @property
    def waits(self) -> bool:
        """Whether the run waits for something outside it, as its snapshot then says."""
        return not self.is_ending and bool(self._machine.paused(read_clocks()))

    def snapshot(self) -> EncodedSnapshot:
        return self._machine.snapshot(read_clocks())

    def wake(self) -> None:
        """Slots or workers have changed."""
        self._feed(Woken())

    def tell(self, text: str) -> None:
        """Have the record say something about the cluster."""
        self._feed(Told(text))

    async def recorded(self) -> None:
        """Wait until what has happened so far is on record.  Raises as :meth:`run` does."""
        await self._committer.drain()

    def stop(self, how: StopHow, by: str, reason: str = "") -> None:
        """End the run: running trials at their next report, or all of them now."""
        self._feed(StopWanted(how, by, reason))

    def stop_trial(self, trial: int, when: StopWhen, by: str) -> bool:
        """End one running trial; False when it isn't running."""
        if self.is_ending or not self._machine.is_running(trial):
            return False
        self._feed(TrialStopWanted(trial, when, by))
        return True

    async def ask(self, make: Callable[[int], object]) -> Any:
        """What the machine answers to a request; ``make`` makes its event of the number it gets.

        Raises
        ------
        SpecError
            The run is over.
        JupyterDDLError
            What the machine refuses it with.
        """
        if self._is_closed:
            raise SpecError(f"run {self.spec.run_id} is over")
        self._n_requests += 1
        future = asyncio.get_running_loop().create_future()
        self._requests[self._n_requests] = future
        self._feed(make(self._n_requests))
        return await future

    def _answered(self, request: int) -> asyncio.Future[Any] | None:
        """Who waits for the answer to a request; None: it has gone."""
        future = self._requests.pop(request)
        return None if future.done() else future

    async def run(self) -> None:
        """Drive the run to its end.  Cancelling it leaves a ledger that can be resumed.

        Raises
        ------
        Exception
            Events can't be committed for another reason than a full disk, or the machine was told
            what cannot happen.
        """
        committing = asyncio.create_task(self._committer.run(), name=f"commit {self.spec.run_id}")
        try:
            self._feed(Begun())
            await self._over
        finally:
            self._is_closed = True
            for request in tuple(self._requests):
                if (future := self._answered(request)) is not None:
                    future.set_exception(SpecError(f"run {self.spec.run_id} is over"))
            self._deadline.set(None)
            tasks = [committing, *self._flights.values(), *self._tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._slots.leave(self.spec.run_id)
            self._ledger.close()

    # -- events ----------------------------------------------------------------------------------

    def _feed(self, event: object) -> None:
        """Tell the machine, once it has done with what it was told before."""
        if self._is_closed:
            return
        self._events.append(event)
        if self._is_handling:
            return
        self._is_handling = True
        try:
            while self._events and not self._over.done():
                now = read_clocks()
                for instruction in self._machine.handle(self._events.popleft(), now):
                    self._carry_out(instruction)
        except Exception as error:  # noqa: BLE001 - whoever feeds has nothing to do with it
            self._fail(error)
        finally:
            self._is_handling = False
        self.on_change()

    def _fail(self, error: Exception) -> None:
        if not self._over.done():
            self._over.set_exception(error)

    def _on_task_error(self, error: BaseException) -> None:
        if isinstance(error, Exception):
            self._fail(error)

    def _on_committed(self, events: Sequence[Event]) -> None:
        if self._committer.error is not None:
            self._fail(self._committer.error)
            return
        self._feed(Committed(tuple(events)))
        if self._machine.has_begun:
            self.begun.set()

    def _on_commit_paused(self, text: str) -> None:
        self._feed(CommitPaused(text))

    def _on_events(self, assignment_id: str, events: Sequence[RankEvent]) -> None:
        self._feed(Arrived(assignment_id, tuple(events)))

    # -- instructions ----------------------------------------------------------------------------

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Record(events=events):
                self._committer.put(events)
            case Send(assignment=assignment, worker=worker):
                self._send(assignment, worker)
            case Abandon(assignment_id=name):
                self._flights[name].cancel()
            case Signal(worker=worker, controls=controls):
                self._tasks.start(self._signal(worker, controls))
            case Ask(question=question, work=work):
                self._tasks.start(self._ask(question, work))
            case WaitUntil(at_s=at_s):
                self._deadline.set(at_s)
            case WakeOthers():
                asyncio.get_running_loop().call_soon(self._wake_all)
            case RemoveFile(path=path):
                with contextlib.suppress(FileNotFoundError):
                    (self._run_dir / path).unlink()
            case EndWorker(worker=worker):
                self._tasks.start(self._hands.end_worker(worker))
            case ReleaseWorkers(workers=workers):
                self._tasks.start(self._release(workers), "release")
            case Reply(request=request, result=result):
                if (future := self._answered(request)) is not None:
                    future.set_result(result)
            case Refuse(request=request, error=error):
                if (future := self._answered(request)) is not None:
                    future.set_exception(error)
            case Over():
                self._tasks.start(self._leave())

    def _send(self, assignment: Assignment, worker: str) -> None:
        name = assignment.assignment_id
        on_events = partial(self._on_events, name)
        task = asyncio.create_task(self._hands.execute(assignment, worker, on_events), name=name)
        self._flights[name] = task
        # Not at the end of a coroutine: one that is cancelled before its first step has no end.
        task.add_done_callback(partial(self._landed, name))

    def _landed(self, name: str, task: asyncio.Task[None]) -> None:
        del self._flights[name]
        lost, lacks_blob = "it was given up", False
        if not task.cancelled():
            error = task.exception()
            lost = ""
            if isinstance(error, WorkerLostError):
                lost = error.message
                log.info("%s: %s", self.spec.run_id, lost)
            elif isinstance(error, BlobMissingError):
                lost, lacks_blob = f"blob {error} is not on the controller's host", True
                log.error("%s: %s", self.spec.run_id, lost)
            elif error is not None:  # its trials must not be lost with it
                lost = repr(error)
                log.error("%s: an assignment failed", self.spec.run_id, exc_info=error)
        self._feed(Ended(name, lost, lacks_blob))

    async def _signal(self, worker: str, controls: Sequence[Control]) -> None:
        for control in controls:
            await self._hands.control(worker, control)

    async def _ask(self, question: int, work: Work) -> None:
        try:
            answer = await self._answer(work)
        except JupyterDDLError as error:
            self._feed(NotAnswered(question, error))
        else:
            self._feed(Answered(question, answer))

    async def _release(self, workers: Sequence[str]) -> None:
        """End this run's idle rank processes on the workers that served it."""
        stop = StopRun(run_id=self.spec.run_id, is_over=True)
        await asyncio.gather(*(self._hands.control(worker, stop) for worker in workers))

    async def _leave(self) -> None:
        """Let ``run`` return once the workers are released."""
        releasing = [task for task in self._tasks if task.get_name() == "release"]
        await asyncio.gather(*releasing, return_exceptions=True)
        if not self._over.done():
            self._over.set_result(None)
