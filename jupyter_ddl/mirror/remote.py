"""The connection to a controller elsewhere: made again whenever it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from jupyter_ddl.backends.base import ControllerHost
from jupyter_ddl.errors import (
    ClusterError,
    ControllerError,
    JupyterDDLError,
    ProtocolError,
    SpecError,
)
from jupyter_ddl.formats import format_duration
from jupyter_ddl.mirror.window import Window
from jupyter_ddl.protocol import requests as ask
from jupyter_ddl.protocol.link import Link
from jupyter_ddl.protocol.mirroring import (
    GiveBlob,
    GiveRunFile,
    ListRuns,
    ReadBlob,
    ReadRunFile,
    RunsResult,
)
from jupyter_ddl.protocol.replies import Accepted, Result
from jupyter_ddl.store.awake import awake_s

__all__ = ["Remote"]

log = logging.getLogger(__name__)

_CONNECT_S = 15.0
_GREET_S = 5.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 3.0
_LOOK_S = 5.0
"""How often it is asked whether the cluster is there at all, while nobody answers."""
_AWAY_S = 22.0
"""A client waits for 30 s: one that is started anew elsewhere is back by then, or it is told."""
_ASK_S = 60.0
_BEAT_S, _SILENT_S = 5.0, 20.0
_WITHOUT_DEADLINE = (ask.ExecuteCell, ask.OpenGroup, ask.SyncEnvironment, ask.FetchFile)
"""What takes as long as user code, or an installation."""
_ONCE = (ask.ExecuteCell, ask.OpenGroup, ask.InterruptCell, GiveBlob, GiveRunFile)
"""What must not be asked again: nobody knows whether it was heard."""
_PARTS = (ReadRunFile, ReadBlob, GiveRunFile, GiveBlob)
"""What takes long on a slow road, there or back."""


class Remote:
    """Used on the mirror's loop only.

    Parameters
    ----------
    on_connected : callable
        Called with each new connection, before anybody else may use it.
    """

    def __init__(
        self, host: ControllerHost, name: str, on_connected: Callable[[Link], Awaitable[None]]
    ) -> None:
        self._host = host
        self._name = name
        self._on_connected = on_connected
        self._link: Link | None = None
        self._decided = asyncio.Event()
        """Connected, or gone."""
        self._since_s = awake_s()
        self._why = ""
        self._window = Window()
        self.n_parts = 0
        """Of files, that have come or gone: while it grows, a copy goes on."""
        self.gone = ""
        """Why there is no cluster any more; empty: there may be one."""

    @property
    def away_s(self) -> float:
        """Seconds since the controller was last heard; 0 while it is connected."""
        return 0.0 if self._link is not None else awake_s() - self._since_s

    @property
    def trouble(self) -> str:
        """Why nothing can be asked now; empty: nothing hinders it."""
        if self._link is not None:
            return ""
        if self.gone:
            return self.gone
        why = f" ({self._why})" if self._why else ""
        return (
            f"its controller is out of reach since {format_duration(self.away_s)}{why}: what runs "
            f"there goes on, and the connection is tried again"
        )

    async def keep(self) -> None:
        """Connect, and connect again, until cancelled or the cluster is gone."""
        pause_s, looked_s = _FIRST_PAUSE_S, awake_s()
        while not self.gone:
            try:
                link = await self._connect()
            except JupyterDDLError as error:  # one of another version refuses to be greeted
                if error.message != self._why:
                    log.warning("cluster %s: %s", self._name, error.message)
                self._why = error.message
            else:
                pause_s = _FIRST_PAUSE_S
                await self._use(link)
                looked_s = 0.0  # whoever loses a connection asks first whether all is gone
            if awake_s() - looked_s > _LOOK_S:
                looked_s = awake_s()
                self.gone = await self._missing()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        self._decided.set()

    async def _connect(self) -> Link:
        try:
            async with asyncio.timeout(_CONNECT_S):
                link = Link(self._name, *await self._host.connect())
        except TimeoutError:
            raise ControllerError(f"no connection within {_CONNECT_S:.0f} s") from None
        except OSError as error:
            raise ControllerError(f"no connection: {error.strerror or error!r}") from None
        await link.greet(_GREET_S)
        return link

    async def _use(self, link: Link) -> None:
        """Let it be used until it breaks."""
        try:
            await self._on_connected(link)
            self._link = link
            self._why = ""
            self._decided.set()
            await self._listen(link)
        except JupyterDDLError as error:  # it broke at once, is silent, or refuses
            self._why = "the connection broke" if link.closed.is_set() else error.message
        finally:
            self._leave(link)
            await link.close()
        log.warning("the connection to the controller of cluster %s is lost", self._name)

    def _leave(self, link: Link) -> None:
        """Whoever asks from now on waits for the next connection."""
        if self._link is link:
            self._link = None
            self._since_s = awake_s()
            self._decided.clear()

    async def _listen(self, link: Link) -> None:
        """Until the link is closed or nobody answers: a network that is lost says nothing."""
        while not link.closed.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BEAT_S):
                    await link.closed.wait()
            if not link.closed.is_set():
                await link.request(ask.Hello(ask.PROTOCOL_VERSION), self._patience_s)

    @property
    def _patience_s(self) -> float:
        """How long a beat may take: it comes behind the parts that are on their way."""
        return _ASK_S if self._window.is_used else _SILENT_S

    async def _missing(self) -> str:
        try:
            return await self._host.missing()
        except ClusterError as error:
            self._why = error.message
            return ""

    async def connected(self, timeout_s: float) -> Link:
        """Wait for a connection.

        Raises
        ------
        ControllerError
            There is none in time, or never will be.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._decided.wait()
        if self._link is None:
            raise ControllerError(f"cluster {self._name}: {self.trouble}")
        return self._link

    async def _sent(self, link: Link, body: ask.Body, timeout_s: float | None) -> Result:
        if not isinstance(body, _PARTS):
            return await link.request(body, timeout_s)
        async with self._window.place():
            result = await link.request(body, timeout_s)
        self.n_parts += 1
        return result

    async def ask(self, body: ask.Body) -> Result:
        """One request, asked again on the next connection where that does no harm.

        Raises
        ------
        JupyterDDLError
            What the controller refuses with, or :class:`ControllerError` when it is out of reach.
        """
        timeout_s = None if isinstance(body, _WITHOUT_DEADLINE) else _ASK_S
        is_again = False
        while True:
            link = await self.connected(_AWAY_S)
            try:
                return await self._sent(link, body, timeout_s)
            except SpecError:
                # The first request may have been carried out since it was looked for.
                if not (is_again and isinstance(body, ask.SubmitRun)):
                    raise
                if not await self._has_run(body.spec.run_id):
                    raise
                return Accepted(run_id=body.spec.run_id)
            except ControllerError:
                if not link.closed.is_set():
                    raise
                self._leave(link)  # who keeps it may hear of it later than this
                if isinstance(body, _ONCE):
                    raise ControllerError(
                        f"the connection to the controller of cluster {self._name} broke while it "
                        f"was asked for this ({type(body).__name__}); whether it was done is not "
                        f"known: look, then ask again"
                    ) from None
            is_again = True
            if isinstance(body, ask.SubmitRun) and await self._has_run(body.spec.run_id):
                return Accepted(run_id=body.spec.run_id)

    async def _has_run(self, run_id: str) -> bool:
        """Whether a run was submitted by a request whose answer was lost."""
        result = await self.ask(ListRuns())
        if not isinstance(result, RunsResult):
            raise ProtocolError(f"a list of runs was answered with {type(result).__name__}")
        return any(each.run_id == run_id for each in result.runs)
