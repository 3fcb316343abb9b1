"""The runs of one controller: submitted, resumed, watched, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path

import msgspec

from jupyter_ddl.controller.blob_care import room_for_copies
from jupyter_ddl.controller.event_files import EventFileWriters
from jupyter_ddl.controller.server import Fanout, Watcher
from jupyter_ddl.driving.admission import admitted, check_group_fits, wants_gpus
from jupyter_ddl.driving.assignments import RunContext
from jupyter_ddl.driving.dispatcher import Dispatcher
from jupyter_ddl.driving.fit_events import (
    FitAsked,
)
from jupyter_ddl.driving.group_record import end_record
from jupyter_ddl.driving.make import make_driver
from jupyter_ddl.driving.shell import RunDriver
from jupyter_ddl.errors import (
    JupyterDDLError,
    LedgerBusyError,
    LedgerError,
    RunNotFoundError,
    SpecError,
)
from jupyter_ddl.ledger.reader import read_ledger, read_run_line
from jupyter_ddl.ledger.reducer import RunState, fold
from jupyter_ddl.ledger.snapshots import encoded_snapshot, with_totals
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.events import BudgetSet, Event, Notice, RunFinished, RunSubmitted
from jupyter_ddl.protocol.fit_results import FitResults
from jupyter_ddl.protocol.prices import Budget, Reading
from jupyter_ddl.protocol.requests import FitBody
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.protocol.telemetry import Usage
from jupyter_ddl.store.blobs import put_blob
from jupyter_ddl.store.paths import (
    COPY_NOTE,
    RUN_FOLDERS,
    blob_dirs,
    ledger_path,
    private_dir,
    run_dir,
    runs_dir,
)

__all__ = ["RunRegistry", "append_end", "fold_run", "unfinished_runs"]


log = logging.getLogger(__name__)


# Ledgers that no driver of this controller has open: read before a run is resumed, or ended.
#
# What is here blocks: call it in a thread.


def append_end(run_id: str, event: RunFinished) -> None:
    """Record the end of a run whose driver can't."""
    with LedgerWriter.open(ledger_path(run_id)) as ledger:
        ledger.append([event])


def fold_run(run_id: str) -> RunState:
    """A run as its ledger tells.  Raises as ``read_ledger`` does."""
    state = RunState()
    for event in read_ledger(ledger_path(run_id)):
        fold(state, event)
    return state


def unfinished_runs(cluster: str) -> list[str]:
    """Runs of a cluster of this name that can go on; persistent groups among them are ended.

    A copy of what another controller drives is none: that one was called the same, elsewhere.
    """
    found = []
    for directory in sorted(runs_dir().iterdir()):
        path = directory / "ledger.ddl"
        if not path.exists() or (directory / COPY_NOTE).exists():
            continue
        try:
            line = read_run_line(path)
        except JupyterDDLError as error:
            log.warning("run %s can't be read: %s", directory.name, error.message)
            continue
        if line.cluster == cluster and line.finished_at_s is None:
            if not line.can.can_resume:
                _end_group(directory.name)
            else:
                found.append(directory.name)
    return found


def _end_group(run_id: str) -> None:
    """A persistent group is over when its controller is: nobody can give the variables back."""
    try:
        end_record(run_id, "its controller ended")
    except JupyterDDLError as error:
        log.warning("the end of group %s is not recorded: %s", run_id, error.message)


def _told_at_return(spec: RunSpec, cut_bytes: int, image: str) -> Iterator[str]:
    """What is not as it was when the run was left."""
    if cut_bytes:
        yield f"{cut_bytes} bytes of a half-written record were cut off the ledger"
    before = spec.provenance.image
    if before and image and image != before:
        yield (
            f"the workers' image is {image} now and was {before} when the run began: its results "
            f"may differ; a cluster with `--env {before}` has the former one"
        )


_N_REMEMBERED = 50
_BEGIN_S = 10.0
_LAST_WORD_S = 2.0


