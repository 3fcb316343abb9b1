"""One assignment on its way through a worker: ranks for it, their events, their deaths."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import deque
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.assignment import (
    Assignment,
    DumpStacks,
    StopRun,
    StopTrial,
    TrialAssignment,
)
from jupyter_ddl.protocol.cells import CellDone, RankReady
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Failure,
    Notice,
    Probe,
    RendezvousReady,
    Reported,
    WorkerLeaving,
)
from jupyter_ddl.protocol.group import JoinGroup, MembersChanged
from jupyter_ddl.protocol.rank_messages import BatchDone, FromRank
from jupyter_ddl.protocol.sampling import SamplerAnswers
from jupyter_ddl.ranks.stacks import read_stacks
from jupyter_ddl.ranks.stopping import StopReason
from jupyter_ddl.worker.chunks import ChunkRelay
from jupyter_ddl.worker.rank_death import LogTail, finished_by_death, oom_kill_count, read_log_tail
from jupyter_ddl.worker.rank_pool import RankPool
from jupyter_ddl.worker.rank_process import RankEnd, RankProcess
from jupyter_ddl.worker.silent_peers import silent_peers

__all__ = ["Execution", "RankSight", "descend", "look_at"]


# Looks at a rank process from outside: its state, its use of the CPU, its stacks.

_SAMPLE_S = 0.5
_OTHERS_FIRST_S = 0.7
"""A stopped rank goes on for a moment to write its stacks, and those that wait for it do too:
theirs are to be written before that."""


class RankSight(NamedTuple):
    """See :class:`jupyter_ddl.protocol.events.Probe`."""

    state: str
    cpu_share: float
    stacks: str
    cut_off: tuple[str, ...] = ()


async def look_at(pid: int, hosts: Collection[str] = ()) -> RankSight:
    """Look at a process for half a second, at a stopped one for longer.

    Parameters
    ----------
    hosts
        Addresses of those to which it may be connected.
    """
    before_s = await asyncio.to_thread(_tree_cpu_s, pid)
    await asyncio.sleep(_SAMPLE_S)
    after_s = await asyncio.to_thread(_tree_cpu_s, pid)
    state = _state(pid)
    if state == "T":
        await asyncio.sleep(_OTHERS_FIRST_S)
    stacks = await asyncio.to_thread(read_stacks, pid, stopped=state == "T")
    cut_off = await asyncio.to_thread(silent_peers, pid, hosts) if hosts else ()
    return RankSight(state, max(0.0, after_s - before_s) / _SAMPLE_S, stacks, cut_off)


def _state(pid: int) -> str:
    try:
        # The command's name may have any character in it; the state follows its last bracket.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _tree_cpu_s(pid: int) -> float:
    """CPU seconds of a process and its children (loader processes compute for it)."""
    total = 0.0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            times = process.cpu_times()
            total += times.user + times.system
    except psutil.Error:
        return total
    return total


# The stop ladder: SIGTERM, a time of grace, SIGKILL of the whole process group.

_POLL_S = 0.01


async def descend(rank: RankProcess, is_running: Callable[[], bool], grace_s: float) -> None:
    """End what a rank is executing; returns when it has ended, or the kernel can't end it.

    Parameters
    ----------
    is_running : callable
        Whether what is to end still runs.  The rank itself may go on with its next trial.
    grace_s : float
        Seconds between SIGTERM and SIGKILL.
    """
    # A stopped process acts on no signal but these two.
    rank.signal_group(signal.SIGCONT, signal.SIGTERM)
    deadline_s = asyncio.get_running_loop().time() + grace_s
    while is_running() and not rank.ended.done():
        if asyncio.get_running_loop().time() >= deadline_s:
            rank.kill("stop", f"it did not stop within {grace_s:.0f} s of SIGTERM")
            # Done at the latest when the rank is given up as unkillable.
            await asyncio.wait({rank.ended})
            return
        await asyncio.sleep(_POLL_S)


log = logging.getLogger(__name__)

_MAX_FALSE_STARTS = 3
"""Ranks in a row that die before they begin a trial, until the worker gives up."""
_READ_TIMEOUT_S = 5.0


class Execution:
    """Executes one assignment.  Used on the worker's loop only."""

    def __init__(
        self, assignment: Assignment, pool: RankPool, relay: ChunkRelay, worker: str
    ) -> None:
        self._assignment = assignment
        self._pool = pool
        self._relay = relay
        self._worker = worker
        self._waiting: deque[TrialAssignment] = deque(assignment.trials)
        self._current: AttemptStarted | None = None
        self._rank: RankProcess | None = None
        self._batch_done: asyncio.Future[None] | None = None
        self._stop_reason: StopReason | None = None
        self._stopped = asyncio.Event()
        """Set once nothing of it is to begin any more."""
        self._early: list[StopTrial] = []
        """Stops that came before there was a rank."""
        self._n_foreign = 0
        self.over = asyncio.Event()
        """Set by the plugin once all events have been published."""

    @property
    def run_id(self) -> str:
        return self._assignment.run_id

    async def run(self) -> None:
        """Execute the trials; everything that happens becomes events, nothing is raised."""
        n_false_starts = 0
        while self._waiting and not self._stopped.is_set():
            n_before = len(self._waiting)
            try:
                rank = await self._rank_unless_stopped()
            except LaunchError as error:
                self._evict_waiting(f"worker {self._worker} can't start a rank: {error.message}")
                return
            if rank is None:
                return
            end = await self._execute_on(rank)
            if end is None or len(self._waiting) < n_before:
                n_false_starts = 0
                continue
            n_false_starts += 1
            if n_false_starts == _MAX_FALSE_STARTS:
                self._evict_waiting(
                    f"on worker {self._worker} {n_false_starts} ranks in a row died before their "
                    f"first trial (the last one: {end})"
                )

    async def _rank_unless_stopped(self) -> RankProcess | None:
        """A rank; None when all was stopped before there was one, however long its start takes."""
        acquiring = asyncio.ensure_future(self._pool.acquire(self._assignment))
        stopping = asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait({acquiring, stopping}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            acquiring.cancel()
            raise
        finally:
            stopping.cancel()
        if not self._stopped.is_set():
            return acquiring.result()
        self._pool.take_back(acquiring)
        return None

    async def _execute_on(self, rank: RankProcess) -> RankEnd | None:
        """Execute waiting trials on a rank; return how it ended if it did."""
        fresh = self._assignment.fresh_process
        batch = (self._waiting[0],) if fresh else tuple(self._waiting)
        oom_kills_before = oom_kill_count()
        self._rank = rank
        self._batch_done = asyncio.get_running_loop().create_future()
        part = msgspec.structs.replace(self._assignment, trials=batch)
        rank.execute(part, self._worker, self._on_message)
        for message in self._early:
            rank.send(message)
        try:
            ends: list[asyncio.Future[Any]] = [self._batch_done, rank.ended]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            rank.kill("stop", "its worker is closing")
            raise
        finally:
            self._rank = None
        if self._batch_done.done():
            self._pool.release(rank, keep=not fresh and not self._stopped.is_set())
            if self._assignment.own_gpus:
                # The memory on its GPU is free when its process is gone, and not before.
                await asyncio.wait({rank.ended})
            return None
        end = rank.ended.result()
        await self._on_death(rank, end, oom_kills_before)
        return end

    def _on_message(self, message: FromRank, payload: bytes) -> None:
        if isinstance(message, BatchDone):
            if self._batch_done is not None and not self._batch_done.done():
                self._batch_done.set_result(None)
            return
        if not self._belongs(message):
            self._complain_of_foreign(message)
            return
        if isinstance(message, AttemptStarted):
            self._waiting.popleft()
            self._current = message
        elif isinstance(message, AttemptFinished):
            self._current = self._stop_reason = None
        self._relay.add_encoded(payload)
        if isinstance(message, RendezvousReady):
            self._relay.flush()  # all ranks of the group wait for this one
        if self._rank is not None:
            self._relay.slow_down(self._rank.protocol.pause, self._rank.protocol.resume)

    def _belongs(self, message: FromRank) -> bool:
        """Whether a rank may say this now: it speaks for the attempt it was given, no other."""
        if isinstance(message, Reported):  # the commonest
            return self._is_current(message.trial, message.attempt)
        if isinstance(message, AttemptStarted):
            if self._current is not None or not self._waiting:
                return False
            expected = self._waiting[0]
            return (message.trial, message.attempt) == (expected.trial, expected.attempt)
        if not isinstance(message, Notice | BatchDone | SamplerAnswers | RankReady | CellDone):
            return self._is_current(message.trial, message.attempt)
        return True

    def _is_current(self, trial: int, attempt: int) -> bool:
        current = self._current
        return current is not None and (current.trial, current.attempt) == (trial, attempt)

    def _complain_of_foreign(self, message: FromRank) -> None:
        self._n_foreign += 1
        if self._n_foreign == 1:
            self.notice(
                f"a rank of run {self.run_id} sent {type(message).__name__} for an attempt that is "
                f"not running (a thread that outlives its trial?); it and others like it are "
                f"dropped"
            )

    # -- ends that a rank can't report ----------------------------------------------------------

    async def _on_death(
        self, rank: RankProcess, end: RankEnd, oom_kills_before: int | None
    ) -> None:
        log.info("rank %s of run %s ended: %s", rank.pid, self.run_id, end)
        if end.cause == "unkillable":
            self.notice(end.detail)
        started, self._current = self._current, None
        if started is None:
            return
        reason, self._stop_reason = self._stop_reason, None
        oom_kills = oom_kill_count()
        finished = finished_by_death(
            started,
            end,
            await self._log_tail(started),
            stop_reason=reason,
            out_of_memory=oom_kills is not None and oom_kills > (oom_kills_before or 0),
        )
        self._relay.add(finished)

    async def _log_tail(self, started: AttemptStarted) -> LogTail:
        path = Path(self._assignment.run_dir) / "logs" / started.log
        reading = asyncio.to_thread(read_log_tail, path, started.log_start)
        try:
            return await asyncio.wait_for(reading, _READ_TIMEOUT_S)
        except TimeoutError:
            return LogTail()

    def _evict_waiting(self, why: str) -> None:
        self.notice(why)
        while self._waiting:
            trial = self._waiting.popleft()
            now = time.time()
            failure = Failure("launch", "Evicted", why)
            self._relay.add(
                AttemptFinished(trial.trial, trial.attempt, "evicted", now, 0.0, failure=failure)
            )

    def refuse(self) -> None:
        """Tell that this worker goes and begins nothing, lest it is asked again and again."""
        for trial in self._waiting:
            self._relay.add(WorkerLeaving(trial.trial, trial.attempt, 0.0))
        self._evict_waiting(f"worker {self._worker} was told to go")

    def notice(self, text: str) -> None:
        """Tell the user something that is not an event of an attempt."""
        self._relay.add(Notice(at_s=time.time(), text=text))

    def pass_on(self, message: JoinGroup | MembersChanged) -> None:
        """Tell the rank where the others of its group are, or that there are others now."""
        if self._rank is not None and self._is_current(message.trial, message.attempt):
            self._rank.send(message)

    async def probe(self, message: DumpStacks) -> None:
        """Look at the rank, and tell what was seen."""
        rank = self._rank
        if rank is None or not self._is_current(message.trial, message.attempt):
            return
        place = self._assignment.place
        seen = await look_at(rank.pid, () if place is None else place.hosts)
        if self._is_current(message.trial, message.attempt):
            self._relay.add(Probe(message.trial, message.attempt, *seen))
            self._relay.flush()  # it is waited for

    def worker_leaves(self, grace_s: float) -> None:
        """Tell that this worker goes; what is not of a group leaves at its next checkpoint."""
        rank, current = self._rank, self._current
        self._stopped.set()
        self._relay.hurry()
        if rank is None:
            self.refuse()
        if rank is None or current is None:
            return
        self._relay.add(WorkerLeaving(current.trial, current.attempt, grace_s))
        self._relay.flush()
        if self._assignment.place is None:
            stop = StopTrial(
                self.run_id, current.trial, current.attempt, "moved", "next_checkpoint"
            )
            rank.send(stop)

    # -- stops ----------------------------------------------------------------------------------

    async def stop_trial(self, message: StopTrial) -> None:
        """End one attempt, at its next report or now; another assignment's is no concern."""
        rank = self._rank
        place = self._assignment.place
        if place is not None and message.rank not in (None, place.rank):
            return
        waits = any((t.trial, t.attempt) == (message.trial, message.attempt) for t in self._waiting)
        if not (waits or self._is_current(message.trial, message.attempt)):
            return
        self._relay.hurry()
        if rank is None:
            # A round that is over waits for nobody who has not begun.
            if message.rank is not None and message.when == "now":
                self._stopped.set()
            else:
                self._early.append(message)
            return
        rank.send(message)
        if message.when == "now" and not waits:
            await self._descend(
                rank,
                message.reason,
                lambda: self._is_current(message.trial, message.attempt),
                self._assignment.stop_grace_s if message.grace_s is None else message.grace_s,
            )

    async def stop_run(self, message: StopRun) -> None:
        """End all attempts; those that have not begun are not executed."""
        self._stopped.set()
        rank = self._rank
        if rank is None:
            return
        self._relay.hurry()
        rank.send(message)
        if message.when == "now":
            grace_s = self._assignment.stop_grace_s
            await self._descend(rank, "cancelled", lambda: self._rank is rank, grace_s)

    async def _descend(
        self,
        rank: RankProcess,
        reason: StopReason,
        is_running: Callable[[], bool],
        grace_s: float,
    ) -> None:
        if self._current is not None:
            self._stop_reason = reason
        await descend(rank, is_running, grace_s)
