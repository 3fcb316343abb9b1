"""One connection per controller, shared by all browsers.

A name that a browser sends is only ever looked up among the connection files of this user; it
never becomes an address or a path.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from jupyter_ddl.client.link import ControllerLink
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.replies import Result
from jupyter_ddl.protocol.requests import Body
from jupyter_ddl.store.connection import ConnectionInfo, list_connections

__all__ = ["Links"]

_OPEN_TIMEOUT_S = 5.0
_REQUEST_TIMEOUT_S = 15.0


class Links:
    """Used on the server's loop only."""

    def __init__(self) -> None:
        self._links: dict[str, ControllerLink] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._is_closed = False

    async def running(self) -> list[ConnectionInfo]:
        """Live controllers of this user, by name."""
        return await asyncio.to_thread(_own_connections)

    async def get(self, name: str) -> ControllerLink:
        """The connection to a cluster's controller, opened where there is none.

        Raises
        ------
        ClusterError
            No cluster of this name runs, or its controller does not answer.
        """
        running = {info.name: info for info in await self.running()}
        info = running.get(name)
        if info is None:
            there = ", ".join(running) or "none"
            raise ClusterError(f"no cluster named {name!r} is running; running: {there}")
        return await self._open(info)

    async def ask(self, name: str, body: Body, timeout_s: float = _REQUEST_TIMEOUT_S) -> Result:
        """One request to the controller of a cluster; raises as :meth:`get` and it do."""
        link = await self.get(name)
        return await link.request(body, timeout_s)

    async def close(self) -> None:
        """Close all connections; clusters and runs go on."""
        self._is_closed = True
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(link.close() for link in links), return_exceptions=True)

    async def _open(self, info: ConnectionInfo) -> ControllerLink:
        async with self._opening.setdefault(info.name, asyncio.Lock()):
            link = self._links.get(info.name)
            if link is not None and (link.closed.is_set() or link.info != info):
                del self._links[info.name]
                await link.close()
                link = None
            if link is None:
                link = await ControllerLink.open(info, _OPEN_TIMEOUT_S)
                if self._is_closed:
                    await link.close()
                    raise ClusterError(f"cluster {info.name} was not asked: the server is ending")
                self._links[info.name] = link
            return link


def _own_connections() -> list[ConnectionInfo]:
    return [info for info in list_connections() if _is_own(info.socket)]


def _is_own(socket: str) -> bool:
    """Whether this user made the socket that a connection file names."""
    try:
        return Path(socket).stat().st_uid == os.getuid()
    except OSError:
        return False
