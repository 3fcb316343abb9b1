"""What a mirror answers to clients of this host: what the controller elsewhere does.

Whatever is asked is passed on.  What it names of this host goes up before; what the answer tells of
is here before the answer is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

import msgspec

from jupyter_ddl.backends.base import ControllerHost
from jupyter_ddl.background import BackgroundTasks
from jupyter_ddl.controller.event_files import EventFileWriters
from jupyter_ddl.controller.server import Session
from jupyter_ddl.errors import (
    ControllerError,
    JupyterDDLError,
    ProtocolError,
    RunNotFoundError,
    StorageError,
)
from jupyter_ddl.ledger.reader import read_ledger, read_run_line, read_submitted
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.snapshots import encoded_snapshot
from jupyter_ddl.mirror.blobs import bring_up, digests_of
from jupyter_ddl.mirror.bringing import Bringing
from jupyter_ddl.mirror.remote import Remote
from jupyter_ddl.mirror.runs import Ask, RunCopies
from jupyter_ddl.protocol import requests as ask
from jupyter_ddl.protocol.folder import home_path
from jupyter_ddl.protocol.framing import encode_frame
from jupyter_ddl.protocol.link import Link
from jupyter_ddl.protocol.mirroring import (
    BringBlob,
    BringRunFile,
    HandedOver,
    HandOver,
    RemoveRun,
    SettleRuns,
)
from jupyter_ddl.protocol.replies import (
    Accepted,
    ClusterStatus,
    DaskAccess,
    GroupResult,
    Result,
    SnapshotPush,
    SnapshotResult,
    StatusResult,
)
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.store.paths import ledger_path

__all__ = ["Proxy"]

log = logging.getLogger(__name__)

_NAMES_BLOBS = (ask.SubmitRun, ask.OpenGroup, ask.ExecuteCell, ask.FeedFit, ask.SyncEnvironment)
_HAND_S = 1.0
_BUSY_S = 0.3
"""Between two looks at the run of a cell that is being executed: its output is shown live."""
_END_S = 30.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 5.0


class Proxy:
    """Handles the requests of all sessions of the mirror's socket.

    Parameters
    ----------
    stop : callable
        Ends the mirror; given why.
    """

    def __init__(
        self,
        name: str,
        host: ControllerHost,
        remote: Remote,
        copies: RunCopies,
        stop: Callable[[str], None],
    ) -> None:
        self._name = name
        self._host = host
        self._remote = remote
        self._copies = copies
        self._stop = stop
        self._watchers: dict[str, dict[Session, None]] = {}
        self._status: ClusterStatus | None = None
        self._tasks = BackgroundTasks(log, "mirror")
        self._final: dict[str, asyncio.Task[None]] = {}
        self.active: frozenset[str] = frozenset()
        """Runs that the controller drives, as far as is known."""
        self._bringing = Bringing(copies, remote.ask)
        self._event_files = EventFileWriters()
        self._handed: dict[frozenset[str], _Handing] = {}
        self.is_ending = False
        """Whether the cluster is being ended from here."""

    async def close(self) -> None:
        await self._bringing.close()
        await self._event_files.close()
        for each in self._handed.values():
            each.task.cancel()
        await asyncio.gather(*(each.task for each in self._handed.values()), return_exceptions=True)
        await self._tasks.close()

    # -- requests ----------------------------------------------------------------------------------

    async def handle(self, body: ask.Body, session: Session) -> Result:
        """The result of one request; raises :class:`JupyterDDLError` for a refusal."""
        match body:
            case ask.Hello():
                return self._hello(body)
            case ask.GetStatus():
                return await self._get_status()
            case ask.WatchRun(run_id=run_id):
                return await self._watch(run_id, session)
            case ask.UnwatchRun(run_id=run_id):
                self._unwatch(run_id, session)
                return Accepted(run_id=run_id)
            case ask.StopCluster():
                self._tasks.start(self._end_cluster(), name="end of the cluster")
                return Accepted()
            case ask.GetDask():
                return await self._dask_access()
            case HandOver(digests=digests):
                return await self._hand_over(digests)
            case ask.ResumeRun():
                return await self._resume(body)
            case RemoveRun(run_id=run_id):
                # A copy that has not heard of its end would count as lost there, and be given back.
                with contextlib.suppress(JupyterDDLError):
                    await self._copies.bring(run_id)
            case BringRunFile() | BringBlob():
                return await self._bringing.answer(body)
            case ask.ExecuteCell(group_id=run_id):
                return await self._execute(body, run_id)
            case _:
                pass
        return await self._pass_on(body)

    async def _pass_on(self, body: ask.Body) -> Result:
        if isinstance(body, _NAMES_BLOBS):
            await self._bring_up(body)
        result = await self._remote.ask(body)
        match body:
            case ask.FetchFile(run_id=run_id, file=file):
                await self._copies.fetch(run_id, home_path(file.worker, file.path))
            case ask.SubmitRun(spec=spec) | ask.OpenGroup(spec=spec):
                await self._begun(_run_of(result, spec.run_id))
            case ask.TakeFit(run_id=run_id) | ask.FinishFit(run_id=run_id):
                await self._copies.bring(run_id)
            case ask.CloseGroup(group_id=run_id):
                await self._copies.bring(run_id)
            case _:
                pass
        return result

    async def resume(self, run_id: str) -> None:
        """Have the controller go on with a run, which it is given if it does not have it."""
        await self._resume(ask.ResumeRun(run_id))

    async def _resume(self, body: ask.ResumeRun) -> Result:
        look = await self._copies.look()
        if body.run_id in look.removed.union(each.run_id for each in look.lost):
            log.info("the controller does not have run %s: it is given", body.run_id)
            await self._copies.give(body.run_id)
        # What is lost here as well, the run itself tells of: it waits for that.
        with contextlib.suppress(StorageError):
            await self._bring_up(body)
        result = await self._remote.ask(body)
        await self._begun(body.run_id)
        return result

    async def _begun(self, run_id: str) -> None:
        self.active |= {run_id}
        await self._copies.bring(run_id)
        await self.write_event_files(run_id)

    async def write_event_files(self, run_id: str) -> None:
        """Have those for TensorBoard written beside the copy of a run that goes on."""
        with contextlib.suppress(JupyterDDLError):  # it is not here yet, or damaged
            submitted = await asyncio.to_thread(read_submitted, ledger_path(run_id))
            self._event_files.start(submitted.spec)

    async def _hand_over(self, digests: tuple[str, ...]) -> Result:
        """Go on bringing blobs up for a moment, or begin."""
        wanted = frozenset(digests)
        found = self._handed.get(wanted)
        if found is None:
            found = self._handed[wanted] = _Handing(self._remote.ask, digests)
        await asyncio.wait({found.task}, timeout=_HAND_S)
        if found.task.done():
            if self._handed.get(wanted) is found:  # else another client has heard of it first
                del self._handed[wanted]
            found.task.result()
        return found.progress

    async def _bring_up(self, body: ask.Body) -> None:
        await bring_up(self._remote.ask, await asyncio.to_thread(digests_of, body))

    def _hello(self, body: ask.Hello) -> Result:
        if body.version != ask.PROTOCOL_VERSION:
            raise ProtocolError(
                f"this client speaks protocol {body.version}, what stands here for the controller "
                f"of cluster {self._name} speaks {ask.PROTOCOL_VERSION}; `%cluster attach "
                f"{self._name}` with the version that started it"
            )
        return Accepted()

    async def _get_status(self) -> Result:
        """As the controller says, or as it was when it was last heard."""
        if self._status is None or not (self.is_ending or self._remote.trouble):
            result = await self._remote.ask(ask.GetStatus())
            if not isinstance(result, StatusResult):
                return result
            self._status = result.status
        status = self._status
        if self.is_ending:
            told = f"its runs are copied here before it ends, {self._remote.n_parts:,} MiB so far"
            status = msgspec.structs.replace(status, state="stopping", trouble=told)
        elif self._remote.trouble:
            status = msgspec.structs.replace(status, state="degraded", trouble=self._remote.trouble)
        return StatusResult(status)

    async def _dask_access(self) -> Result:
        result = await self._remote.ask(ask.GetDask())
        if not isinstance(result, DaskAccess):
            return result
        address = await self._host.reachable(result.address)
        return msgspec.structs.replace(result, address=address)

    async def _execute(self, body: ask.Body, group_id: str) -> Result:
        """Have a cell executed; what it prints is here a moment later, and all of it at its end."""
        looking = self._tasks.start(self._look_often(group_id), name=f"output of {group_id}")
        try:
            return await self._pass_on(body)
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            with contextlib.suppress(JupyterDDLError):
                await self._copies.bring(group_id)

    async def _look_often(self, run_id: str) -> None:
        while True:
            await asyncio.sleep(_BUSY_S)
            with contextlib.suppress(JupyterDDLError):  # the next look tries again
                await self._copies.bring(run_id)

    async def _end_cluster(self) -> None:
        """Copy what there is, have everything ended, and end."""
        if self.is_ending:
            return
        self.is_ending = True
        try:
            async with asyncio.timeout(_END_S):
                await self._remote.ask(SettleRuns())
            await self._bring_last()
            async with asyncio.timeout(_END_S):
                await self._remote.ask(ask.StopCluster())
        except Exception as error:  # noqa: BLE001 - whatever it is, the cluster is to end
            log.warning("before the end of cluster %s: %r", self._name, error)
        try:
            await self._host.end()
        except Exception as error:  # noqa: BLE001 - of a plug-in, which may do anything
            # It may be there, and cost: whoever waits for the end is told so, and may ask again.
            log.error("cluster %s is not ended: %r", self._name, error)
            self.is_ending = False
            return
        self._stop("a client asked for it")

    async def _bring_last(self) -> None:
        """Copy runs before their cluster ends; where that loses them, as long as something comes.

        Raises
        ------
        ControllerError
            It takes too long.
        """
        copying = self._tasks.start(self._bring_all(), name="last copies")
        try:
            n_before = -1
            while not copying.done():
                n_parts = self._remote.n_parts
                if n_parts == n_before or (self._host.keeps_runs and n_before >= 0):
                    raise ControllerError(f"copying its runs is given up after {_END_S:.0f} s")
                n_before = n_parts
                await asyncio.wait({copying}, timeout=_END_S)
            copying.result()
        finally:
            copying.cancel()

    async def _bring_all(self) -> None:
        """As many as can be: what is not here is lost, unless it is kept there."""
        is_kept = self._host.keeps_runs
        bring = self._copies.bring if is_kept else self._copies.bring_last
        for each in (await self._copies.look()).runs:
            if is_kept and not each.is_changed:
                continue
            try:
                await bring(each.mark.run_id)
            except JupyterDDLError as error:
                if self._remote.trouble:
                    raise
                log.error("run %s is not copied: %s", each.mark.run_id, error.message)

    # -- snapshots ---------------------------------------------------------------------------------

    async def connected(self, link: Link) -> None:
        """Have the snapshots that somebody wants sent on a new connection."""
        link.on_every = self.take
        for run_id in tuple(self._watchers):
            self._tasks.start(self._follow_again(link, run_id), name=f"follow {run_id}")

    async def _follow_again(self, link: Link, run_id: str) -> None:
        """A controller that has just begun may not have resumed the run yet."""
        pause_s = _FIRST_PAUSE_S
        while run_id in self._watchers and not link.closed.is_set():
            try:
                result = await link.request(ask.WatchRun(run_id))
            except RunNotFoundError:
                # It was over before its controller began, which would never tell of it.
                if (last := await self._last_of(run_id)) is not None:
                    self._push(last)
                    return
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            except ControllerError:
                return  # the next connection tries again
            if isinstance(result, SnapshotResult):
                self.take(result.snapshot)
            return

    async def _last_of(self, run_id: str) -> EncodedSnapshot | None:
        """The last snapshot of a run that is over; None for any other one."""
        try:
            await self._copies.bring(run_id)
            return await asyncio.to_thread(_last_snapshot, run_id)
        except JupyterDDLError as error:
            log.info("whether run %s is over is not known: %s", run_id, error.message)
            return None

    async def _watch(self, run_id: str, session: Session) -> Result:
        if session.is_closed:
            return Accepted(run_id=run_id)
        self._watchers.setdefault(run_id, {})[session] = None
        try:
            result = await self._remote.ask(ask.WatchRun(run_id))
        except RunNotFoundError:
            self._unwatch(run_id, session)
            with contextlib.suppress(JupyterDDLError):
                await self._copies.bring(run_id)  # who asks reads how it has ended
            raise
        except BaseException:
            self._unwatch(run_id, session)
            raise
        if isinstance(result, SnapshotResult) and result.snapshot.is_final:
            await self._copies.bring(run_id)
        return result

    def _unwatch(self, run_id: str, session: Session) -> None:
        watchers = self._watchers.get(run_id, {})
        watchers.pop(session, None)
        if not watchers and self._watchers.pop(run_id, None) is not None:
            self._tasks.start(self._forget(run_id), name=f"forget {run_id}")

    async def _forget(self, run_id: str) -> None:
        if self._remote.trouble or run_id in self._watchers:
            return  # the next connection is told nothing of it; or somebody looks at it again
        with contextlib.suppress(JupyterDDLError):
            # Not asked again: by then it may be watched anew.
            link = await self._remote.connected(0)
            await link.request(ask.UnwatchRun(run_id))

    def closed(self, session: Session) -> None:
        for run_id in tuple(self._watchers):
            self._unwatch(run_id, session)

    def take(self, snapshot: EncodedSnapshot) -> None:
        """A snapshot of a run that somebody here watches; the last one waits for its files."""
        run_id = snapshot.run_id
        if not snapshot.is_final:
            self._push(snapshot)
        elif run_id not in self._final:
            self._final[run_id] = self._tasks.start(self._end_run(snapshot), name=f"end {run_id}")

    async def _end_run(self, snapshot: EncodedSnapshot) -> None:
        try:
            await self._copies.bring(snapshot.run_id)
        except JupyterDDLError as error:
            # Its end is known; what is not here yet, the next look brings.
            log.warning("the end of run %s is not copied yet: %s", snapshot.run_id, error.message)
        finally:
            del self._final[snapshot.run_id]
        self._push(snapshot)

    def _push(self, snapshot: EncodedSnapshot) -> None:
        frame = encode_frame(msgspec.msgpack.encode(SnapshotPush(snapshot)))
        for session in tuple(self._watchers.get(snapshot.run_id, ())):
            session.push(snapshot.run_id, frame)


class _Handing:
    """Blobs on their way up."""

    def __init__(self, asks: Ask, digests: tuple[str, ...]) -> None:
        self._left_bytes, self._n_bytes = 1, 1  # nobody knows yet
        self.task = asyncio.create_task(bring_up(asks, digests, self._gone_up), name="blobs up")

    @property
    def progress(self) -> HandedOver:
        return HandedOver() if self.task.done() else HandedOver(self._left_bytes, self._n_bytes)

    def _gone_up(self, n_gone: int, n_bytes: int) -> None:
        self._left_bytes, self._n_bytes = max(1, n_bytes - n_gone), n_bytes


def _last_snapshot(run_id: str) -> EncodedSnapshot | None:
    path = ledger_path(run_id)
    if read_run_line(path).finished_at_s is None:
        return None
    return encoded_snapshot(fold_all(read_ledger(path)), time.time())


def _run_of(result: Result, submitted: str) -> str:
    """The run that an answer is about: a group may have been open under another id."""
    if isinstance(result, GroupResult):
        return result.status.group_id
    return submitted
