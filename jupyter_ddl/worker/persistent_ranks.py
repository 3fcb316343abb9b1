"""The ranks of persistent groups on one worker: started, asked, interrupted, watched, ended."""

from __future__ import annotations

import asyncio
import importlib.util
import signal
from pathlib import Path
from typing import Any

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.assignment import Assignment
from jupyter_ddl.protocol.cells import (
    CellDone,
    CloseRank,
    Done,
    InterruptRank,
    JoinRank,
    LookAtRank,
    OpenRank,
    RankAddress,
    RankAnswer,
    RankCall,
    RankGone,
    RankReady,
    RankSeen,
    RejoinRank,
    RunCell,
    WatchRank,
)
from jupyter_ddl.protocol.events import RendezvousReady
from jupyter_ddl.protocol.group import JoinGroup
from jupyter_ddl.protocol.rank_messages import FromRank
from jupyter_ddl.protocol.sampling import SamplerAnswers, SamplerCall, SamplerFailed
from jupyter_ddl.worker.execution import look_at
from jupyter_ddl.worker.rank_pool import RankPool
from jupyter_ddl.worker.rank_process import RankEnd, RankProcess

__all__ = ["CellRanks", "SamplerRanks"]


# The rank processes that serve samplers: one per run that has its own, on one of the workers.


class _SamplerRank:
    """A rank process, and the call that it is working on."""

    def __init__(self, rank: RankProcess) -> None:
        self.rank = rank
        self.turn = asyncio.Lock()
        self.answer: asyncio.Future[SamplerAnswers] | None = None

    def on_message(self, message: FromRank, _encoded: bytes) -> None:
        if isinstance(message, SamplerAnswers) and self.answer and not self.answer.done():
            self.answer.set_result(message)


