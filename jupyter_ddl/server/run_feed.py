"""Snapshots of one run for all who watch it: from its controller, else from its ledger."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import encoded_snapshot
from jupyter_ddl.protocol.replies import SnapshotResult
from jupyter_ddl.protocol.requests import WatchRun
from jupyter_ddl.protocol.snapshot import EncodedSnapshot
from jupyter_ddl.server.folds import Folds
from jupyter_ddl.server.links import Links

__all__ = ["RunFeed"]

log = logging.getLogger(__name__)

_LOOK_INTERVAL_S = 1.0

OnSnapshot = Callable[[EncodedSnapshot], None]


class RunFeed:
    """Runs on the server's loop while somebody watches the run.

    Parameters
    ----------
    is_live : callable
        Whether some controller drives a run now, as the last look at the clusters told.
    """

    def __init__(
        self,
        run_id: str,
        links: Links,
        folds: Folds,
        *,
        is_live: Callable[[str], bool],
        on_snapshot: OnSnapshot,
    ) -> None:
        self.run_id = run_id
        self._links = links
        self._folds = folds
        self._is_live = is_live
        self._on_snapshot = on_snapshot
        self._over = asyncio.Event()
        self._look_again = asyncio.Event()
        self._ledger_seq = -1
        """Of the newest snapshot, where it is the ledger's."""
        self.newest: EncodedSnapshot | None = None

    async def first(self) -> None:
        """Show the run as its ledger tells now.  Raises as :meth:`Folds.look` does."""
        found = await asyncio.to_thread(self._folds.poll, self.run_id, self._drawn)
        if found is not None:
            self._take(found)
            self._ledger_seq = found.seq

    def clusters_changed(self) -> None:
        """Perhaps a controller drives the run from now on, or none does any more."""
        self._look_again.set()

    async def run(self) -> None:
        """Follow the run until cancelled: a controller may end and another one take its place."""
        while True:
            self._look_again.clear()
            try:
                if self._is_live(self.run_id):
                    await self._follow()
                await self.first()
            except JupyterDDLError as error:
                log.info("run %s is not followed now: %s", self.run_id, error)
            # A run that has ended changes only when a controller goes on with it.
            ended = self.newest is not None and self.newest.is_final
            rests = ended and not self._is_live(self.run_id)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if rests else _LOOK_INTERVAL_S):
                    await self._look_again.wait()

    async def _follow(self) -> None:
        """Pass pushed snapshots on until the run or its controller has ended."""
        cluster = await asyncio.to_thread(self._folds.poll, self.run_id, _cluster)
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
        self._ledger_seq = -1
        self._take(snapshot)
        if snapshot.is_final:
            self._over.set()

    def _take(self, snapshot: EncodedSnapshot) -> None:
        newest = self.newest
        if newest is not None and (snapshot.seq < newest.seq or snapshot == newest):
            return
        self.newest = snapshot
        self._on_snapshot(snapshot)

    def _drawn(self, state: RunState) -> EncodedSnapshot | None:
        """Called in a thread, with the run as its ledger tells; None: nothing new."""
        if state.seq == self._ledger_seq:
            return None
        return encoded_snapshot(state, time.time())


def _cluster(state: RunState) -> str:
    return "" if state.spec is None else state.spec.cluster
