"""A run goes back to a controller that has lost it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from jupyter_ddl.background import in_thread
from jupyter_ddl.errors import LedgerBusyError, LedgerError, RunNotFoundError
from jupyter_ddl.mirror.kinds import APPENDED, LOGS, is_own, told
from jupyter_ddl.mirror.parts import Ask, OnProgress, expect, in_flight
from jupyter_ddl.protocol.mirroring import (
    PART_BYTES,
    GiveRunFile,
    ListRunFiles,
    ReadRunFile,
    RemoveRun,
    RunFilesResult,
)
from jupyter_ddl.store.log_space import next_data
from jupyter_ddl.store.paths import LEDGER
from jupyter_ddl.store.tree import Tree, read_at

__all__ = ["Giving"]


class Giving:
    """Gives one run; what was given whole before is not given again.

    Parameters
    ----------
    tree : Tree
        The run's directory here.
    n_ledger : int
        Bytes of its ledger.
    """

    def __init__(self, ask: Ask, tree: Tree, n_ledger: int, on_progress: OnProgress | None) -> None:
        self._ask = ask
        self._tree = tree
        self._run_id = tree.root.name
        self._n_ledger = n_ledger
        self._on_progress = on_progress

    async def run(self) -> None:
        """Files first, then the ledger: with it the controller has the run.

        Raises
        ------
        LedgerBusyError
            It drives the run.
        ControllerError, ProtocolError
            The link broke.
        """
        with told(self._run_id):
            here = await in_thread(self._sizes)
        there = await self._made_room(here)
        if there is None:
            return
        files = sorted(here.keys() - there.keys())
        total = sum(here[path] for path in files) + self._n_ledger
        progress = _Progress(total, self._on_progress)
        for path in files:
            await self._give_file(path, here[path], progress)
        await self._give_file(LEDGER, self._n_ledger, progress)

    def _sizes(self) -> dict[str, int]:
        return {path: seen.st_size for path, seen in self._tree.files() if not is_own(path)}

    async def _made_room(self, here: Mapping[str, int]) -> dict[str, int] | None:
        """Sizes of files that were given before; None: it has the run.

        Raises
        ------
        LedgerBusyError
            It drives it.
        """
        try:
            listed = expect(RunFilesResult, await self._ask(ListRunFiles(self._run_id)))
        except RunNotFoundError:
            return {}
        if listed.mark.is_active:
            raise LedgerBusyError(
                f"run {self._run_id} is not given to its controller: it drives the run already",
                run_id=self._run_id,
            )
        if listed.mark.ledger_bytes >= self._n_ledger:
            return None
        there = {file.path: file.size_bytes for file in listed.files if not is_own(file.path)}
        is_other = any(
            path not in here or (size != here[path] and not path.startswith(APPENDED))
            for path, size in there.items()
        )
        if is_other or await self._has_ledger():
            await self._ask(RemoveRun(self._run_id))
            return {}
        return there

    async def _has_ledger(self) -> bool:
        try:
            await self._ask(ReadRunFile(self._run_id, LEDGER, 0, 0))
        except RunNotFoundError:
            return False
        except LedgerError:
            pass  # what it has is no ledger any more
        return True

    async def _give_file(self, path: str, size: int, progress: _Progress) -> None:
        with told(self._run_id), self._tree.open(path) as fd:
            parts = _parts_of(self._run_id, path, fd, size)
            answers = in_flight(self._ask, parts)
            async with contextlib.aclosing(answers):
                async for _ in answers:
                    progress.add(PART_BYTES, size)
        progress.end_file(size)


class _Progress:
    """Of several files."""

    def __init__(self, total: int, on_progress: OnProgress | None) -> None:
        self._total = total
        self._tell = on_progress or (lambda _done, _total: None)
        self._before = self._done = 0

    def add(self, n_bytes: int, size: int) -> None:
        self._done = min(self._done + n_bytes, size)
        self._tell(self._before + self._done, self._total)

    def end_file(self, size: int) -> None:
        self._before, self._done = self._before + size, 0


def _parts_of(run_id: str, path: str, fd: int, size: int) -> Iterator[GiveRunFile]:
    """A file as it is given; holes take no room on their way."""
    at, is_last = 0, False
    while not is_last:
        start, stop = next_data(fd, at, size) if path.startswith(LOGS) else (at, size)
        start = min(start, size)
        data = read_at(fd, start, min(PART_BYTES, stop - start, size - start))
        end = start + len(data)
        is_last = end >= size or end == at
        yield GiveRunFile(run_id, path, at, data, is_last, n_zeros=start - at)
        at = end
