"""This user's clusters that run elsewhere: joined while a browser looks, for it to show them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from jupyter_ddl.backends.base import FoundCluster
from jupyter_ddl.client.elsewhere import Joining, begin_joining, find_joinable
from jupyter_ddl.errors import ClusterError
from jupyter_ddl.protocol.view_messages import ClusterElsewhere

__all__ = ["ElsewhereWatch"]

_INTERVAL_S = 60.0
_POLL_S = 0.2
_CONNECTING = "elsewhere, connecting …"


class ElsewhereWatch:
    """Runs on the server's loop while a browser is connected; services are asked once a minute.

    Parameters
    ----------
    on_change : callable
        Called when :attr:`newest` has changed.
    find, begin : callable
        As in :mod:`jupyter_ddl.client.elsewhere`; the first blocks, and is called in a thread.
    """

    def __init__(
        self,
        on_change: Callable[[], None],
        *,
        find: Callable[[], Iterable[FoundCluster | ClusterError]] = find_joinable,
        begin: Callable[[FoundCluster], Joining] = begin_joining,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_change = on_change
        self._find = find
        self._begin = begin
        self._clock = clock
        self._looked_s = -_INTERVAL_S
        self._known: dict[tuple[str, str], ClusterElsewhere] = {}
        """By backend and name; refusals by what they say."""

    @property
    def newest(self) -> tuple[ClusterElsewhere, ...]:
        """Those that are not connected to, and services that could not be asked."""
        return tuple(self._known.values())

    @property
    def due_in_s(self) -> float:
        """Seconds until services may be asked again; a look that was cut off does not count."""
        return max(0.0, self._looked_s + _INTERVAL_S - self._clock())

    async def run(self) -> None:
        """Look until cancelled; browsers that come and go do not make it look more often."""
        while True:
            await asyncio.sleep(self.due_in_s)
            await self.look()

    async def look(self) -> None:
        """Find clusters, and join those that can be joined."""
        seen = await asyncio.to_thread(lambda: tuple(self._find()))
        there = [each for each in seen if isinstance(each, FoundCluster)]
        self._known = {
            ("", each.message): ClusterElsewhere("", "", each.message)
            for each in seen
            if isinstance(each, ClusterError)
        }
        for each in there:
            self._known[each.backend, each.name] = ClusterElsewhere(
                each.name, each.place, _CONNECTING
            )
        self._on_change()
        await asyncio.gather(*map(self._connect, there))
        self._looked_s = self._clock()

    async def _connect(self, found: FoundCluster) -> None:
        joining = self._begin(found)
        while not joining.is_over:  # noqa: ASYNC110 - a thread that the server's end does not wait for
            await asyncio.sleep(_POLL_S)
        self._known.pop((found.backend, found.name), None)
        if joining.trouble:
            text = f"can't be connected to: {joining.trouble}"
            self._known[found.backend, found.name] = ClusterElsewhere(found.name, found.place, text)
        self._on_change()
