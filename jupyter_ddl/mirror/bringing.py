"""Copies that clients of a mirror ask for: one of each file, however many of them ask."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from jupyter_ddl.background import BackgroundTasks
from jupyter_ddl.errors import CapacityError
from jupyter_ddl.formats import format_bytes
from jupyter_ddl.mirror.blobs import fetch_blob
from jupyter_ddl.mirror.runs import Ask, OnProgress, RunCopies
from jupyter_ddl.protocol.mirroring import BringBlob, BringRunFile, CopyBody, CopyState
from jupyter_ddl.store.awake import awake_s
from jupyter_ddl.store.blobs import find_blob
from jupyter_ddl.store.paths import blob_dirs, home_dir, run_dir

__all__ = ["Bringing"]

log = logging.getLogger(__name__)

_ANSWER_S = 0.5
_UNASKED_S = 20.0
"""A copy that nobody has asked for since is given up: who waited for it has gone."""


class _Copy:
    def __init__(self) -> None:
        self.n_bytes = self.size_bytes = 0
        self.asked_s = awake_s()
        self.is_over = asyncio.Event()
        self.error: Exception | None = None


class Bringing:
    """Used on the mirror's loop only.

    Parameters
    ----------
    copies : RunCopies
        Brings files of runs.
    ask : callable
        To the controller elsewhere, for blobs.
    """

    def __init__(
        self,
        copies: RunCopies,
        ask: Ask,
        *,
        is_here: Callable[[CopyBody], bool] | None = None,
        free_bytes: Callable[[], int] = lambda: shutil.disk_usage(home_dir()).free,
    ) -> None:
        self._copies = copies
        self._ask = ask
        self._is_here = is_here or _is_here
        self._free_bytes = free_bytes
        self._going_on: dict[CopyBody, _Copy] = {}
        self._tasks = BackgroundTasks(log, "copies")

    async def close(self) -> None:
        """Give up what is being copied; nothing is left of it."""
        await self._tasks.close()

    async def answer(self, body: CopyBody) -> CopyState:
        """How far a copy has come, after half a second at most; it begins when it is asked for.

        Raises
        ------
        CapacityError
            There is no room for it here.
        JupyterDDLError
            What the copying was refused with, or broken off by.
        """
        copy = self._going_on.get(body)
        if copy is None:
            if await asyncio.to_thread(self._is_here, body):
                return CopyState(0, 0, is_over=True)
            # Somebody else may have asked for it meanwhile.
            copy = self._going_on.get(body) or self._begin(body)
        copy.asked_s = awake_s()
        try:
            async with asyncio.timeout(_ANSWER_S):
                await copy.is_over.wait()
        except TimeoutError:
            return CopyState(copy.n_bytes, copy.size_bytes, is_over=False)
        self._forget(body, copy)
        if copy.error is not None:
            raise copy.error
        return CopyState(copy.size_bytes, copy.size_bytes, is_over=True)

    def _begin(self, body: CopyBody) -> _Copy:
        copy = self._going_on[body] = _Copy()
        self._tasks.start(self._copy(body, copy), name=f"copy {body}")
        return copy

    def _forget(self, body: CopyBody, copy: _Copy) -> None:
        if self._going_on.get(body) is copy:  # else another one was begun since
            del self._going_on[body]

    async def _copy(self, body: CopyBody, copy: _Copy) -> None:
        def on_progress(n_bytes: int, size_bytes: int) -> None:
            if not copy.size_bytes and (free := self._free_bytes()) < size_bytes - n_bytes:
                raise CapacityError(
                    f"{_name(body)} has {format_bytes(size_bytes)}, and {format_bytes(free)} are "
                    f"free in {home_dir()}; make room there, or set JUPYTER_DDL_HOME"
                )
            copy.n_bytes, copy.size_bytes = n_bytes, size_bytes

        fetching = asyncio.ensure_future(self._fetch(body, on_progress))
        try:
            while not fetching.done():
                await asyncio.wait({fetching}, timeout=_ANSWER_S)
                if awake_s() - copy.asked_s > _UNASKED_S:
                    fetching.cancel()
                    self._forget(body, copy)
            if not fetching.cancelled():
                error = fetching.exception()
                copy.error = error if isinstance(error, Exception) else None
        finally:
            fetching.cancel()
            copy.is_over.set()

    def _fetch(self, body: CopyBody, on_progress: OnProgress) -> Awaitable[Path]:
        if isinstance(body, BringRunFile):
            return self._copies.fetch(body.run_id, body.path, on_progress)
        return fetch_blob(self._ask, body.digest, on_progress)


def _is_here(body: CopyBody) -> bool:
    if isinstance(body, BringBlob):
        return find_blob(body.digest, blob_dirs()) is not None
    return (run_dir(body.run_id) / body.path).exists()


def _name(body: CopyBody) -> str:
    if isinstance(body, BringBlob):
        return "a captured value"
    return f"{body.path} of run {body.run_id}"
