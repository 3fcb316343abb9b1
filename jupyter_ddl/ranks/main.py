"""A rank process: executes assignments one after another; the only place where user code runs.

The main thread runs trials.  A daemon thread reads the socket: it passes assignments on and sets
the stop flag.  Every event goes to the kernel's socket buffer before the next line of user code
runs, so that a crash loses none.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import resource
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from jupyter_ddl.protocol.assignment import Assignment, StopRun, TrialAssignment
from jupyter_ddl.protocol.cells import InterruptRank
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    CheckpointSaved,
    Failure,
    FailureKind,
    Notice,
    Outcome,
    RankEvent,
    Reported,
)
from jupyter_ddl.protocol.group import JoinGroup, MembersChanged
from jupyter_ddl.protocol.rank_messages import BatchDone, Execute, ToCells
from jupyter_ddl.protocol.sampling import SamplerCall
from jupyter_ddl.ranks.cells import CellService
from jupyter_ddl.ranks.channel import RankChannel, TerminationHandler
from jupyter_ddl.ranks.fit.runner import FitRunner
from jupyter_ddl.ranks.gpus import use_gpus
from jupyter_ddl.ranks.group import RankGroup
from jupyter_ddl.ranks.heartbeat import Heartbeat, LoaderWatch, Phase
from jupyter_ddl.ranks.imports import after_import
from jupyter_ddl.ranks.incell import replace_builtins
from jupyter_ddl.ranks.log import TAIL_BYTES, RankLog, is_disk_full, log_name
from jupyter_ddl.ranks.membership import membership
from jupyter_ddl.ranks.outputs import watch_imports
from jupyter_ddl.ranks.profiling import N_PROFILED, StepProfiler
from jupyter_ddl.ranks.program import LoadedProgram, load_program
from jupyter_ddl.ranks.rendezvous import AloneRank
from jupyter_ddl.ranks.sampler_service import SamplerService
from jupyter_ddl.ranks.stacks import StackDump
from jupyter_ddl.ranks.step_times import StepTimes, watch_exchanges
from jupyter_ddl.ranks.stopping import TrialStopped, stop_flag
from jupyter_ddl.ranks.tracebacks import failure_of, with_output
from jupyter_ddl.store.blobs import BlobMissingError
from jupyter_ddl.store.death_signal import bind_forked_children
from jupyter_ddl.store.processes import RANK_VARIABLE

__all__ = ["run"]

_Obstacle: TypeAlias = tuple[Outcome, Failure]
"""Why no trial of an assignment can be executed, and how each of them ends by that."""


def run(name: str, sock: socket.socket) -> int:
    """Serve until the worker closes its end of the socket; return the exit code."""
    os.environ[RANK_VARIABLE] = name
    with contextlib.suppress(OSError, ValueError):
        # A core file of a process with torch is gigabytes; who wants one can raise this again.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    replace_builtins()
    termination = TerminationHandler(stop_flag)
    termination.install()  # a stop may come before the first trial
    channel = RankChannel(sock, termination)
    rank = _Rank(channel, termination)
    bind_forked_children(in_child=channel.forget)
    threading.Thread(target=rank.read_control, name="ddl-control", daemon=True).start()
    rank.loader.start()
    watch_imports()
    rank.execute_all()
    # What user code has registered (loggers, multiprocessing) gets its chance; the worker kills
    # this process if that takes too long.
    atexit._run_exitfuncs()
    return 0


class _Rank:
    def __init__(self, channel: RankChannel, termination: TerminationHandler) -> None:
        self._channel = channel
        self._send = channel.send
        self._termination = termination
        self._assignments: queue.SimpleQueue[Execute | SamplerCall | ToCells | None] = (
            queue.SimpleQueue()
        )
        self._joins: queue.SimpleQueue[JoinGroup] = queue.SimpleQueue()
        self._sampler = SamplerService()
        self._cells = CellService(self._send, self._joins)
        self._log: RankLog | None = None
        self._log_start = 0
        self._program: LoadedProgram | None = None
        self.loader = LoaderWatch(channel.tell_loader_wait)
        self._beats: Heartbeat | None = None
        self._steps: StepTimes | None = None
        self._counts_steps = False
        self._profiler: StepProfiler | None = None
        self._fits = FitRunner()
        self._alone = AloneRank(self._tell)
        self._stack_dump = StackDump()

    # -- other threads -------------------------------------------------------------------------

    def read_control(self) -> None:
        while True:
            message = self._channel.receive()
            if message is None:
                self._assignments.put(None)
                return
            if isinstance(message, Execute | SamplerCall | ToCells):
                self._assignments.put(message)
                continue
            if isinstance(message, JoinGroup):
                self._joins.put(message)
                continue
            if isinstance(message, MembersChanged):
                membership.take(message)
                continue
            if isinstance(message, InterruptRank):
                self._cells.interrupt(message.number)
                continue
            if isinstance(message, StopRun):
                stop_flag.request_all("cancelled")
            elif message.when == "next_checkpoint":
                stop_flag.request_at_checkpoint(message.trial, message.attempt, message.reason)
            else:
                stop_flag.request(message.trial, message.attempt, message.reason)
            if message.when == "now":
                # The worker's SIGTERM may have come before this message: then it had no reason yet.
                self._termination.interrupt()

    # -- main thread ----------------------------------------------------------------------------

    def execute_all(self) -> None:
        while (message := self._assignments.get()) is not None:
            if isinstance(message, SamplerCall):
                self._send(self._sampler.answer(message))
            elif isinstance(message, ToCells):
                self._stack_dump.enable()
                self._send(self._cells.handle(message))
            else:
                self._execute(message.assignment, message.worker)

    def _execute(self, assignment: Assignment, worker: str) -> None:
        use_gpus(assignment.visible_gpus)
        obstacle = self._open_log(assignment) if self._log is None else None
        for trial in assignment.trials:
            self._termination.install()
            self._start(trial, worker)
            if assignment.place is not None:
                self._stack_dump.enable()
                who = (trial.trial, trial.attempt)
                self._steps = StepTimes(*who, assignment.place.rank, self.loader, self._send)
                self._beats = Heartbeat(*who, self._send, self._steps.step)
            elif assignment.fit is None:
                self._time_steps(trial)
            # After the start, so that a process that dies of loading has failed at a trial.
            if self._program is None and obstacle is None:
                obstacle = self._load(assignment, trial)
            finished = (
                self._run(trial, assignment)
                if obstacle is None
                else _finished(trial, obstacle[0], time.monotonic(), obstacle[1])
            )
            self._close_profiler()
            self._close_beats()
            self._channel.hold(self._closed(finished))
        stop_flag.clear()
        self._send(BatchDone())

    def _begin_profiler(self, trial: TrialAssignment, assignment: Assignment) -> None:
        """Steps are known once the program's packages are imported."""
        if not assignment.profile or trial.trial >= N_PROFILED:
            return
        rank = 0 if assignment.place is None else assignment.place.rank
        self._profiler = StepProfiler(
            assignment.profile,
            (trial.trial, trial.attempt, rank),
            Path(assignment.run_dir),
            self._send,
            self.loader.step_aside,
        )
        self._profiler.begin()

    def _close_profiler(self) -> None:
        if self._profiler is not None:
            self._profiler.close()
            self._profiler = None

    def _time_steps(self, trial: TrialAssignment) -> None:
        """Of a trial on one rank; nobody waits for its signs of life."""
        who = (trial.trial, trial.attempt, 0)
        self._steps = StepTimes(*who, self.loader, self._send, is_alone=True)
        if not self._counts_steps:
            self._counts_steps = True
            after_import("torch.optim.optimizer", self._count_steps)

    def _count_steps(self) -> None:
        module: Any = sys.modules["torch.optim.optimizer"]
        thread_id = threading.get_ident()

        def stepped(optimizer: Any, *_: object) -> None:
            if self._beats is not None or self._steps is None:
                return  # a group's are counted with its signs of life
            if threading.get_ident() == thread_id:
                self._steps.step(optimizer)

        module.register_optimizer_step_post_hook(stepped)

    def _close_beats(self) -> None:
        if self._steps is not None:
            self._steps.close()
        if self._beats is not None:
            self._beats.close()
        self._beats = self._steps = None

    def _open_log(self, assignment: Assignment) -> _Obstacle | None:
        try:
            self._log = RankLog(assignment.run_dir, log_name(assignment.assignment_id, os.getpid()))
        except OSError as error:
            # Whatever it is (full, read-only, gone), it is not the trial's fault.
            return "failed", _failure(error, "disk")
        return None

    def _start(self, trial: TrialAssignment, worker: str) -> None:
        if self._log is not None:
            self._log.prepare()
        self._log_start = self._log_position()
        self._send(
            AttemptStarted(
                trial=trial.trial,
                attempt=trial.attempt,
                at_s=time.time(),
                worker=worker,
                pid=os.getpid(),
                log="" if self._log is None else self._log.name,
                log_start=self._log_start,
            )
        )

    def _log_position(self) -> int:
        return 0 if self._log is None else self._log.position()

    def _load(self, assignment: Assignment, trial: TrialAssignment) -> _Obstacle | None:
        try:
            with self._termination.during(trial.trial, trial.attempt):
                self._program = load_program(assignment)
        except TrialStopped:
            return None  # running the trial ends in the same way
        except BaseException as error:  # noqa: BLE001 - the wall of the rank process
            if isinstance(error.__cause__, BlobMissingError):
                # The host lost the program, or never had it: nothing that a trial could help.
                return "evicted", _failure(error, "blob")
            return "failed", _failure(error)
        return None

    def _run(self, trial: TrialAssignment, assignment: Assignment) -> AttemptFinished:
        started_s = time.monotonic()
        try:
            with self._termination.during(trial.trial, trial.attempt):
                if self._program is None:
                    raise TrialStopped("cancelled")
                return self._told(self._run_in_group(self._program, trial, assignment))
        except TrialStopped as stopped:
            return _finished(trial, stopped.reason, started_s)
        except BaseException as error:  # noqa: BLE001 - the wall of the rank process
            return _finished(trial, "failed", started_s, _failure(error))
        finally:
            if not self._channel.is_ours:
                os._exit(1)  # a process that the cell has forked ran through to its end

    def _told(self, finished: AttemptFinished) -> AttemptFinished:
        """Put the end of the output below a failure, and the failure below the output."""
        if finished.failure is None or self._log is None:
            return finished
        failure = with_output(finished.failure, self._log.since(self._log_start, TAIL_BYTES))
        self._log.append(finished.failure.traceback)
        return msgspec.structs.replace(finished, failure=failure)

    def _run_in_group(
        self, program: LoadedProgram, trial: TrialAssignment, assignment: Assignment
    ) -> AttemptFinished:
        """Run a trial, between meeting the other ranks and leaving them if it has any."""
        place = assignment.place
        if place is None:
            self._begin_profiler(trial, assignment)
            with self._alone.trial():
                if assignment.fit is not None and self._log is not None:
                    return self._fits.run(trial, assignment, self._log)
                return program.run_trial(trial, assignment, self._emit, stop_flag)
        self._begin("rendezvous")
        group = RankGroup(place, trial, self._send, self._joins, self._tell)
        group.enter(with_torch=program.uses("torch"))
        watch_exchanges()
        self.loader.hook()
        self._begin_profiler(trial, assignment)
        self._begin("cell")
        finished = program.run_trial(trial, assignment, self._emit, stop_flag, group.votes())
        self._begin("leaving")
        if finished.outcome == "complete":
            group.leave()
        return finished

    def _tell(self, text: str) -> None:
        self._send(Notice(time.time(), text))

    def _begin(self, phase: Phase) -> None:
        if self._beats is not None:
            self._beats.begin(phase)

    def _emit(self, event: RankEvent) -> None:
        """Send what the cell has to tell; a checkpoint is where an attempt leaves if asked to.

        Raises
        ------
        TrialStopped
            The attempt was asked to leave at its next checkpoint, and has saved it.
        """
        self._send(event)
        if type(event) is Reported:
            if self._beats is not None:
                self._beats.step()
        elif isinstance(event, CheckpointSaved):
            self.loader.step_aside()
            reason = stop_flag.pending_at_checkpoint(event.trial, event.attempt)
            if reason is not None and threading.current_thread() is threading.main_thread():
                raise TrialStopped(reason)

    def _closed(self, finished: AttemptFinished) -> AttemptFinished:
        """Add where the attempt's output ends, or that it could not be written."""
        if self._log is None:
            return finished
        log_end = self._log.position()
        error = self._log.take_error()
        if error is not None and is_disk_full(error) and finished.outcome in ("complete", "failed"):
            return msgspec.structs.replace(
                finished,
                outcome="failed",
                failure=failure_of(error, "", kind="disk"),
                value=None,
                log_end=log_end,
            )
        return msgspec.structs.replace(finished, log_end=log_end)


def _finished(
    trial: TrialAssignment, outcome: Outcome, started_s: float, failure: Failure | None = None
) -> AttemptFinished:
    return AttemptFinished(
        trial=trial.trial,
        attempt=trial.attempt,
        outcome=outcome,
        at_s=time.time(),
        duration_s=time.monotonic() - started_s,
        failure=failure,
    )


def _failure(error: BaseException, kind: FailureKind | None = None) -> Failure:
    """A failure that is not the cell's own, told in the log as well."""
    with contextlib.suppress(OSError):  # the log may lie on the disk that is full
        traceback.print_exception(error)
    return failure_of(error, "", kind=kind)
