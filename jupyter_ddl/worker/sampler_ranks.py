"""The rank processes that serve samplers: one per run that has its own, on one of the workers."""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.rank_messages import FromRank
from jupyter_ddl.protocol.sampling import SamplerAnswers, SamplerCall, SamplerFailed
from jupyter_ddl.worker.rank_pool import RankPool
from jupyter_ddl.worker.rank_process import RankProcess

__all__ = ["SamplerRanks"]


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
