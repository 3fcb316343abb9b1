"""One browser: what it watches, what it asks, and the end of its patience or ours."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from jupyter_ddl.errors import JupyterDDLError, ProtocolError, QuotaError
from jupyter_ddl.protocol import view_messages as say
from jupyter_ddl.views.channel import Answer, Channel, Shown

if TYPE_CHECKING:
    from jupyter_ddl.server.hub import Hub

__all__ = ["Connection"]

log = logging.getLogger(__name__)

MAX_WATCHED = 20
_MAX_REQUESTS = 16
"""Requests of one browser that are being answered at once."""
_MAX_REFUSED = 100
"""Messages that are nonsense or too many, after which the connection ends."""
_SEND_TIMEOUT_S = 30.0
POLICY_VIOLATION = 1008
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
                text = f"{_MAX_REQUESTS} requests are being answered; wait for one of them"
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
            text = "the Jupyter server failed to answer; its log tells more"
            self.answer(say.Denied(getattr(body, "id", 0), JupyterDDLError.code, text))

    async def _watch(self, body: say.WatchRun | say.WatchCluster) -> say.Done | say.Denied:
        is_run = isinstance(body, say.WatchRun)
        name = body.run_id if isinstance(body, say.WatchRun) else body.cluster
        watched = self.runs if is_run else self.clusters
        if name not in watched and len(self.runs) + len(self.clusters) >= MAX_WATCHED:
            text = f"{MAX_WATCHED} runs and clusters are watched already; leave one of them"
            return say.Denied(body.id, QuotaError.code, text)
        watched.add(name)  # at once: the browser may change its mind while this is carried out
        try:
            await (self._hub.watch_run if is_run else self._hub.watch_cluster)(self, name)
        except JupyterDDLError as error:
            watched.discard(name)
            return say.Denied(body.id, error.code, error.message)
        return say.Done(body.id)

    def _refuse(self) -> None:
        """Say no to what is no message; a few of them are a mistake, many are an attack."""
        self._hub.n_refused += 1
        if self._channel.n_refused > _MAX_REFUSED:
            self._is_refused = True
            self._close(POLICY_VIOLATION, "too many messages that are malformed or too frequent")
            return
        text = "this is no message of this version, is too large, or one of too many a second"
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

    async def close(self) -> None:
        """End what goes on for this browser; runs and clusters are not touched."""
        tasks = [self._pump, *self._asked]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
