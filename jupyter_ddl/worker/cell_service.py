"""Executes the cells of a persistent group inside a rank, in one namespace that stays."""

from __future__ import annotations

import builtins
import importlib.util
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import msgspec

from jupyter_ddl.events.cell_results import CellDone, CellOutcome, RankReady
from jupyter_ddl.events.messages import Failure, RendezvousReady
from jupyter_ddl.spec.assignment import TrialAssignment
from jupyter_ddl.spec.cells import OpenRank, RejoinRank, RunCell
from jupyter_ddl.spec.group import JoinGroup, RankPlace
from jupyter_ddl.worker import incell
from jupyter_ddl.worker.cell_run import CellRun, Ending
from jupyter_ddl.worker.connections import Connections, waits_in_torch
from jupyter_ddl.worker.gpus import use_gpus
from jupyter_ddl.worker.metrics import as_number
from jupyter_ddl.worker.rank_group import RankGroup
from jupyter_ddl.worker.rank_log import RankLog
from jupyter_ddl.worker.rank_messages import ToCells
from jupyter_ddl.worker.reduction import check_reduction, reduced
from jupyter_ddl.worker.tracebacks import failure_of
from jupyter_ddl.worker.training import Training

__all__ = ["CellService"]

_GRACE_S = 1.0
"""How long an interrupted cell may take to raise, until the collective it waits in is broken."""


