"""The rank processes of one worker: forked when needed, kept for their run while idle."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec

from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.assignment import Assignment
from jupyter_ddl.protocol.rank_messages import PackagesImported, RankExited
from jupyter_ddl.store.exhaustion import used_up
from jupyter_ddl.worker.rank_process import RankProcess
from jupyter_ddl.worker.zygote_process import WorkerSettings, Zygote

__all__ = ["RankPool"]

log = logging.getLogger(__name__)

IDLE_TIMEOUT_S = 60.0
_CLOSE_TIMEOUT_S = 5.0
_ROOM_BYTES = 1 << 20

OnLoaded: TypeAlias = Callable[[Iterable[str]], None]


class RankPool:
    """Owns the zygote and all ranks of a worker.  Used on the worker's loop only.

    ``start`` may be left out: the first :meth:`acquire` does the same.  After ``close`` no
    process below this worker is left.
    """

    def __init__(self, settings: WorkerSettings, on_notice: Callable[[str], None]) -> None:
        self._settings = settings
        self._on_notice = on_notice
        self._zygote: Zygote | None = None
        self._beginning: Zygote | None = None
        """The latest one that was to be started."""
        self._starting = asyncio.Lock()
        self._closed = False
        self._ranks: dict[str, RankProcess] = {}
        self._idle: dict[tuple[str, str], list[RankProcess]] = {}
        self._idle_timers: dict[str, asyncio.TimerHandle] = {}
        self._n_forked = 0
        self._complaints: set[str] = set()
        self._retired: list[Zygote] = []
        self._retiring: set[asyncio.Task[None]] = set()
        self._unwanted: set[asyncio.Future[RankProcess]] = set()
        self.on_zygote: OnLoaded = lambda _: None
        """Told what a new zygote has loaded."""
        self.on_loaded: OnLoaded = lambda _: None
        """Told what the zygote has loaded since."""

    @property
    def zygote_pid(self) -> int | None:
        return None if self._zygote is None else self._zygote.pid

    @property
    def zygote_pids(self) -> tuple[int, ...]:
        """Those of all zygotes, also of the ones that end with their last ranks."""
        pids = (each.pid for each in (*self._retired, self._zygote) if each is not None)
        return tuple(pid for pid in pids if pid is not None)

    @property
    def importing_pid(self) -> int | None:
        """The process that a rank which is still to be forked waits for."""
        return None if self._beginning is None else self._beginning.importing_pid

    @property
    def ranks(self) -> tuple[RankProcess, ...]:
        """All ranks whose processes live."""
        return tuple(self._ranks.values())

    def of_run(self, run_id: str) -> Iterator[RankProcess]:
        return (rank for rank in self.ranks if rank.run_id == run_id)

    async def start(self) -> Zygote:
        """Start the zygote if there is none that serves, and return it.

        Raises
        ------
        LaunchError
            It can't be started, or this worker is closing.
        """
        async with self._starting:
            if self._closed:
                raise LaunchError("this worker is closing; it starts no more rank processes")
            if self._zygote is None or self._zygote.is_lost:
                zygote = self._new_zygote(self._settings.prewarm)
                async with self._begins(zygote):
                    await zygote.start()
                self._zygote = zygote
            return self._zygote

    def _new_zygote(self, prewarm: tuple[str, ...]) -> Zygote:
        zygote = Zygote(
            msgspec.structs.replace(self._settings, prewarm=prewarm),
            on_rank_exited=self._on_rank_exited,
            on_imported=self._on_imported,
            on_lost=lambda: self._on_zygote_lost(zygote),
        )
        return zygote

    @contextlib.asynccontextmanager
    async def _begins(self, zygote: Zygote) -> AsyncIterator[None]:
        started_s = time.monotonic()
        self._beginning = zygote
        try:
            yield
            self.on_zygote(zygote.loaded)
        except BaseException as error:
            await zygote.close()
            if isinstance(error, OSError):
                raise LaunchError(
                    f"the zygote can't be started: {error}{used_up(error)}"
                ) from error
            raise
        log.info("zygote %s serves after %.3f s", zygote.pid, time.monotonic() - started_s)

    async def renew(self, overlay: str) -> None:
        """Fork further ranks from a new zygote, which finds packages in ``overlay`` first.

        Ranks that work are left alone: the zygote that has forked them ends with the last one.

        Raises
        ------
        LaunchError
            The new one can't be started.
        """
        for rank in self.ranks:
            if rank.name in self._idle_timers:
                self._discard(rank)
        async with self._starting:
            self._settings = msgspec.structs.replace(self._settings, overlay=overlay)
            old, self._zygote = self._zygote, None
            if old is not None:
                self._retired.append(old)
        await self.start()
        self._close_retired()

    def _close_retired(self) -> None:
        """Close zygotes that were replaced and have no rank left."""
        for zygote in self._retired.copy():
            if not any(self._of_zygote(zygote)):
                self._retired.remove(zygote)
                task = asyncio.create_task(zygote.close(), name="ddl-zygote-retire")
                self._retiring.add(task)
                task.add_done_callback(self._retiring.discard)

    def _of_zygote(self, zygote: Zygote) -> Iterator[RankProcess]:
        return (rank for rank in self.ranks if rank.name.split(":")[1] == str(zygote.pid))

    async def import_packages(self, names: tuple[str, ...]) -> Zygote:
        """The zygote, which is to have these packages; who forks from it waits for that.

        Where the controller has a source, they are imported there, once for all workers, and
        another zygote takes the place of one that lacks them.

        Raises
        ------
        LaunchError
            There is no zygote, and none can be started.
        """
        zygote = await self.start()
        if zygote.gains(names):
            await self._replace(zygote, names)
            zygote = await self.start()
        zygote.import_packages(names)
        return zygote

    async def _replace(self, zygote: Zygote, names: tuple[str, ...]) -> None:
        """Have the source fork a zygote that has more packages, and retire this one."""
        async with self._starting:
            if self._closed or self._zygote is not zygote or zygote.is_lost:
                return
            newer = self._new_zygote((*zygote.asked, *names))
            try:
                async with self._begins(newer):
                    if not await newer.fork_off():
                        raise LaunchError("the source can't fork it")
            except LaunchError as error:
                log.info("zygote %s imports by itself: %s", zygote.pid, error.message)
                self._beginning = zygote
                return
            self._retired.append(zygote)
            self._zygote = newer
        self._close_retired()

    async def acquire(self, assignment: Assignment) -> RankProcess:
        """An idle rank of the assignment's run, or a new one; the caller releases it.

        Raises
        ------
        LaunchError
            None can be forked.
        """
        idle = self._idle.get((assignment.run_id, assignment.program), [])
        if idle and not assignment.fresh_process:
            rank = idle.pop()
            self._idle_timers.pop(rank.name).cancel()
            rank.settle(assignment)
            return rank
        return await self._fork(assignment)

    async def _fork(self, assignment: Assignment) -> RankProcess:
        zygote = await self.import_packages(assignment.warm)
        try:
            return await self._fork_from(zygote, assignment)
        except LaunchError:
            if not zygote.is_lost:
                raise
        return await self._fork_from(await self.import_packages(assignment.warm), assignment)

    async def _fork_from(self, zygote: Zygote, assignment: Assignment) -> RankProcess:
        self._n_forked += 1
        name = f"{assignment.run_id}:{zygote.pid}:{self._n_forked}"
        rank = RankProcess(name, assignment.run_id, assignment.program)
        rank.settle(assignment)
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise LaunchError(f"a rank's socket can't be made: {error}{used_up(error)}") from error
        # Room for what a rank reports while it isn't read (chunks.py): as much as the kernel gives.
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM_BYTES)
        self._ranks[name] = rank
        loop = asyncio.get_running_loop()
        with theirs:
            ours.setblocking(False)
            await loop.create_unix_connection(lambda: rank.protocol, sock=ours)
            try:
                rank.pid = await zygote.fork(name, theirs)
            except BaseException:
                rank.protocol.close()
                self._ranks.pop(name, None)
                raise
        rank.ended.add_done_callback(lambda _: self._forget(rank))
        return rank

    def release(self, rank: RankProcess, *, keep: bool) -> None:
        """Take a rank back; without ``keep`` its process exits."""
        rank.free()
        if rank.ended.done():
            return
        if not keep or self._closed:
            rank.leave()
            return
        self._idle.setdefault((rank.run_id, rank.program), []).append(rank)
        loop = asyncio.get_running_loop()
        self._idle_timers[rank.name] = loop.call_later(IDLE_TIMEOUT_S, self._discard, rank)

    def take_back(self, acquiring: asyncio.Future[RankProcess]) -> None:
        """Nobody waits for this rank any more: it exits as soon as it is there."""

        def released(acquired: asyncio.Future[RankProcess]) -> None:
            self._unwanted.discard(acquired)
            if not acquired.cancelled() and acquired.exception() is None:
                self.release(acquired.result(), keep=False)

        self._unwanted.add(acquiring)
        acquiring.add_done_callback(released)

    def discard_idle(self, run_id: str) -> None:
        """End the idle ranks of a run."""
        for rank in self.of_run(run_id):
            if rank.name in self._idle_timers:
                self._discard(rank)

    def _discard(self, rank: RankProcess) -> None:
        self._remove_idle(rank)
        rank.leave()

    def _remove_idle(self, rank: RankProcess) -> None:
        timer = self._idle_timers.pop(rank.name, None)
        if timer is None:
            return
        timer.cancel()
        key = (rank.run_id, rank.program)
        self._idle[key].remove(rank)
        if not self._idle[key]:
            del self._idle[key]

    def _forget(self, rank: RankProcess) -> None:
        self._remove_idle(rank)
        self._ranks.pop(rank.name, None)
        if self._retired and not self._closed:
            self._close_retired()

    def _on_rank_exited(self, message: RankExited) -> None:
        rank = self._ranks.get(message.name)
        if rank is not None:
            rank.exited(message)

    def _on_imported(self, message: PackagesImported) -> None:
        log.info("zygote imported %s", ", ".join(message.imported) or "nothing")
        self.on_loaded(message.loaded)
        for name, error in message.failed.items():
            if name not in self._complaints:
                self._complaints.add(name)
                self._on_notice(f"{name} can't be imported ahead of the ranks: {error}")

    def _on_zygote_lost(self, zygote: Zygote) -> None:
        self._on_notice("the zygote was lost with its rank processes; a new one is started")
        for rank in tuple(self._of_zygote(zygote)):
            rank.zygote_lost()

    async def close(self) -> None:
        """End every rank and the zygote."""
        self._closed = True
        if self._beginning is not None:
            self._beginning.stop_asking()
        for rank in self.ranks:
            self._remove_idle(rank)
            rank.kill("stop", "its worker is closing")
        async with self._starting:
            for zygote in (*self._retired, self._zygote):
                if zygote is not None:
                    await zygote.close()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        for rank in self.ranks:
            rank.zygote_lost()  # nobody is left who could tell of its end
        left = [rank.ended for rank in self.ranks]
        if left:
            await asyncio.wait(left, timeout=_CLOSE_TIMEOUT_S)
