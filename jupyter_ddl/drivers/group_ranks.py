"""The rank processes of one persistent group: brought up together, asked, brought down."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jupyter_ddl.driving.assignments import place_ranks
from jupyter_ddl.errors import LaunchError
from jupyter_ddl.launch.rank_calls import RankCalls
from jupyter_ddl.placement.gpus import Grant
from jupyter_ddl.protocol.cell_results import RankAddress, RankAnswer, RankGone, RankReady
from jupyter_ddl.protocol.cells import (
    CloseRank,
    InterruptRank,
    JoinRank,
    OpenRank,
    RankCall,
    RejoinRank,
)
from jupyter_ddl.protocol.group import RankPlace
from jupyter_ddl.protocol.replies import RankStatus
from jupyter_ddl.protocol.run import RunSpec

__all__ = ["GroupRanks"]

_START_TIMEOUT_S = 180.0
"""Of a start with everything in it: forks, an import of torch, the rendezvous."""
_JOIN_TIMEOUT_S = 120.0
_CONTROL_TIMEOUT_S = 5.0


class GroupRanks:
    """Used on the controller's loop only.

    Parameters
    ----------
    places, hosts, devices
        One worker per rank with its GPUs, the address of its host, and what to call its device
        where it has GPUs.
    """

    def __init__(
        self,
        spec: RunSpec,
        calls: RankCalls,
        places: Grant,
        hosts: Sequence[str],
        devices: Sequence[str],
    ) -> None:
        self._spec = spec
        self._group_id = spec.run_id
        self._calls = calls
        self._workers = places.workers
        self._gpus = places.gpus
        self._devices = tuple(devices)
        self.hosts = tuple(hosts)
        self.has_process_group = False

    def __len__(self) -> int:
        return len(self._workers)

    async def open(self, run_dir: Path, blob_dirs: tuple[str, ...]) -> list[RankStatus]:
        """Start all ranks and bring them together.

        Raises
        ------
        LaunchError
            A rank could not be started; none is left.
        """
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                addresses = await self._start(run_dir, blob_dirs)
                ready = await self._join(addresses)
        except TimeoutError:
            await self.close()
            raise LaunchError(
                f"starting {len(self)} ranks took longer than {_START_TIMEOUT_S:.0f} s; "
                f"see `%cluster logs`"
            ) from None
        except BaseException:
            await self.close()
            raise
        self.has_process_group = all(each.has_process_group for each in ready)
        return [
            RankStatus(
                rank=rank,
                worker=self._workers[rank],
                host=address.host,
                pid=address.pid,
                device=self._devices[rank] if self._devices else ready[rank].device,
                log=f"rank-{rank}.log",
                log_end=0,
            )
            for rank, address in enumerate(addresses)
        ]

    async def _start(self, run_dir: Path, blob_dirs: tuple[str, ...]) -> list[RankAddress]:
        ranks = self._spec.verb.ranks
        base = RankPlace(
            group_id=f"{self._group_id}-{secrets.token_hex(16)}",
            backend=ranks.backend,
            initialize=ranks.initialize,
            timeout_s=_JOIN_TIMEOUT_S,
        )
        places = place_ranks(self._workers, self.hosts, base, self._gpus)
        answers = await self._ask_all(
            [OpenRank(self._group_id, str(run_dir), blob_dirs, place) for place in places]
        )
        return [self._expected(rank, each, RankAddress) for rank, each in enumerate(answers)]

    async def _join(self, addresses: Sequence[RankAddress]) -> list[RankReady]:
        known = tuple(f"{each.host}:{each.port}" for each in addresses)
        answers = await self._ask_all(
            [
                JoinRank(self._group_id, rank, known, _JOIN_TIMEOUT_S)
                for rank in range(len(addresses))
            ]
        )
        return [self._expected(rank, each, RankReady) for rank, each in enumerate(answers)]

    async def rejoin(self, round_id: str) -> None:
        """Replace the process group, whose connections were cut.

        Raises
        ------
        LaunchError
            The ranks do not come together again.
        WorkerLostError
            A worker is gone.
        """
        calls = [
            RejoinRank(self._group_id, rank, round_id, _JOIN_TIMEOUT_S) for rank in range(len(self))
        ]
        for rank, answer in enumerate(await self._ask_all(calls)):
            self._expected(rank, answer, RankReady)

    def _expected(self, rank: int, answer: RankAnswer, kind: type[Any]) -> Any:
        if isinstance(answer, RankReady) and answer.failure is not None:
            failure = answer.failure
            raise LaunchError(
                f"rank {rank} could not join its group: {failure.type_name}: {failure.message}; "
                f"--no-init starts ranks without a process group",
                traceback=failure.traceback,
            )
        if not isinstance(answer, kind):
            reason = answer.reason if isinstance(answer, RankGone) else f"answered {answer!r}"
            raise LaunchError(f"rank {rank} (on {self._workers[rank]}) {reason}")
        return answer

    async def ask(self, rank: int, call: RankCall, timeout_s: float | None) -> RankAnswer:
        """Ask one rank; see :meth:`RankCalls.call`."""
        return await self._calls.call(self._workers[rank], call, timeout_s)

    async def interrupt(self, ranks: Iterable[int], number: int) -> None:
        """Raise ``KeyboardInterrupt`` in a cell; a rank that is lost ends it anyway."""
        asked = [
            self.ask(rank, InterruptRank(self._group_id, rank, number), _CONTROL_TIMEOUT_S)
            for rank in ranks
        ]
        await asyncio.gather(*asked, return_exceptions=True)

    async def close(self) -> None:
        """End all ranks, whatever they execute."""
        closing = [
            self.ask(rank, CloseRank(self._group_id, rank), _CONTROL_TIMEOUT_S)
            for rank in range(len(self))
        ]
        await asyncio.gather(*closing, return_exceptions=True)  # a worker that is gone has none

    async def _ask_all(self, calls: Sequence[RankCall]) -> list[RankAnswer]:
        asked = (self.ask(rank, call, _START_TIMEOUT_S) for rank, call in enumerate(calls))
        return list(await asyncio.gather(*asked))
