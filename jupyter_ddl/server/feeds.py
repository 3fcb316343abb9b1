"""What the server reads while browsers watch: the clusters, a run, and what its workers measure."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

import msgspec

from jupyter_ddl.client.session import chosen_name
from jupyter_ddl.errors import JupyterDDLError, LedgerError, RunNotFoundError
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import encoded_snapshot
from jupyter_ddl.protocol.replies import (
    ClusterStatus,
    SnapshotResult,
    StatusResult,
    TelemetryResult,
)
from jupyter_ddl.protocol.requests import GetStatus, GetTelemetry, WatchRun
from jupyter_ddl.protocol.snapshot import Driving, EncodedSnapshot
from jupyter_ddl.protocol.telemetry import EncodedTelemetry
from jupyter_ddl.protocol.view_messages import ClusterElsewhere, ClusterList, RecordTrouble
from jupyter_ddl.server.first_view import keep_first_view, snapshot_kept
from jupyter_ddl.server.links import Links
from jupyter_ddl.server.run_list import RECOVERS_S, Driven, Folds, trouble_of, was_left
from jupyter_ddl.store.connection import ConnectionInfo

__all__ = ["ClusterWatch", "RunFeed", "TelemetryFeed", "cluster_of"]


# Looks every two seconds which clusters run and how they are.

log = logging.getLogger(__name__)

_CLUSTERS_INTERVAL_S = 2.0
_STATUS_TIMEOUT_S = 3.0
_LEASE_GRAIN_S = 10.0
"""A browser counts leases down itself, so only larger jumps are news."""

OnClusters = Callable[[ClusterList], None]


class ClusterWatch:
    """Runs on the server's loop while a browser is connected.

    Parameters
    ----------
    elsewhere : callable
        Clusters that no process of this host stands for, as far as they are known.
    """

    def __init__(
        self,
        links: Links,
        on_change: OnClusters,
        elsewhere: Callable[[], tuple[ClusterElsewhere, ...]] = tuple,
    ) -> None:
        self._links = links
        self._on_change = on_change
        self._elsewhere = elsewhere
        self._poll_now = asyncio.Event()
        self._seen: object = None
        self.newest: ClusterList | None = None

    @property
    def driven(self) -> Driven:
        """What controllers drive now."""
        newest = self.newest or ClusterList(0, 0.0, ())
        return Driven(
            frozenset(run_id for each in newest.clusters for run_id in each.active_runs),
            groups=frozenset(group.group_id for each in newest.clusters for group in each.groups),
            waiting=frozenset(run_id for each in newest.clusters for run_id in each.waiting_runs),
            unreachable=frozenset(newest.unreachable),
        )

    def poll_soon(self) -> None:
        """Something has just been changed: do not wait for the next round."""
        self._poll_now.set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._poll_now.clear()
            try:
                self._take(await self._poll())
            except (JupyterDDLError, OSError) as error:
                self._tell(trouble_of("clusters can't be listed now", error))
            try:
                async with asyncio.timeout(_CLUSTERS_INTERVAL_S):
                    await self._poll_now.wait()
            except TimeoutError:
                continue

    async def _poll(self) -> ClusterList:
        infos = await self._links.running()
        found = await asyncio.gather(*(self._status(info) for info in infos))
        chosen = await asyncio.to_thread(chosen_name)
        here = {info.name for info in infos}
        return ClusterList(
            seq=0,
            at_s=time.time(),
            clusters=tuple(status for status in found if status is not None),
            unreachable=tuple(
                info.name for info, status in zip(infos, found, strict=True) if status is None
            ),
            chosen=chosen if chosen in here else "",
            elsewhere=tuple(each for each in self._elsewhere() if each.name not in here),
        )

    async def _status(self, info: ConnectionInfo) -> ClusterStatus | None:
        try:
            result = await self._links.ask(info.name, GetStatus(), _STATUS_TIMEOUT_S)
        except JupyterDDLError:
            return None  # listed as unreachable, or gone at the next look
        return result.status if isinstance(result, StatusResult) else None

    def _take(self, found: ClusterList) -> None:
        self.newest = found
        plain = tuple(_without_time(each, found.at_s) for each in found.clusters)
        key = (plain, found.unreachable, found.chosen, found.trouble, found.elsewhere)
        if key != self._seen:
            self._seen = key
            self._on_change(found)

    def _tell(self, trouble: str) -> None:
        """What was seen last stays, with a word on why there is nothing newer."""
        last = self.newest or ClusterList(0, 0.0, ())
        if last.trouble != trouble:
            log.warning("%s", trouble)
            self._take(msgspec.structs.replace(last, at_s=time.time(), trouble=trouble))


def _without_time(status: ClusterStatus, at_s: float) -> tuple[ClusterStatus, int]:
    """The same without what changes by itself every second, and when the idle lease ends."""
    idle_left_s = status.idle_left_s
    ends = 0 if idle_left_s is None else round((at_s + idle_left_s) / _LEASE_GRAIN_S) + 1
    plain = msgspec.structs.replace(status, idle_left_s=None, age_left_s=0.0)
    return plain, ends


# Snapshots of one run for all who watch it: from its controller, else from its ledger.

_RUN_INTERVAL_S = 1.0
_ALONE_S = 5.0
"""A run that nothing drives for so long is not between two looks at the clusters."""

OnSnapshot = Callable[[EncodedSnapshot], None]
OnRecord = Callable[[RecordTrouble], None]


class RunFeed:
    """Runs on the server's loop while somebody watches the run.

    Parameters
    ----------
    driven : callable
        What controllers drive now, as the last look at the clusters told.
    on_record : callable
        Gets what is wrong with the run's record, once it is, and that nothing is any more.
    """

    def __init__(
        self,
        run_id: str,
        links: Links,
        folds: Folds,
        *,
        driven: Callable[[], Driven],
        on_snapshot: OnSnapshot,
        on_record: OnRecord,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run_id = run_id
        self._links = links
        self._folds = folds
        self._driven = driven
        self._on_snapshot = on_snapshot
        self._on_record = on_record
        self._clock = clock
        self._driven_s = (clock(), time.time())
        """When the run was last, or may have been, driven: monotonic, and Unix seconds."""
        self._was_driven = False
        self._trouble: str | None = None
        """As told last: all right is told as well, whoever saw another server's trouble."""
        self._over = asyncio.Event()
        self._poll_again = asyncio.Event()
        self._drawn_of: tuple[int, Driving] | None = None
        """Sequence number and driver of the newest snapshot, where it is the ledger's."""
        self.newest: EncodedSnapshot | None = None

    async def first(self) -> None:
        """Show the run as its ledger tells now.  Raises as :meth:`Folds.poll` does."""
        kept = await asyncio.to_thread(snapshot_kept, self.run_id)
        if kept is not None:
            self._drawn_of = (kept.seq, "live")
            self._take(kept)
            self._tell("")
            return
        found = await asyncio.to_thread(self._folds.poll, self.run_id, self._drawn)
        if found is not None:
            self._take(found)
        n_there = 0 if self._drawn_of is None else self._drawn_of[0]
        is_short = self.newest is not None and n_there < self.newest.seq
        cut = "the run's record was cut short; what it told before is shown" if is_short else ""
        self._tell(self._folds.damage(self.run_id) or cut)
        if self.newest is not None and self.newest.is_final and not is_short:
            await asyncio.to_thread(keep_first_view, self._folds, self.run_id)

    def look_again(self) -> None:
        """Something has changed: what drives the run, or its record."""
        self._poll_again.set()

    async def run(self) -> None:
        """Follow the run until cancelled: a controller may end and another one take its place."""
        while True:
            self._poll_again.clear()
            has_looked = False
            try:
                if self._is_live:
                    self._was_driven = True
                    if self.run_id not in self._driven().groups:
                        await self._follow()
                    self._driven_s = (self._clock(), time.time())
                await self.first()
                has_looked = True
            except JupyterDDLError as error:
                log.info("run %s is not followed now: %s", self.run_id, error)
                if isinstance(error, LedgerError | RunNotFoundError):
                    self._tell(error.message)
            except OSError as error:
                self._tell(trouble_of("this run can't be read now", error))
            # A run that has ended changes only when a controller goes on with it.
            ended = self.newest is not None and self.newest.is_final
            rests = has_looked and ended and not self._is_live
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if rests else _RUN_INTERVAL_S):
                    await self._poll_again.wait()

    async def _follow(self) -> None:
        """Pass pushed snapshots on until the run or its controller has ended."""
        cluster = await asyncio.to_thread(self._folds.poll, self.run_id, cluster_of)
        link = await self._links.get(cluster)
        self._over.clear()
        on_closed = self._over.set
        link.watch(self.run_id, self._take_pushed, on_closed)
        try:
            result = await link.request(WatchRun(self.run_id))
            if isinstance(result, SnapshotResult):
                self._take_pushed(result.snapshot)
            await self._over.wait()
        finally:
            link.unwatch(self.run_id, self._take_pushed, on_closed)

    def _take_pushed(self, snapshot: EncodedSnapshot) -> None:
        self._drawn_of = None
        self._tell("")
        self._take(snapshot)
        if snapshot.is_final:
            self._over.set()

    def _take(self, snapshot: EncodedSnapshot) -> None:
        newest = self.newest
        if newest is not None and (snapshot.seq < newest.seq or snapshot == newest):
            return
        self.newest = snapshot
        self._on_snapshot(snapshot)

    def _tell(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            self._on_record(RecordTrouble(0, time.time(), self.run_id, trouble))

    def _drawn(self, state: RunState) -> EncodedSnapshot | None:
        """Called in a thread, with the run as its ledger tells; None: nothing new."""
        driver: Driving = "live" if state.end is not None else self._driver(cluster_of(state))
        if self._drawn_of == (state.seq, driver):
            return None
        self._drawn_of = (state.seq, driver)
        waiting = _WAITING[driver].format(cluster=cluster_of(state))
        return encoded_snapshot(state, time.time(), waiting, driver=driver)

    @property
    def _is_live(self) -> bool:
        return self.run_id in self._driven().live

    def _driver(self, cluster: str) -> Driving:
        """What makes an unfinished run go on."""
        last, last_s = self._driven_s
        alone_s = self._clock() - last
        if self._is_live:
            return "live"
        if self._was_driven and alone_s < RECOVERS_S:
            is_unreachable = cluster in self._driven().unreachable
            return "none" if was_left(self.run_id, last_s, is_unreachable) else "recovering"
        return "live" if alone_s < _ALONE_S else "none"


_WAITING: dict[Driving, str] = {
    "live": "",
    "recovering": "the controller of cluster {cluster} was lost; whoever waits for the run starts "
    "another one, and it goes on from its record",
    "none": "nothing drives this run now: cluster {cluster} is not running, or does not answer; "
    "start it, and its unfinished runs go on",
}


def cluster_of(state: RunState) -> str:
    """The cluster that a run was submitted to."""
    return "" if state.spec is None else state.spec.cluster


_TELEMETRY_INTERVAL_S = 1.0
_AWAY_S = 3.0
_TIMEOUT_S = 5.0

OnTelemetry = Callable[[EncodedTelemetry], None]


class TelemetryFeed:
    """Runs on the server's loop while somebody watches.

    Parameters
    ----------
    cluster : callable
        Name of the cluster to ask, None while none drives the run.
    run_id : str
        Empty: the whole cluster.
    """

    def __init__(
        self,
        cluster: Callable[[], str | None],
        run_id: str,
        links: Links,
        on_telemetry: OnTelemetry,
    ) -> None:
        self._cluster = cluster
        self._run_id = run_id
        self._links = links
        self._on_telemetry = on_telemetry
        self._seen: EncodedTelemetry | None = None

    async def run(self) -> None:
        """Ask once a second until cancelled; a cluster that has gone may come back."""
        while True:
            name = self._cluster()
            if name is None:
                await asyncio.sleep(_TELEMETRY_INTERVAL_S)
                continue
            try:
                await self._poll(name)
            except (JupyterDDLError, OSError) as error:
                log.debug("telemetry of cluster %s: %s", name, error)
                await asyncio.sleep(_AWAY_S)
            await asyncio.sleep(_TELEMETRY_INTERVAL_S)

    async def _poll(self, name: str) -> None:
        result = await self._links.ask(name, GetTelemetry(self._run_id), _TIMEOUT_S)
        if isinstance(result, TelemetryResult) and result.telemetry != self._seen:
            self._seen = result.telemetry
            self._on_telemetry(result.telemetry)
