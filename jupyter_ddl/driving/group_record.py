"""The record of a persistent group: a run's directory and ledger, written behind the cells."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Literal

from jupyter_ddl.driving.committer import Committer
from jupyter_ddl.errors import SpecError
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import CellExecuted, Notice, RunFinished, RunStarted, RunSubmitted
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.paths import ledger_path, private_dir, run_dir, runs_dir

__all__ = ["GroupRecord", "end_record"]

_CLOSE_TIMEOUT_S = 5.0
_BEHIND_S = 0.2
"""How long the record of a cell may wait for those of the next ones."""


class GroupRecord:
    """Used on the controller's loop only.  No cell waits for its own record."""

    def __init__(self, spec: RunSpec, n_slots: int) -> None:
        self.directory = _new_directory(spec.run_id)
        self._ledger = LedgerWriter.open(ledger_path(spec.run_id), create=True)
        self._committer = Committer(self._ledger, lambda _: None)
        self._task = asyncio.create_task(self._committer.run(), name=f"record {spec.run_id}")
        self._behind: list[CellExecuted] = []
        self._flushing: asyncio.TimerHandle | None = None
        now = time.time()
        self._committer.put(
            [
                RunSubmitted(spec=spec, at_s=now),
                RunStarted(now, 1, n_slots, spec.n_ranks, os.getpid()),
            ]
        )

    @property
    def ledger_bytes(self) -> int:
        """How far its ledger is committed."""
        return self._ledger.committed_bytes

    def put(self, event: CellExecuted) -> None:
        """Record a cell, together with those that end soon after it."""
        self._behind.append(event)
        if self._flushing is None:
            loop = asyncio.get_running_loop()
            self._flushing = loop.call_later(_BEHIND_S, self._flush)

    def tell(self, text: str) -> None:
        """Record a sentence about the group."""
        self._committer.put([Notice(time.time(), text)])

    def _flush(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
        self._flushing = None
        behind, self._behind = self._behind, []
        self._committer.put(behind)

    async def close(self, state: Literal["complete", "failed"], reason: str) -> None:
        """Record the end, as far as the disk lets it be recorded, and close the ledger."""
        self._flush()
        self._committer.put([RunFinished(time.time(), state, reason)])
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._committer.drain()
        except TimeoutError:
            pass  # the disk is full; the next controller closes the record
        finally:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await asyncio.to_thread(self._ledger.close)


def end_record(run_id: str, reason: str) -> None:
    """Close the record of a group whose controller is gone.  Blocking.

    Raises
    ------
    LedgerError
        Another controller holds it, or it is damaged.
    """
    ledger = LedgerWriter.open(ledger_path(run_id))
    try:
        ledger.append([RunFinished(time.time(), "failed", reason)])
    finally:
        ledger.close()


def _new_directory(run_id: str) -> Path:
    directory = run_dir(run_id)
    if directory.parent != runs_dir() or not run_id.replace("-", "").isalnum():
        raise SpecError(f"run id {run_id!r} is not valid; expected letters, digits and -")
    if directory.exists():
        raise SpecError(f"run {run_id} exists already; a new group needs a new id")
    for name in ("logs", "values"):
        private_dir(directory / name)
    return directory