class CellService:
    """Holds the namespace between cells.  Used on the rank's main thread, but for ``interrupt``.

    Parameters
    ----------
    announce : callable
        Sends the address at which this rank can be met.
    joins : queue.SimpleQueue
        Where the control thread puts the addresses of all.
    """

    def __init__(
        self,
        announce: Callable[[RendezvousReady], None],
        joins: queue.SimpleQueue[JoinGroup],
    ) -> None:
        self._announce = announce
        self._joins = joins
        self._connections = Connections()
        self._thread_id = threading.get_ident()
        self._pid = os.getpid()
        self._running: int | None = None
        self._is_armed = False
        self._is_cut_off = False

    def handle(self, message: ToCells) -> RankReady | CellDone:
        """Do what the worker asks; whatever happens becomes the answer."""
        if isinstance(message, OpenRank):
            return self._open(message)
        if isinstance(message, RejoinRank):
            return self._rejoin(message)
        return self._run(message)

    def interrupt(self, number: int) -> None:
        """Interrupt cell ``number``, also where it waits in a collective.  Any thread."""
        if self._running == number:
            # The worker's SIGINT goes to any thread of this process, and wakes the main thread
            # only if it is that one; behind a SIGCONT it often is another.
            signal.pthread_kill(self._thread_id, signal.SIGINT)
        timer = threading.Timer(_GRACE_S, self._cut_off, (number,))
        timer.daemon = True
        timer.start()

    def _cut_off(self, number: int) -> None:
        if self._running == number and waits_in_torch(self._thread_id):
            self._is_cut_off = True
            self._connections.cut(int(os.environ.get("MASTER_PORT", "0")))

    # -- membership -------------------------------------------------------------------------------

    def _open(self, message: OpenRank) -> RankReady:
        place = self._place = message.place
        use_gpus(place.gpus)
        try:
            self._log = RankLog(message.run_dir, f"rank-{place.rank}.log")
            self._log.prepare()
            signal.signal(signal.SIGINT, self._on_interrupt)
            self._group = RankGroup(
                place, TrialAssignment(0, 0, {}, 0), self._announce, self._joins
            )
            has_torch = importlib.util.find_spec("torch") is not None
            with self._connections.recorded():
                self._group.enter(with_torch=has_torch and place.initialize)
        except BaseException as error:  # noqa: BLE001 - the wall of the rank process
            return RankReady(place.rank, failure=failure_of(error, ""))
        main = sys.modules["__main__"] = ModuleType("__main__")
        main.__dict__.update({"__builtins__": builtins, **incell.namespace_defaults()})
        incell.set_attempt(_Member(place))
        directories = tuple(Path(directory) for directory in message.blob_dirs)
        self._cells = CellRun(main.__dict__, Path(message.run_dir), directories, place.rank)
        return self._ready()

    def _ready(self) -> RankReady:
        distributed: Any = sys.modules.get("torch.distributed")
        has_group = distributed is not None and distributed.is_initialized()
        device = str(incell.device()) if "torch" in sys.modules else "cpu"
        return RankReady(self._place.rank, device, has_group)

    def _rejoin(self, message: RejoinRank) -> RankReady:
        try:
            with self._connections.recorded():
                self._group.rejoin(message.round_id)
        except BaseException as error:  # noqa: BLE001 - the wall of the rank process
            return RankReady(self._place.rank, failure=failure_of(error, ""))
        self._is_cut_off = False
        return self._ready()

    # -- cells ------------------------------------------------------------------------------------

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_armed:
            # Once: what a cell does in its finally blocks is not cut short.
            self._is_armed = False
            raise KeyboardInterrupt

    def _run(self, message: RunCell) -> CellDone:
        self._log.prepare()
        if signal.getsignal(signal.SIGINT) != self._on_interrupt:
            signal.signal(signal.SIGINT, self._on_interrupt)
        log_start = self._log.position()
        self._running = message.number
        began = time.perf_counter()
        ending = self._ending(message)
        duration_s = time.perf_counter() - began
        self._running = None
        done = CellDone(
            rank=self._place.rank,
            number=message.number,
            outcome=ending.outcome,
            duration_s=duration_s,
            log_start=log_start,
            log_end=self._log.position(),
            text=ending.text,
            value=ending.value,
            has_value=ending.has_value,
            values_file=ending.values_file,
            failure=ending.failure,
            is_cut_off=self._is_cut_off,
        )
        return self._with_disk_error(done)

    def _ending(self, message: RunCell) -> Ending:
        filename = message.cell.filename
        try:
            try:
                self._is_armed = True
                ending = self._cells.execute(message)
                self._is_armed = False
            except BaseException as error:  # noqa: BLE001 - the wall around the user's code
                ending = self._failed(error, filename)
            finally:
                self._is_armed = False
                if os.getpid() != self._pid:
                    os._exit(1)  # a process that the cell has forked ran through to its end
        except KeyboardInterrupt as error:  # it came just behind the end of the cell
            return self._failed(error, filename)
        return ending

    def _failed(self, error: BaseException, filename: str) -> Ending:
        if isinstance(error, SystemExit) and error.code in (None, 0):
            return Ending("complete")
        was_interrupted = isinstance(error, KeyboardInterrupt) or self._is_cut_off
        outcome: CellOutcome = "cancelled" if was_interrupted else "failed"
        return Ending(outcome, failure=failure_of(error, filename))

    def _with_disk_error(self, done: CellDone) -> CellDone:
        """A cell that could not print is no complete one, whatever it thinks itself."""
        error = self._log.take_error()
        if error is None or done.outcome != "complete":
            return done
        failure: Failure = failure_of(error, "", kind="disk")
        return msgspec.structs.replace(done, outcome="failed", failure=failure)


class _Member:
    """What ``report``, ``rank`` and their kin see in a persistent group: nothing is recorded."""

    def __init__(self, place: RankPlace) -> None:
        self.rank = place.rank
        self.world_size = place.world_size
        self.local_rank = place.local_rank
        self.on_cpu = not place.gpus
        self.device_index = place.device_index
        self._training = Training(place, seed=0)

    def prepare(self, objects: tuple[Any, ...], device: Any) -> tuple[Any, ...]:
        return self._training.prepare(objects, device)

    def report(
        self, step: int | None, metrics: Mapping[str, Any], reduce: str | None = None
    ) -> None:
        check_reduction(reduce)
        numbers = {name: as_number(value) for name, value in metrics.items()}
        known = {name: number for name, number in numbers.items() if number is not None}
        if reduce is not None and self.world_size > 1 and len(known) == len(metrics):
            metrics = reduced(known, reduce)
        incell.report_plainly(step, metrics, reduce)

    def checkpoint(self, step: int | None, state: Mapping[str, Any]) -> None:
        incell.checkpoint_plainly(step, state)

    def resume(self) -> dict[str, Any] | None:
        return None
