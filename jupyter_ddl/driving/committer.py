"""Commits events to a run's ledger before anything else may act on them.

Events that come in while a write is under way are written together with the next one, so a
thousand small trials a second cost a few dozen fsyncs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from jupyter_ddl.errors import CapacityError
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import Event

__all__ = ["Committer"]

log = logging.getLogger(__name__)

_RETRY_S = 1.0


class Committer:
    """Ledger first, then whoever folds the events and decides on them.

    Parameters
    ----------
    on_committed : callable
        Gets what is on record now; called with nothing when :attr:`error` was set.
    on_paused : callable
        Gets :attr:`paused` whenever it changes.
    """

    def __init__(
        self,
        ledger: LedgerWriter,
        on_committed: Callable[[Sequence[Event]], None],
        on_paused: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._ledger = ledger
        self._on_committed = on_committed
        self._on_paused = on_paused
        self._pending: list[Event] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.error: Exception | None = None
        """Why nothing will ever be committed again; None when all is well."""
        self.paused = ""
        """Why nothing can be committed at the moment; empty when all is well."""

    def put(self, events: Sequence[Event]) -> None:
        """Queue events; they count once they are committed."""
        if not events:
            return
        self._pending.extend(events)
        if self.error is None:
            self._idle.clear()
            self._wake.set()

    async def drain(self) -> None:
        """Wait until everything that was put is committed.

        Raises
        ------
        Exception
            What :attr:`error` holds.
        """
        await self._idle.wait()
        if self.error is not None:
            raise self.error

    async def run(self) -> None:
        """Commit until cancelled, or until something went wrong for good."""
        try:
            await self._run()
        except Exception as error:  # noqa: BLE001 - the wall of a loop task: the driver is told
            self.error = error
            self._idle.set()
            self._on_committed(())

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                batch, self._pending = self._pending, []
                await self._commit(batch)
            self._idle.set()

    async def _commit(self, batch: list[Event]) -> None:
        while True:
            try:
                # In a thread: an fsync may take as long as the disk likes.
                await asyncio.to_thread(self._ledger.append, batch)
                break
            except CapacityError as error:
                if not self.paused:
                    log.warning("run paused: %s", error.message)
                self._set_paused(error.message)
                await asyncio.sleep(_RETRY_S)
        self._set_paused("")
        self._on_committed(batch)

    def _set_paused(self, text: str) -> None:
        if text != self.paused:
            self.paused = text
            self._on_paused(text)
