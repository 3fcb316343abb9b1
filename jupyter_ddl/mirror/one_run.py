"""The copy of one run of a controller elsewhere.

What its ledger tells is true of its directory: files come first, and the ledger only as far as it
reached before they were listed.  Whatever breaks off leaves that so, and what comes next goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Coroutine, Iterable
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from jupyter_ddl.background import in_thread
from jupyter_ddl.errors import (
    ControllerError,
    ProtocolError,
    RunNotFoundError,
)
from jupyter_ddl.ledger.copied import LedgerCopy, whole_bytes
from jupyter_ddl.mirror.giving import Giving
from jupyter_ddl.mirror.kinds import APPENDED, LOGS, UNASKED_BYTES, Bounds, is_own, told
from jupyter_ddl.mirror.parts import Ask, OnProgress, expect, in_flight
from jupyter_ddl.protocol.mirroring import (
    CHECKED_BYTES,
    PART_BYTES,
    FilePart,
    ListRunFiles,
    ReadRunFile,
    RunFilesResult,
    RunMark,
    StoredFile,
)
from jupyter_ddl.store.atomic import write_whole
from jupyter_ddl.store.log_space import bound_logs, log_budget
from jupyter_ddl.store.paths import COPY_NOTE, LEDGER, private_dir
from jupyter_ddl.store.tree import Draft, Tree, crc_before, write_at

__all__ = ["UNASKED_BYTES", "Bounds", "Brought", "Note", "RunCopy"]

_N_LISTS = 8
_N_READS = 4
_N_GIVES = 3
_N_FILES = 8
"""Files that come at a time."""
_BLOCK = 4096
_MAX_APPENDED = 64 << 20
"""Of a ledger, at once; a copy that lacks more is begun anew."""


class Note(msgspec.Struct, frozen=True):
    """What a copy is of, and how far it was brought when it was whole last."""

    cluster: str
    mark: RunMark
    home: str
    """Of the controller."""
    place: str = ""
    """Where the cluster is."""
    is_removed: bool = False
    """It was deleted there, and is not given back unless somebody asks for it."""

    def write(self, directory: Path) -> None:
        """Put it beside the copy."""
        write_whole(directory / COPY_NOTE, msgspec.json.encode(self))


class Brought(msgspec.Struct, frozen=True):
    """What came of bringing a run."""

    mark: RunMark
    """How far its ledger goes here; of a copy that is ahead, there."""
    n_bytes: int = 0
    """That have come now."""
    absent: tuple[StoredFile, ...] = ()
    """Files that stay away: too large, or checkpoints; and those that come next time."""
    is_whole: bool = True
    """Whether none comes next time: of much that is new a part comes at once."""
    is_ahead: bool = False
    """It has more than the controller, which does not drive the run; nothing was changed."""
    home: str = ""
    """Of the controller."""


class _Moved(Exception):
    """What was listed is no longer so: look again."""


class RunCopy:
    """Used on one loop only, by who has made it."""

    def __init__(
        self,
        ask: Ask,
        cluster: str,
        directory: Path,
        bounds: Bounds,
        home: str = "",
        place: str = "",
    ) -> None:
        self._ask = ask
        self._home = home
        self._place = place
        self._cluster = cluster
        self._run_id = directory.name
        self._directory = directory
        self._tree = Tree(directory)
        self._bounds = bounds
        self._turn = asyncio.Lock()
        self._fetching: dict[str, asyncio.Lock] = {}
        self._ledger: LedgerCopy | None = None
        self._is_tidy = self._is_active = False
        self._noted: Note | None = None
        self._n_bytes = 0

    # -- the whole run ---------------------------------------------------------------------------

    async def bring(self, bounds: Bounds | None = None) -> Brought:
        """See :meth:`RunCopies.bring`; within other bounds than usually, if some are given."""
        async with self._turn:
            self._n_bytes = 0
            usual = self._bounds
            try:
                self._bounds = bounds or usual
                for _ in range(_N_LISTS):
                    with contextlib.suppress(_Moved), told(self._run_id):
                        return await self._bring()
            finally:
                self._bounds = usual
                if not self._is_active:
                    self.close()  # also where it broke off: who makes room here may remove it
            raise ControllerError(
                f"copying run {self._run_id} is put off: its files changed {_N_LISTS} times while "
                f"they were read; it is tried again",
                run_id=self._run_id,
            )

    async def _bring(self) -> Brought:
        try:
            listed = await self._listed()
        except RunNotFoundError:
            self._is_active = False
            raise
        if self._is_ours(listed):
            return Brought(listed.mark, home=listed.home)
        self._is_active = listed.mark.is_active
        ledger = await self._opened()
        if await in_thread(_is_ahead, ledger, listed):
            return Brought(listed.mark, is_ahead=True, home=listed.home)
        absent, later = await self._bring_files(listed.files)
        await self._bring_ledger(ledger, listed)
        absent += later
        with told(self._run_id):
            await in_thread(self._tidy, listed, {file.path for file in absent})
            if not later:
                note = Note(self._cluster, listed.mark, listed.home, self._place)
                await in_thread(self._write_note, note)
        return Brought(listed.mark, self._n_bytes, tuple(absent), not later, home=listed.home)

    async def _listed(self) -> RunFilesResult:
        return expect(RunFilesResult, await self._ask(ListRunFiles(self._run_id)))

    def _is_ours(self, listed: RunFilesResult) -> bool:
        """Whether a claim is the controller's home and this one: then there is but the original."""
        return bool(self._home) and listed.home == self._home

    async def _opened(self) -> LedgerCopy:
        """The ledger of the copy, and its lock."""
        ledger = self._ledger
        if ledger is not None and not await in_thread(ledger.is_current):
            self.close()  # somebody has removed the directory
            ledger = None
        if ledger is None:
            with told(self._run_id):
                ledger = self._ledger = await in_thread(self._open)
        return ledger

    def _open(self) -> LedgerCopy:
        private_dir(self._directory)
        self._noted = None
        ledger = LedgerCopy.open(self._directory / LEDGER)
        try:
            if not self._is_tidy:  # what a mirror has left that was killed
                self._tree.drop_partials()
                self._is_tidy = True
        except BaseException:
            ledger.close()
            raise
        return ledger

    def close(self) -> None:
        """Free the lock."""
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            ledger.close()

    def _tidy(self, listed: RunFilesResult, absent: set[str]) -> None:
        """Remove what the original has no more."""
        there = {file.path for file in listed.files}
        for path, _ in tuple(self._tree.files()):
            if not is_own(path) and (path not in there or path in absent):
                self._tree.remove(path)
        if any(path.startswith(LOGS) for path in there):
            with contextlib.suppress(OSError):
                bound_logs(self._directory / "logs", log_budget())

    def _write_note(self, note: Note) -> None:
        if note != self._noted:
            note.write(self._directory)
            self._noted = note

    # -- the ledger ------------------------------------------------------------------------------

    async def _bring_ledger(self, ledger: LedgerCopy, listed: RunFilesResult) -> None:
        end = listed.mark.ledger_bytes
        if not end or await in_thread(_is_as, ledger, listed):
            return
        grows = 0 < ledger.size < end <= ledger.size + _MAX_APPENDED
        if not (grows and await self._append_to(ledger, listed)):
            await self._copy_anew(ledger, listed)

    async def _append_to(self, ledger: LedgerCopy, listed: RunFilesResult) -> bool:
        """Bring what is missing; False where the original is another one by now."""
        data = bytearray(await in_thread(ledger.tail))
        n_before, begin, end = len(data), ledger.size, listed.mark.ledger_bytes
        while (at := begin - n_before + len(data)) < end:
            before = crc32(data[-CHECKED_BYTES:])
            part = await self._part(LEDGER, at, end - at, before)
            if part.is_other:
                return False
            if not part.data:
                raise _Moved
            data += part.data
        if crc32(data[-CHECKED_BYTES:]) != listed.ledger_crc:
            raise _Moved  # it has become another one since its files were listed
        with told(self._run_id):
            await in_thread(ledger.append, bytes(data[n_before:]))
        if ledger.size != end:
            raise _Moved
        return True

    async def _copy_anew(self, ledger: LedgerCopy, listed: RunFilesResult) -> None:
        """All of it, which then takes the place of what is here."""
        end = listed.mark.ledger_bytes
        async with self._draft(LEDGER) as draft:
            while draft.size < end:
                before = await in_thread(crc_before, draft.fd, draft.size)
                part = await self._part(LEDGER, draft.size, end - draft.size, before)
                if part.is_other or not part.data:
                    raise _Moved
                await in_thread(draft.add, part.data)
            if await in_thread(crc_before, draft.fd, end) != listed.ledger_crc:
                raise _Moved
            if await in_thread(whole_bytes, draft.fd, ledger.path) != end:
                raise _Moved
            await in_thread(ledger.replace, draft)

    # -- files -----------------------------------------------------------------------------------

    async def _bring_files(
        self, files: Iterable[StoredFile]
    ) -> tuple[list[StoredFile], list[StoredFile]]:
        """Bring what is new or changed; returns what stays away, and what comes next time."""
        here = await in_thread(self._here)
        missing = [
            file
            for file in files
            if not is_own(file.path) and here.get(file.path) != (file.size_bytes, _stamp(file))
        ]
        turn = asyncio.Semaphore(_N_FILES)

        async def bring(file: StoredFile) -> None:
            async with turn:
                if file.path.startswith(APPENDED):
                    await self._bring_end(file, here.get(file.path, (0, 0))[0])
                else:
                    await self._bring_whole(file.path)

        absent = [file for file in missing if self._bounds.keep_away(file)]
        now, later = self._bounds.at_once(
            file for file in missing if not self._bounds.keep_away(file)
        )
        try:
            await _all(bring(file) for file in now)
        except RunNotFoundError:
            raise _Moved from None
        return absent, later

    def _here(self) -> dict[str, tuple[int, int]]:
        return {path: (seen.st_size, seen.st_mtime_ns) for path, seen in self._tree.files()}

    async def _bring_whole(self, path: str, on_progress: OnProgress | None = None) -> None:
        for _ in range(_N_READS):
            async with self._draft(path) as draft:
                changed_at_ns = await self._read_into(draft, path, on_progress)
                if changed_at_ns is None:
                    continue
                await in_thread(
                    draft.keep, replaces=True, is_synced=True, changed_at_ns=changed_at_ns
                )
                return
        raise ControllerError(
            f"{path} of run {self._run_id} changed {_N_READS} times while it was read; it is tried "
            f"again",
            run_id=self._run_id,
            path=path,
        )

    async def _read_into(
        self, draft: Draft, path: str, on_progress: OnProgress | None
    ) -> int | None:
        """When the file was changed that was read; None: it was while it was read."""
        first = await self._part(path, 0)
        size = first.size_bytes
        await in_thread(draft.add, first.data)
        offsets = range(draft.size, size, PART_BYTES)
        rest = in_flight(self._ask, (ReadRunFile(self._run_id, path, at) for at in offsets))
        async with contextlib.aclosing(rest):
            async for result in rest:
                part = expect(FilePart, result)
                self._n_bytes += len(part.data)
                if (part.size_bytes, part.changed_at_ns) != (size, first.changed_at_ns):
                    return None
                await in_thread(draft.add, part.data)
                if on_progress is not None:
                    on_progress(draft.size, size)
        return first.changed_at_ns if draft.size == size else None

    async def _bring_end(self, file: StoredFile, size_here: int) -> None:
        """Bring what a file that is only ever appended to has more than its copy."""
        start = size_here
        if file.size_bytes - size_here > self._bounds.unasked_bytes:
            # What is left out is a hole, which readers of logs know from those that were cut.
            start = (file.size_bytes - self._bounds.unasked_bytes) // _BLOCK * _BLOCK
        if size_here <= file.size_bytes:
            with told(self._run_id), self._tree.open(file.path, os.O_RDWR | os.O_CREAT) as fd:
                if await self._append_end(file, fd, start, is_checked=start == size_here):
                    return
        start = max(0, file.size_bytes - self._bounds.unasked_bytes) // _BLOCK * _BLOCK
        async with self._draft(file.path) as draft:  # it is another one by now
            if not await self._append_end(file, draft.fd, start, is_checked=False):
                raise _Moved
            await in_thread(draft.keep, replaces=True, is_synced=False)

    async def _append_end(self, file: StoredFile, fd: int, at: int, *, is_checked: bool) -> bool:
        """Bring it up to what was listed, at least; False where the original is another one."""
        while True:
            before = await in_thread(crc_before, fd, at) if is_checked else None
            part = await self._part(file.path, at, before=before)
            if part.is_other:
                return False
            is_checked = True
            end = at + part.n_zeros + len(part.data)
            with told(self._run_id):
                await in_thread(_put, fd, part, at)
                if end == part.size_bytes:
                    os.utime(fd, ns=(part.changed_at_ns, part.changed_at_ns))
            if end >= file.size_bytes:
                return True
            if end == at:
                raise _Moved  # it has become shorter
            at = end

    async def _part(
        self, path: str, offset: int, n_bytes: int = PART_BYTES, before: int | None = None
    ) -> FilePart:
        body = ReadRunFile(self._run_id, path, offset, min(n_bytes, PART_BYTES), before)
        part = expect(FilePart, await self._ask(body))
        self._n_bytes += len(part.data)
        return part

    @contextlib.asynccontextmanager
    async def _draft(self, path: str) -> AsyncIterator[Draft]:
        with told(self._run_id):
            draft = await in_thread(self._tree.begin, path)
            try:
                yield draft
            finally:
                draft.drop()

    # -- on demand -------------------------------------------------------------------------------

    async def fetch(self, path: str, on_progress: OnProgress | None) -> Path:
        """See :meth:`RunCopies.fetch`."""
        async with self._fetching.setdefault(path, asyncio.Lock()):
            listed = await self._listed()
            file = next((each for each in listed.files if each.path == path), None)
            if file is None or is_own(path):
                raise RunNotFoundError(
                    f"run {self._run_id} has no file {path} at its controller; `%runs show "
                    f"{self._run_id}` tells what it has",
                    run_id=self._run_id,
                    path=path,
                )
            if self._is_ours(listed):
                return self._directory / path
            with told(self._run_id):
                await in_thread(private_dir, self._directory)
                here = await in_thread(self._tree.stat, path)
            if here is None or (here.st_size, here.st_mtime_ns) != (file.size_bytes, _stamp(file)):
                await self._bring_whole(path, on_progress)
            return self._directory / path

    # -- back to a controller that has lost it ---------------------------------------------------

    async def give(self, on_progress: OnProgress | None) -> None:
        """See :meth:`RunCopies.give`."""
        async with self._turn:
            if not (self._directory / LEDGER).exists():
                raise RunNotFoundError(
                    f"run {self._run_id} is not here; `%runs` lists those that are",
                    run_id=self._run_id,
                )
            try:
                await self._give(on_progress)
            finally:
                self.close()

    async def _give(self, on_progress: OnProgress | None) -> None:
        for n_left in reversed(range(_N_GIVES)):
            try:
                ledger = await self._opened()
                await Giving(self._ask, self._tree, ledger.size, on_progress).run()
                return
            except (ControllerError, ProtocolError):  # the link broke; what is whole is kept
                if not n_left:
                    raise


def _is_ahead(ledger: LedgerCopy, listed: RunFilesResult) -> bool:
    """Whether this has all that the original has, and more, and nobody goes on there."""
    end = listed.mark.ledger_bytes
    if listed.mark.is_active or ledger.size <= end:
        return False
    return not end or ledger.crc_before(end) == listed.ledger_crc


def _is_as(ledger: LedgerCopy, listed: RunFilesResult) -> bool:
    """Whether this is what was listed."""
    end = listed.mark.ledger_bytes
    return ledger.size == end and ledger.crc_before(end) == listed.ledger_crc


def _put(fd: int, part: FilePart, at: int) -> None:
    if part.n_zeros and not part.data:
        os.ftruncate(fd, at + part.n_zeros)
    write_at(fd, part.data, at + part.n_zeros)


def _stamp(file: StoredFile) -> int:
    return file.changed_at_ns


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of it; the first error ends the rest, and is raised when that is over."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
