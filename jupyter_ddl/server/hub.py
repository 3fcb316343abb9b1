"""What all browsers of this server share: links, folded runs, and who watches what.

Nothing runs while no browser is connected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from jupyter_ddl import __version__
from jupyter_ddl.commands.cluster import form_of
from jupyter_ddl.errors import JupyterDDLError, ProtocolError, QuotaError, StorageError
from jupyter_ddl.plugins import BACKENDS
from jupyter_ddl.protocol import view_messages as say
from jupyter_ddl.protocol.snapshot import RunLine
from jupyter_ddl.server.elsewhere import ElsewhereWatch
from jupyter_ddl.server.feeds import ClusterWatch, RunFeed, TelemetryFeed
from jupyter_ddl.server.links import Links
from jupyter_ddl.server.requests import Requests
from jupyter_ddl.server.run_list import Folds, RunListing, trouble_of
from jupyter_ddl.views.channel import Answer, Channel, Shown

__all__ = ["MAX_CONNECTIONS", "Connection", "Hub"]


# One browser: what it watches, what it asks, and the end of its patience or ours.

log = logging.getLogger(__name__)

MAX_WATCHED = 20
_MAX_REQUESTS = 16
"""Requests of one browser that are being answered at once."""
_MAX_REFUSED = 100
"""Messages that are nonsense or too many, after which the connection ends."""
_SEND_TIMEOUT_S = 30.0
POLICY_VIOLATION = 1008
INTERNAL_ERROR = 1011
TRY_AGAIN_LATER = 1013

Send = Callable[[bytes], Awaitable[None]]
Close = Callable[[int, str], None]


class Connection:
    """Used on the server's loop only.

    Parameters
    ----------
    send, close : callable
        Of the websocket: one message down; the end, with code and reason.
    """

    def __init__(self, hub: Hub, send: Send, close: Close) -> None:
        self._hub = hub
        self._send = send
        self._close = close
        self._channel = Channel(listens=False, lossy=False)
        self._wake = asyncio.Event()
        self._is_refused = False
        self._asked: set[asyncio.Task[None]] = set()
        self._pump = asyncio.create_task(self._run(), name="browser")
        self.runs: set[str] = set()
        """Runs that it wants to see."""
        self.clusters: set[str] = set()
        """Clusters whose telemetry it wants to see."""

    # -- down ----------------------------------------------------------------------------------

    def show(self, view: Shown) -> None:
        """The newest state of something that this browser watches."""
        self._channel.offer(view)
        self._wake.set()

    def answer(self, message: Answer) -> None:
        self._channel.answer(message)
        self._wake.set()

    # -- up ------------------------------------------------------------------------------------

    def receive(self, data: str | bytes) -> None:
        """Take in one message; never raises."""
        if self._is_refused:
            return  # what arrives until the socket is closed
        n_refused = self._channel.n_refused
        if isinstance(data, bytes):
            self._channel.refuse()  # the language is text
            body = None
        else:
            body = self._channel.receive(data)
        if self._channel.n_refused > n_refused:
            self._refuse()
        elif body is not None:
            self._begin(body)
        self._wake.set()

    def _begin(self, body: say.FromBrowser) -> None:
        match body:
            case say.Unwatch():
                self._hub.unwatch_run(self, body.run_id)
                self._channel.forget(body.run_id)
                self.answer(say.Done(body.id))
            case say.UnwatchCluster():
                self._hub.unwatch_cluster(self, body.cluster)
                self._channel.forget(body.cluster)
                self.answer(say.Done(body.id))
            case _ if len(self._asked) >= _MAX_REQUESTS:
                text = f"{_MAX_REQUESTS} requests are still being answered; wait for one of them"
                self.answer(say.Denied(getattr(body, "id", 0), QuotaError.code, text))
            case _:
                task = asyncio.create_task(self._carry_out(body), name=type(body).__name__)
                self._asked.add(task)
                task.add_done_callback(self._asked.discard)

    async def _carry_out(self, body: say.FromBrowser) -> None:
        try:
            match body:
                case say.WatchRun() | say.WatchCluster():
                    self.answer(await self._watch(body))
                case _:
                    self.answer(await self._hub.requests.answer(body, self.answer))
        except Exception:
            log.exception("request %s of a browser failed", type(body).__name__)
            text = "the Jupyter server failed to answer; its log has more"
            self.answer(say.Denied(getattr(body, "id", 0), JupyterDDLError.code, text))

    async def _watch(self, body: say.WatchRun | say.WatchCluster) -> say.Done | say.Denied:
        is_run = isinstance(body, say.WatchRun)
        name = body.run_id if isinstance(body, say.WatchRun) else body.cluster
        watched = self.runs if is_run else self.clusters
        if name not in watched and len(self.runs) + len(self.clusters) >= MAX_WATCHED:
            text = f"{MAX_WATCHED} runs and clusters are watched already; close one of them"
            return say.Denied(body.id, QuotaError.code, text)
        watched.add(name)  # at once: the browser may change its mind while this is carried out
        try:
            await (self._hub.watch_run if is_run else self._hub.watch_cluster)(self, name)
        except JupyterDDLError as error:
            watched.discard(name)
            return say.Denied(body.id, error.code, error.message)
        except OSError as error:
            watched.discard(name)
            return say.Denied(
                body.id, StorageError.code, trouble_of(f"{name} can't be watched now", error)
            )
        return say.Done(body.id)

    def _refuse(self) -> None:
        """Say no to what is not a message; a few of them are a mistake, many are an attack."""
        self._hub.n_refused += 1
        if self._channel.n_refused > _MAX_REFUSED:
            self._is_refused = True
            self._close(POLICY_VIOLATION, "too many messages that are malformed or too frequent")
            return
        text = "this is not a message of this version, is too large, or is one of too many a second"
        self.answer(say.Denied(0, ProtocolError.code, text))

    # -- the pump ------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while True:
                self._wake.clear()
                for message in self._channel.due():
                    async with asyncio.timeout(_SEND_TIMEOUT_S):
                        await self._send(message)
                try:
                    # What is due may be held back by the limits: a call is no reason to hurry.
                    async with asyncio.timeout(max(0.01, self._channel.wait_s())):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        except TimeoutError:
            self._close(TRY_AGAIN_LATER, "the browser does not read")
        except Exception:
            # A browser that is told nothing sees a quiet run; one that is closed connects again.
            log.exception("a browser can be told nothing any more; it is let go")
            self._close(INTERNAL_ERROR, "the Jupyter server failed to tell news; its log has more")

    async def close(self) -> None:
        """End what goes on for this browser; runs and clusters are not touched."""
        tasks = [self._pump, *self._asked]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


MAX_CONNECTIONS = 32
"""Browser tabs of one user."""
_RUNS_INTERVAL_S = 1.0
_AGAIN_S = 1.0


class _Watched:
    """Something that browsers watch, and the tasks that look at it."""

    def __init__(self) -> None:
        self.watchers: set[Connection] = set()
        self.tasks: list[asyncio.Task[None]] = []
        self.newest: dict[type, Shown] = {}
        self.look_again: Callable[[], None] = lambda: None
        """Called when clusters have come, gone or changed what they do, or a record has."""

    def show(self, view: Shown) -> None:
        self.newest[type(view)] = view
        for watcher in self.watchers:
            watcher.show(view)

    def join(self, connection: Connection) -> None:
        self.watchers.add(connection)
        for view in self.newest.values():
            connection.show(view)

    def start(self, look: Callable[[], Awaitable[None]], name: str) -> None:
        """Have something look until nobody watches any more, whatever it meets."""
        self.tasks.append(asyncio.create_task(_go_on(look, name), name=name))


async def _go_on(look: Callable[[], Awaitable[None]], name: str) -> None:
    """A look that has ended for good is a view that stands still, and nobody knows why."""
    while True:
        try:
            await look()
        except Exception:
            log.exception("looking at %s failed; it begins again", name)
        await asyncio.sleep(_AGAIN_S)


class Hub:
    """One per server; used on the server's loop only."""

    def __init__(self, links: Links | None = None) -> None:
        self.links = links or Links()
        self.folds = Folds()
        self.requests = Requests(self.links, self.folds, self._poll_soon)
        self.connections: set[Connection] = set()
        self.n_refused = 0
        """Messages of all browsers that were refused."""
        self._elsewhere = ElsewhereWatch(lambda: self._clusters.poll_soon())
        self._clusters = ClusterWatch(
            self.links, self._show_clusters, lambda: self._elsewhere.newest
        )
        self._listing = RunListing(self.folds)
        self._poll_runs = asyncio.Event()
        self._runs: dict[str, _Watched] = {}
        self._telemetry: dict[str, _Watched] = {}
        self._lists = _Watched()

    # -- browsers ------------------------------------------------------------------------------

    def join(self, send: Send, close: Close) -> Connection:
        """A browser has connected."""
        connection = Connection(self, send, close)
        self.connections.add(connection)
        backends = tuple(map(form_of, BACKENDS.names()))
        connection.show(say.Welcome(0, time.time(), version=__version__, backends=backends))
        self._lists.join(connection)
        if not self._lists.tasks:
            self._lists.start(self._clusters.run, "clusters")
            self._lists.start(self._list_runs, "runs")
            self._lists.start(self._elsewhere.run, "clusters elsewhere")
        return connection

    async def leave(self, connection: Connection) -> None:
        """A browser has gone."""
        self.connections.discard(connection)
        for run_id in tuple(connection.runs):
            self.unwatch_run(connection, run_id)
        for cluster in tuple(connection.clusters):
            self.unwatch_cluster(connection, cluster)
        if self._leave(self._lists, connection):
            self.folds.clear()
        await connection.close()

    async def close(self) -> None:
        """The server ends: close everything; clusters and runs go on."""
        for connection in tuple(self.connections):
            await self.leave(connection)
        await self.links.close()

    # -- what is watched -----------------------------------------------------------------------

    async def watch_run(self, connection: Connection, run_id: str) -> None:
        """Show a run to a browser from now on.

        Raises
        ------
        RunNotFoundError, LedgerError
            There is no such run, or it cannot be read.
        """
        if run_id not in self._runs:
            watched = _Watched()
            feed = RunFeed(
                run_id,
                self.links,
                self.folds,
                driven=lambda: self._clusters.driven,
                on_snapshot=watched.show,
                on_record=watched.show,
            )
            await feed.first()
            if run_id not in connection.runs:
                return  # it has changed its mind meanwhile
            if run_id not in self._runs:  # another browser may have been faster
                self._runs[run_id] = watched
                watched.look_again = feed.look_again
                watched.start(feed.run, f"run {run_id}")
                telemetry = TelemetryFeed(
                    lambda: self._cluster_of(run_id), run_id, self.links, watched.show
                )
                watched.start(telemetry.run, f"telemetry {run_id}")
                self._clusters.poll_soon()  # a run that has just begun is followed at once
        self._runs[run_id].join(connection)

    def unwatch_run(self, connection: Connection, run_id: str) -> None:
        connection.runs.discard(run_id)
        watched = self._runs.get(run_id)
        if watched is not None and self._leave(watched, connection):
            del self._runs[run_id]

    async def watch_cluster(self, connection: Connection, cluster: str) -> None:
        """Show the telemetry of a whole cluster to a browser from now on.

        Raises
        ------
        ClusterError
            No cluster of this name runs.
        """
        await self.links.get(cluster)
        if cluster not in connection.clusters:
            return
        watched = self._telemetry.get(cluster)
        if watched is None:
            watched = self._telemetry[cluster] = _Watched()
            feed = TelemetryFeed(lambda: cluster, "", self.links, watched.show)
            watched.start(feed.run, f"telemetry of {cluster}")
        watched.join(connection)

    def unwatch_cluster(self, connection: Connection, cluster: str) -> None:
        connection.clusters.discard(cluster)
        watched = self._telemetry.get(cluster)
        if watched is not None and self._leave(watched, connection):
            del self._telemetry[cluster]

    # -- inside --------------------------------------------------------------------------------

    def _leave(self, watched: _Watched, connection: Connection) -> bool:
        """Whether nobody watches any more; then nothing looks any more either."""
        watched.watchers.discard(connection)
        if watched.watchers:
            return False
        for task in watched.tasks:
            task.cancel()
        watched.tasks = []
        return True

    def _cluster_of(self, run_id: str) -> str | None:
        newest = self._clusters.newest
        clusters = () if newest is None else newest.clusters
        return next((each.name for each in clusters if run_id in each.active_runs), None)

    def _show_clusters(self, found: say.ClusterList) -> None:
        self._lists.show(found)
        self._poll_runs.set()
        for watched in self._runs.values():
            watched.look_again()

    def _poll_soon(self) -> None:
        self._clusters.poll_soon()
        self._poll_runs.set()

    async def _list_runs(self) -> None:
        """Look at the runs on disk until cancelled; tell when the list has changed."""
        seen: tuple[RunLine, ...] = ()
        told: tuple[tuple[RunLine, ...], str] | None = None
        while True:
            self._poll_runs.clear()
            try:
                runs = await asyncio.to_thread(self._listing.poll, self._clusters.driven)
                trouble = self._listing.trouble
            except OSError as error:
                runs, trouble = seen, trouble_of("runs can't be listed now", error)
            if (runs, trouble) != told:
                if trouble:
                    log.warning("%s", trouble)
                self._look_again(seen, runs)
                seen, told = runs, (runs, trouble)
                self._lists.show(say.RunList(0, time.time(), runs, trouble))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RUNS_INTERVAL_S):
                    await self._poll_runs.wait()

    def _look_again(self, before: tuple[RunLine, ...], now: tuple[RunLine, ...]) -> None:
        """Records have been removed, damaged or repaired."""
        marks = [{(line.run_id, line.is_damaged) for line in lines} for lines in (before, now)]
        for run_id, _ in marks[0] ^ marks[1]:
            if run_id in self._runs:
                self._runs[run_id].look_again()