class SamplerRanks:
    """Used on the worker's loop only."""

    def __init__(self, pool: RankPool) -> None:
        self._pool = pool
        self._ranks: dict[str, _SamplerRank] = {}
        self._starting = asyncio.Lock()

    async def call(self, call: SamplerCall) -> SamplerAnswers:
        """Pass requests to the run's sampler; a process that dies or hangs is a failed hook."""
        try:
            sampler = await self._of_run(call)
        except LaunchError as error:
            return _failed(call, "LaunchError", error.message)
        async with sampler.turn:
            answers = await self._ask(sampler, call)
        if call.close or sampler.rank.ended.done():
            self.end(call.run_id)
        return answers

    def end(self, run_id: str) -> None:
        """End the sampler of a run, if there is one here."""
        sampler = self._ranks.pop(run_id, None)
        if sampler is not None:
            self._pool.release(sampler.rank, keep=False)

    async def _of_run(self, call: SamplerCall) -> _SamplerRank:
        async with self._starting:
            sampler = self._ranks.get(call.run_id)
            if sampler is None or sampler.rank.ended.done():
                rank = await self._pool.acquire(call.assignment)
                sampler = _SamplerRank(rank)
                rank.listen(sampler.on_message)
                self._ranks[call.run_id] = sampler
            return sampler

    async def _ask(self, sampler: _SamplerRank, call: SamplerCall) -> SamplerAnswers:
        sampler.answer = asyncio.get_running_loop().create_future()
        sampler.rank.send(call)
        waited: list[asyncio.Future[Any]] = [sampler.answer, sampler.rank.ended]
        await asyncio.wait(
            waited,
            timeout=call.timeout_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if sampler.answer.done():
            return sampler.answer.result()
        sampler.answer.cancel()
        if sampler.rank.ended.done():
            return _failed(call, "SamplerLost", "the process of the sampler died")
        sampler.rank.kill("stop", "its sampler did not answer")
        return _failed(call, "TimeoutError", f"no answer within {call.timeout_s:.0f} s")


def _failed(call: SamplerCall, kind: str, message: str) -> SamplerAnswers:
    return SamplerAnswers((SamplerFailed("ask", kind, message),), call.offset)


class _CellRank:
    """A rank process, and the answer that is waited for."""

    def __init__(self, rank: RankProcess) -> None:
        self.process = rank
        self.running: int | None = None
        self.answer: asyncio.Future[RendezvousReady | RankReady | CellDone] | None = None

    def on_message(self, message: FromRank, _encoded: bytes) -> None:
        if not isinstance(message, RendezvousReady | RankReady | CellDone):
            return
        if isinstance(message, CellDone):
            self.running = None
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(message)

    def expect(self) -> None:
        """The next message is an answer; called before the rank is asked."""
        self.answer = asyncio.get_running_loop().create_future()

    async def next(self, timeout_s: float | None) -> RendezvousReady | RankReady | CellDone | None:
        """The answer; None when the rank ends, or ``timeout_s`` passes, without one."""
        if self.answer is None:
            return None
        waited: list[asyncio.Future[Any]] = [self.answer, self.process.ended]
        await asyncio.wait(waited, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return self.answer.result() if self.answer.done() else None


class CellRanks:
    """Used on the worker's loop only."""

    def __init__(self, pool: RankPool) -> None:
        self._pool = pool
        self._ranks: dict[tuple[str, int], _CellRank] = {}

    @property
    def group_ids(self) -> frozenset[str]:
        """Groups that have ranks here."""
        return frozenset(group_id for group_id, _ in self._ranks)

    async def call(self, call: RankCall) -> RankAnswer:
        """Do what the controller asks of one rank; one that is gone says why."""
        if isinstance(call, OpenRank):
            return await self._open(call)
        if isinstance(call, LookAtRank):
            return await self._look_at(call)
        rank = self._ranks.get((call.group_id, call.rank))
        if rank is None:
            return RankGone("is not on this worker any more")
        match call:
            case RunCell():
                return await self._run(rank, call)
            case WatchRank():
                await asyncio.wait([rank.process.ended])
                return _gone(rank.process.ended.result())
            case InterruptRank():
                self._interrupt(rank, call)
            case CloseRank():
                self._close(rank, call)
            case JoinRank():
                rank.expect()
                rank.process.send(JoinGroup(call.group_id, 0, 0, call.addresses, call.store))
                return await self._ready(rank, call.timeout_s)
            case RejoinRank():
                rank.expect()
                rank.process.send(call)
                return await self._ready(rank, call.timeout_s)
        return Done()

    async def _open(self, call: OpenRank) -> RankAnswer:
        place = call.place
        try:
            if place.initialize and importlib.util.find_spec("torch") is not None:
                # By the zygote: once for all ranks, and for all later ones.
                await self._pool.import_packages(("torch", "torch.distributed"))
            process = await self._pool.acquire(_fresh(call))
        except LaunchError as error:
            return RankGone(f"can't be started: {error.message}")
        rank = self._ranks[call.group_id, place.rank] = _CellRank(process)
        process.listen(rank.on_message)
        rank.expect()
        process.send(call)
        answer = await rank.next(place.timeout_s)
        if isinstance(answer, RendezvousReady):
            return RankAddress(answer.host, answer.port, process.pid, answer.store)
        return answer if isinstance(answer, RankReady) else self._silent(rank, place.timeout_s)

    async def _look_at(self, call: LookAtRank) -> RankAnswer:
        rank = self._ranks.get((call.group_id, call.rank))
        # One that is not there yet waits for the import of packages.
        pid = self._pool.importing_pid if rank is None else rank.process.pid
        if pid is None:
            return RankSeen("", "")
        seen = await look_at(pid, call.hosts)
        return RankSeen(seen.state, seen.stacks, seen.cpu_share, seen.cut_off, _n_runs(pid))

    async def _ready(self, rank: _CellRank, timeout_s: float) -> RankAnswer:
        answer = await rank.next(timeout_s)
        return answer if isinstance(answer, RankReady) else self._silent(rank, timeout_s)

    async def _run(self, rank: _CellRank, call: RunCell) -> RankAnswer:
        rank.running = call.number
        rank.expect()
        rank.process.send(call)
        answer = await rank.next(None)  # ends with the cell, the rank or the controller
        return answer if isinstance(answer, CellDone) else self._silent(rank, 0.0)

    def _silent(self, rank: _CellRank, timeout_s: float) -> RankGone:
        """Why a rank did not answer."""
        if rank.process.ended.done():
            return _gone(rank.process.ended.result())
        rank.process.kill("stop", "it did not answer")
        return RankGone(f"did not answer within {timeout_s:.0f} s")

    def _interrupt(self, rank: _CellRank, call: InterruptRank) -> None:
        rank.process.send(call)
        if rank.running == call.number:
            # To what the cell has started as well, as a terminal does it.
            rank.process.signal_group(signal.SIGCONT, signal.SIGINT)

    def _close(self, rank: _CellRank, call: CloseRank) -> None:
        del self._ranks[call.group_id, call.rank]
        if rank.running is not None:
            rank.process.kill("stop", "its group was ended")
        self._pool.release(rank.process, keep=False)


def _gone(end: RankEnd) -> RankGone:
    if end.cause == "itself":
        if end.signal_number is not None:
            return RankGone(f"was ended by {_signal_name(end.signal_number)}")
        return RankGone(f"ended itself with exit code {end.exit_code}")
    return RankGone(f"was ended: {end.detail}")


def _n_runs(pid: int) -> int:
    try:
        # https://docs.kernel.org/scheduler/sched-stats.html: time on a CPU, time waiting, times
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[2])
    except (OSError, IndexError, ValueError):  # the kernel counts none
        return 0


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _fresh(call: OpenRank) -> Assignment:
    return Assignment(
        run_id=call.group_id,
        assignment_id=f"{call.group_id}-{call.place.rank}",
        program="",
        trials=(),
        run_dir=call.run_dir,
        blob_dirs=call.blob_dirs,
        topic="",
        fresh_process=True,
        place=call.place,
    )