class RunRegistry:
    """Owns the drivers.  Used on the controller's loop only."""

    def __init__(
        self,
        cluster: str,
        slots: SlotBook,
        dispatcher: Dispatcher,
        *,
        host_of: Callable[[str], str],
        n_wanted: Callable[[], int],
        n_possible: Callable[[], int] | None = None,
        usage: Callable[[str], Usage | None] = lambda _: None,
        meter: Callable[[RunSpec], Callable[[], Reading | None]] = lambda _: lambda: None,
        gpus_known: Callable[[], Awaitable[None]],
        image: Callable[[], str] = lambda: "",
        attempt_lease_s: float = 60.0,
        has_event_files: bool = True,
    ) -> None:
        self._has_event_files = has_event_files
        self._image = image
        self._attempt_lease_s = attempt_lease_s
        self._host_of = host_of
        self._cluster = cluster
        self._slots = slots
        self._dispatcher = dispatcher
        self._n_wanted = n_wanted
        self._n_possible = n_possible or n_wanted
        self._usage = usage
        self._meter = meter
        self._gpus_known = gpus_known
        self._opening = asyncio.Lock()
        self._drivers: dict[str, RunDriver] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._fanouts: dict[str, Fanout] = {}
        self._ended: OrderedDict[str, EncodedSnapshot] = OrderedDict()
        self._event_files = EventFileWriters()

    @property
    def waiting(self) -> tuple[str, ...]:
        """Those of the active runs that wait for something outside them."""
        return tuple(run_id for run_id in self.active if self._drivers[run_id].waits)

    @property
    def active(self) -> tuple[str, ...]:
        """Runs whose last record is not committed yet.

        Whoever watches a run is told of that record at once, while its ranks are still released.
        """
        return tuple(run_id for run_id, each in self._drivers.items() if not _has_ended(each))

    @property
    def driven(self) -> dict[str, int]:
        """Committed bytes of the ledgers that are written here, by run."""
        return {run_id: driver.ledger_bytes for run_id, driver in self._drivers.items()}

    def demand_slots(self) -> int:
        """Trials that could run at once, over all active runs."""
        return sum(driver.demand_slots for driver in self._drivers.values())

    def wake(self) -> None:
        """Workers came or went."""
        for driver in self._drivers.values():
            driver.wake()

    def tell(self, text: str, run_ids: Collection[str] | None = None) -> None:
        """Have the record of active runs, of all or of these, say something about the cluster."""
        for run_id, driver in self._drivers.items():
            if run_ids is None or run_id in run_ids:
                driver.tell(text)

    async def tell_last(self, text: str) -> None:
        """The same of all active runs, before nothing drives them any more."""
        self.tell(text)
        recorded = (driver.recorded() for driver in self._drivers.values())
        with contextlib.suppress(TimeoutError):  # a disk that is full keeps nobody here
            async with asyncio.timeout(_LAST_WORD_S):
                await asyncio.gather(*recorded, return_exceptions=True)

    async def submit(self, spec: RunSpec) -> None:
        """Create the run's directory and ledger, and start driving it.

        Raises
        ------
        SpecError
            The run id is taken or malformed.
        PlacementError
            Its ranks can never have as many slots as they need.
        """
        directory = run_dir(spec.run_id)
        if directory.parent != runs_dir() or not spec.run_id.replace("-", "").isalnum():
            raise SpecError(f"run id {spec.run_id!r} is not valid; expected letters, digits and -")
        if wants_gpus(spec):
            await self._gpus_known()
        # No wait between this and the making of it: a mirror whose connection broke asks again
        # while the first request is being answered, and must not clear away what that has begun.
        if directory.exists():
            raise SpecError(f"run {spec.run_id} exists already; a new run needs a new id")
        spec = admitted(spec, self._slots, max(self._slots.n_slots, self._n_wanted()))
        check_group_fits(spec, self._slots, self._n_possible())
        try:
            await self._create(spec, directory)
        except BaseException:
            # Refused (no room, no such sampler): then nothing of it is left, its id included.
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
            raise

    async def _create(self, spec: RunSpec, directory: Path) -> None:
        for name in RUN_FOLDERS:
            private_dir(directory / name)
        ledger = LedgerWriter.open(ledger_path(spec.run_id), create=True)
        try:
            submitted = RunSubmitted(spec=spec, at_s=time.time())
            state = RunState()
            fold(state, submitted)
            driver = self._make(spec, ledger, state)
            # Last: once it is recorded, the run exists and is driven to its end.
            await asyncio.to_thread(ledger.append, [submitted])
        except BaseException:
            ledger.close()
            raise
        self._start(driver)

    async def resume(self, run_id: str, budget: Budget | None = None) -> None:
        """Go on with an unfinished run from its ledger; a no-op for an active or complete one.

        Parameters
        ----------
        budget : Budget, optional
            In place of the one that it has.

        Raises
        ------
        SpecError
            It is active, and a run has one budget while it goes on.
        RunNotFoundError
            There is no such run.
        LedgerError
            Its ledger is damaged, or another live process writes it.
        """
        async with self._opening:
            driver = self._drivers.get(run_id)
            if driver is not None and not driver.is_ending:
                if budget is not None:
                    raise SpecError(
                        f"run {run_id} goes on with the budget that it has; `%runs stop {run_id}`, "
                        f"then `--resume {run_id} --budget …` gives it another one"
                    )
                return
            if driver is not None:
                await asyncio.wait({self._tasks[run_id]})  # its last record is being written
            await self._resume(run_id, budget)
        if run_id in self._drivers:
            await self._begun(run_id)

    async def _begun(self, run_id: str) -> None:
        """Wait until the ledger no longer tells the end of an earlier session."""
        beginning = asyncio.create_task(self._drivers[run_id].begun.wait())
        ends = {beginning, self._tasks[run_id]}
        # A full disk takes longer: the run is resumed all the same, and says that it waits.
        await asyncio.wait(ends, timeout=_BEGIN_S, return_when=asyncio.FIRST_COMPLETED)
        beginning.cancel()

    async def _resume(self, run_id: str, budget: Budget | None) -> None:
        path = ledger_path(run_id)
        if not path.exists():
            raise RunNotFoundError(f"there is no run {run_id}; `%runs` lists them", run_id=run_id)
        ledger = await asyncio.to_thread(LedgerWriter.open, path)
        try:
            state = await asyncio.to_thread(fold_run, run_id)
            if state.spec is None:
                raise LedgerError(f"run {run_id} has no first record; `%runs rm {run_id}`")
            is_complete = state.end is not None and state.end.state == "complete"
            if is_complete and not state.spec.verb.is_fed:
                self._remember(run_id, encoded_snapshot(state, time.time()))
                ledger.close()
                return
            told: list[Event] = [
                Notice(at_s=time.time(), text=text)
                for text in _told_at_return(state.spec, ledger.cut_bytes, self._image())
            ]
            if budget is not None:
                told.append(BudgetSet(time.time(), budget))
            for event in told:
                await asyncio.to_thread(ledger.append, [event])
                fold(state, event)
            driver = self._make(state.spec, ledger, state)
            # Whoever asks to go on with a copy here makes it the run.
            await asyncio.to_thread((path.parent / COPY_NOTE).unlink, missing_ok=True)
        except BaseException:
            ledger.close()
            raise
        self._start(driver)

    async def resume_unfinished(self) -> list[str]:
        """Resume every unfinished run of this cluster's name; returns their ids."""
        resumed = []
        for run_id in await asyncio.to_thread(unfinished_runs, self._cluster):
            try:
                await self.resume(run_id)
            except LedgerBusyError as error:
                log.info("run %s is left to who writes it: %s", run_id, error.message)
                continue
            except JupyterDDLError as error:
                log.warning("run %s can't be resumed: %s", run_id, error.message)
                continue
            resumed.append(run_id)
        return resumed

    def driver(self, run_id: str) -> RunDriver:
        """The driver of an active run.

        Raises
        ------
        RunNotFoundError
            This controller does not drive it.
        """
        driver = self._drivers.get(run_id)
        if driver is None:
            raise self._not_active(run_id)
        return driver

    def stoppable(self, run_id: str) -> RunDriver:
        """The same for who wants it to end; raises for one that has, too."""
        driver = self.driver(run_id)
        if _has_ended(driver):
            raise self._not_active(run_id)
        return driver

    def _not_active(self, run_id: str) -> RunNotFoundError:
        return RunNotFoundError(
            f"run {run_id} is not active on cluster {self._cluster}; `%runs` lists all",
            run_id=run_id,
        )

    async def ask_fit(self, body: FitBody) -> FitResults | None:
        """What the kernel asks of a run of fits while its cell runs.

        Raises
        ------
        RunNotFoundError
            The run has ended.
        SpecError
            It is not a run of fits, or takes no more.
        """
        driver = self.driver(body.run_id)
        if not driver.spec.verb.is_fed:
            raise SpecError(f"run {body.run_id} is not a run of fits; it can't be fed")
        results: FitResults | None = await driver.ask(lambda number: FitAsked(number, body))
        return results

    def watch(self, run_id: str, watcher: Watcher) -> EncodedSnapshot:
        """The run as it is now; while it goes on, the watcher is pushed what is new.

        Raises
        ------
        RunNotFoundError
            This controller has not driven it lately.
        """
        if run_id in self._fanouts:
            return self._fanouts[run_id].join(watcher)
        if run_id in self._ended:
            return self._ended[run_id]
        raise self._not_active(run_id)

    def unwatch(self, watcher: Watcher, run_id: str | None = None) -> None:
        """Push nothing more of one run, or of any, to this watcher."""
        fanouts = self._fanouts.values() if run_id is None else (self._fanouts.get(run_id),)
        for fanout in fanouts:
            if fanout is not None:
                fanout.leave(watcher)

    async def close(self) -> None:
        """Stop driving; unfinished runs stay resumable."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._event_files.close()

    def _make(self, spec: RunSpec, ledger: LedgerWriter, state: RunState) -> RunDriver:
        return make_driver(spec, ledger, state, self._context(spec), self._dispatcher, self.wake)

    def _context(self, spec: RunSpec) -> RunContext:
        directories = blob_dirs()
        return RunContext(
            slots=self._slots,
            topic=self._dispatcher.topic,
            run_dir=run_dir(spec.run_id),
            blob_dirs=tuple(str(path) for path in directories),
            program_digest=put_blob(msgspec.msgpack.encode(spec.program), directories),
            pid=os.getpid(),
            host_of=self._host_of,
            n_wanted=self._n_wanted,
            make_room=room_for_copies,
            usage=self._usage,
            read_meter=self._meter(spec),
            attempt_lease_s=self._attempt_lease_s,
        )

    def _start(self, driver: RunDriver) -> None:
        run_id = driver.spec.run_id
        self._ended.pop(run_id, None)
        self._drivers[run_id] = driver
        fanout = Fanout(lambda: driver.mark, driver.snapshot, asyncio.get_running_loop())
        self._fanouts[run_id] = fanout
        driver.on_change = lambda: fanout.changed(is_last=driver.is_ending)
        if self._has_event_files:
            self._event_files.start(driver.spec)
        self._tasks[run_id] = asyncio.create_task(self._drive(driver), name=run_id)

    async def _drive(self, driver: RunDriver) -> None:
        run_id = driver.spec.run_id
        try:
            await driver.run()
        except Exception as error:
            log.exception("run %s: its driver failed", run_id)
            reason = error.message if isinstance(error, JupyterDDLError) else repr(error)
            await self._record_failure(driver, f"the driver failed: {reason}")
        finally:
            self._remember(run_id, self._fanouts.pop(run_id).close())
            del self._drivers[run_id]
            del self._tasks[run_id]
            self.wake()

    def _remember(self, run_id: str, snapshot: EncodedSnapshot) -> None:
        self._ended[run_id] = snapshot
        while len(self._ended) > _N_REMEMBERED:
            self._ended.popitem(last=False)

    async def _record_failure(self, driver: RunDriver, reason: str) -> None:
        event = RunFinished(at_s=time.time(), state="failed", reason=reason)
        try:
            ended = with_totals(driver.state, event)
            await asyncio.to_thread(append_end, driver.spec.run_id, ended)
        except JupyterDDLError as error:
            log.error("run %s: its end is not recorded: %s", driver.spec.run_id, error.message)
        fold(driver.state, event)


def _has_ended(driver: RunDriver) -> bool:
    """Whether this session's last record is committed."""
    return driver.begun.is_set() and driver.state.end is not None
