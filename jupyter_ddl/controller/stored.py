"""What a mirror asks of this host's home: runs and their files in parts, and blobs.

Names come from elsewhere.  Whatever they say, nothing outside the home is read or written, and no
link is followed (``store/tree.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from blake3 import blake3

from jupyter_ddl.background import in_thread
from jupyter_ddl.errors import (
    CapacityError,
    JupyterDDLError,
    LedgerBusyError,
    LedgerError,
    ProtocolError,
    RunNotFoundError,
    SpecError,
)
from jupyter_ddl.ledger.copied import whole_bytes
from jupyter_ddl.ledger.reader import submitted_in
from jupyter_ddl.ledger.removal import remove_directory
from jupyter_ddl.ledger.writer import lock_path, take_lock
from jupyter_ddl.protocol.mirroring import (
    PART_BYTES,
    FilePart,
    FindBlobs,
    GiveBlob,
    GiveRunFile,
    ListRunFiles,
    ListRuns,
    MirrorBody,
    MissingBlobs,
    ReadBlob,
    ReadRunFile,
    RemoveRun,
    RunFilesResult,
    RunMark,
    RunsResult,
    StoredFile,
)
from jupyter_ddl.protocol.names import is_file_name
from jupyter_ddl.protocol.replies import Accepted, Result
from jupyter_ddl.store.atomic import PARTIAL
from jupyter_ddl.store.blobs import find_blob, has_blob
from jupyter_ddl.store.exhaustion import used_up
from jupyter_ddl.store.locks import release_lock
from jupyter_ddl.store.log_space import next_data
from jupyter_ddl.store.paths import (
    LEDGER,
    RUN_FOLDERS,
    blob_dirs,
    home_id,
    private_dir,
    runs_dir,
)
from jupyter_ddl.store.tree import Draft, Tree, crc_before, read_at

__all__ = ["Giver", "StoredRuns"]

_LOCK = lock_path(Path(LEDGER)).name
_OURS = (LEDGER, _LOCK)


class Giver(Protocol):
    """Who gives parts, one behind the other."""

    @property
    def is_closed(self) -> bool:
        """Whether no more of them will come."""
        ...


class StoredRuns:
    """Answers mirrors.  Used on the controller's loop only; file work is done in threads.

    Parameters
    ----------
    driven : callable
        Committed bytes of the ledgers that this controller writes, by run.
    runs : Path, optional
        The folder of run directories; by default this home's.
    blobs : tuple of Path, optional
        As of :func:`~jupyter_ddl.store.paths.blob_dirs`, which is the default.
    home : str, optional
        Names the home; by default as this one is named.
    """

    def __init__(
        self,
        driven: Callable[[], Mapping[str, int]],
        runs: Path | None = None,
        blobs: tuple[Path, ...] | None = None,
        home: str | None = None,
    ) -> None:
        self._driven = driven
        self._home = home or home_id()
        self._runs = runs or runs_dir()
        self._blobs = blobs or blob_dirs()
        self._ends = _LedgerEnds()
        self._given: dict[Giver, dict[tuple[str, ...], _Given]] = {}

    async def answer(self, body: MirrorBody, giver: Giver) -> Result:
        """The result of one request.

        Parameters
        ----------
        giver : Giver
            Who asks: parts of two that give the same file are not mixed.

        Raises
        ------
        RunNotFoundError
            There is no such run, file or blob.
        LedgerBusyError
            It is driven, and can't be given or removed.
        ProtocolError
            Parts do not come in order, or are not what their name says.
        CapacityError
            The disk is full or failing.
        """
        driven = self._driven()
        match body:
            case ListRuns():
                return RunsResult(await in_thread(self._list_runs, driven), self._home)
            case ListRunFiles(run_id=run_id):
                return await in_thread(self._list_files, run_id, driven)
            case ReadRunFile():
                return await in_thread(self._read_file, body, driven)
            case RemoveRun(run_id=run_id):
                await in_thread(self._remove, run_id)
            case FindBlobs(digests=digests):
                return await in_thread(self._missing, digests)
            case ReadBlob():
                return await in_thread(self._read_blob, body)
            case GiveRunFile(run_id=run_id, path=path):
                async with self._given_by(giver, (run_id, path), body.is_last) as given:
                    await in_thread(self._take_file, body, given, driven)
            case GiveBlob(digest=digest):
                async with self._given_by(giver, (digest,), body.is_last) as given:
                    await in_thread(self._take_blob, body, given)
        return Accepted()

    def closed(self, giver: Giver) -> None:
        """Forget what a mirror has begun to give and will not end."""
        for given in self._given.pop(giver, {}).values():
            given.abandon()

    @contextlib.asynccontextmanager
    async def _given_by(
        self, giver: Giver, name: tuple[str, ...], is_last: bool
    ) -> AsyncIterator[_Given]:
        """The file that a part belongs to, when all parts before are written."""
        if giver.is_closed:  # it went while this waited: nobody would clean up
            raise ProtocolError(
                f"{' of run '.join(reversed(name))} is not taken: its giver is gone"
            )
        files = self._given.setdefault(giver, {})
        given = files.setdefault(name, _Given())
        async with given.turn:
            yield given
            if is_last:
                files.pop(name, None)

    # -- what there is ---------------------------------------------------------------------------

    def _list_runs(self, driven: Mapping[str, int]) -> tuple[RunMark, ...]:
        marks = []
        with os.scandir(self._runs) as entries:
            names = [each.name for each in entries if each.is_dir(follow_symlinks=False)]
        for name in sorted(filter(is_file_name, names)):
            with contextlib.suppress(FileNotFoundError):
                try:
                    marks.append(self._mark(name, driven))
                except LedgerError:
                    marks.append(RunMark(name, 0, is_active=False))
        return tuple(marks)

    def _mark(self, run_id: str, driven: Mapping[str, int]) -> RunMark:
        if run_id in driven:
            return RunMark(run_id, driven[run_id], is_active=True)
        return RunMark(run_id, self._ends.end_of(self._tree(run_id)), is_active=False)

    def _list_files(self, run_id: str, driven: Mapping[str, int]) -> RunFilesResult:
        tree = self._tree(run_id)
        try:
            mark, ledger_crc = RunMark(run_id, 0, is_active=False), 0
            # It is being given, or nothing in it can be read.
            with contextlib.suppress(FileNotFoundError, LedgerError), tree.open(LEDGER) as fd:
                mark = self._mark(run_id, driven)
                ledger_crc = crc_before(fd, mark.ledger_bytes)
            # Behind the mark: what the ledger names up to there is among them.
            files = tuple(
                StoredFile(path, seen.st_size, seen.st_mtime_ns)
                for path, seen in tree.files()
                if path not in _OURS
            )
        except FileNotFoundError:
            raise _no_run(run_id) from None
        return RunFilesResult(mark, ledger_crc, files, self._home)

    def _tree(self, run_id: str) -> Tree:
        return Tree(self._runs / run_id)

    def _read_file(self, body: ReadRunFile, driven: Mapping[str, int]) -> FilePart:
        tree = self._tree(body.run_id)
        try:
            limit = None
            if body.path == LEDGER:
                limit = self._mark(body.run_id, driven).ledger_bytes
            elif _is_ours(body.path):
                raise FileNotFoundError
            with tree.open(body.path) as fd, _told(f"reading {body.path} of run {body.run_id}"):
                is_log = body.path.startswith("logs/")
                return _part(fd, body.offset, body.n_bytes, body.before, limit, is_log)
        except (FileNotFoundError, NotADirectoryError):
            raise RunNotFoundError(
                f"run {body.run_id} has no file {body.path} at its controller (any more); "
                f"`%runs show {body.run_id}` tells what it has",
                run_id=body.run_id,
                path=body.path,
            ) from None

    def _remove(self, run_id: str) -> None:
        with _told(f"removing run {run_id}"):
            remove_directory(self._runs / run_id)

    # -- what is given ---------------------------------------------------------------------------

    def _take_file(self, body: GiveRunFile, given: _Given, driven: Mapping[str, int]) -> None:
        what = f"giving {body.path} of run {body.run_id}"
        if body.run_id in driven:
            raise LedgerBusyError(
                f"{what} failed: its controller drives that run, so it has what it needs",
                run_id=body.run_id,
            )
        if _is_ours(body.path) and body.path != LEDGER:
            raise SpecError(f"{what} failed: that name is taken; give files of the run")
        try:
            with _told(what), given.dropped_on_error():
                self._take_part(body, given)
        except (FileExistsError, FileNotFoundError):
            raise SpecError(
                f"{what} failed: there is something of that name, or of a folder's of it; remove "
                f"the run, then give all of it",
                run_id=body.run_id,
                path=body.path,
            ) from None

    def _take_part(self, body: GiveRunFile, given: _Given) -> None:
        tree = Tree(private_dir(self._runs / body.run_id))
        if tree.stat(body.path) is not None:
            raise FileExistsError
        draft = given.part(body.offset, lambda: tree.begin(body.path))
        draft.add(body.data, body.n_zeros)
        if body.is_last:
            if body.path == LEDGER:
                self._keep_ledger(body.run_id, draft)
            else:
                draft.keep(replaces=False, is_synced=True)
            given.draft = None

    def _keep_ledger(self, run_id: str, draft: Draft) -> None:
        path = self._runs / run_id / LEDGER
        n_whole = whole_bytes(draft.fd, path)
        found = submitted_in(draft.fd, path).spec.run_id
        if n_whole != draft.size or found != run_id:
            raise ProtocolError(
                f"the ledger that was given of run {run_id} is not kept: {n_whole:,} of "
                f"{draft.size:,} bytes are whole records, of run {found}; give all of it again"
            )
        for name in RUN_FOLDERS:
            private_dir(path.parent / name)
        lock = take_lock(path)
        try:
            draft.keep(replaces=False, is_synced=True)
        finally:
            release_lock(lock)

    # -- blobs -----------------------------------------------------------------------------------

    def _missing(self, digests: tuple[str, ...]) -> MissingBlobs:
        return MissingBlobs(tuple(each for each in digests if not has_blob(each, self._blobs)))

    def _read_blob(self, body: ReadBlob) -> FilePart:
        path = find_blob(body.digest, self._blobs)
        try:
            if path is None:
                raise FileNotFoundError
            with (
                Tree(path.parent).open(path.name) as fd,
                _told(f"reading blob {body.digest}"),
            ):
                return _part(fd, body.offset, body.n_bytes)
        except FileNotFoundError:
            raise RunNotFoundError(
                f"blob {body.digest} is not in the controller's store (any more); run the cell "
                f"that it belongs to again",
                digest=body.digest,
            ) from None

    def _take_blob(self, body: GiveBlob, given: _Given) -> None:
        # On the disk: where a controller is elsewhere, no rank shares its memory.
        disk = Tree(self._blobs[-1])
        with _told(f"storing a captured value (blob {body.digest})"), given.dropped_on_error():
            draft = given.part(body.offset, lambda: disk.begin(body.digest))
            draft.add(body.data)
            given.hasher.update(body.data)
            if not body.is_last:
                return
            if given.hasher.hexdigest() != body.digest:
                raise ProtocolError(
                    f"the {draft.size:,} bytes that were given as blob {body.digest} have the "
                    f"digest {given.hasher.hexdigest()}; they were changed on their way: give "
                    f"them again"
                )
            draft.keep(replaces=True, is_synced=True)
            given.draft = None


class _Given:
    """A file that comes in parts from one mirror."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        """Parts are sent one behind the other, several at a time."""
        self.draft: Draft | None = None
        self.hasher: Any = blake3()
        self._is_abandoned = False

    def part(self, offset: int, begin: Callable[[], Draft]) -> Draft:
        """Where a part at this offset goes; the one at 0 begins anew."""
        if offset == 0:
            self._drop()
            self.hasher = blake3()
            self.draft = begin()
        at = None if self.draft is None else self.draft.size
        if self.draft is None or at != offset or self._is_abandoned:
            raise ProtocolError(
                f"a part at byte {offset:,} came behind {at or 0:,} bytes; parts come in order: "
                f"begin again at 0"
            )
        return self.draft

    @contextlib.contextmanager
    def dropped_on_error(self) -> Iterator[None]:
        """Nothing is left of a file whose part can't be taken, or that nobody will end."""
        try:
            yield
        except BaseException:
            self._drop()
            raise
        if self._is_abandoned:
            self._drop()

    def abandon(self) -> None:
        """No part comes any more; one may be written at this moment."""
        self._is_abandoned = True
        if not self.turn.locked():
            self._drop()

    def _drop(self) -> None:
        draft, self.draft = self.draft, None
        if draft is not None:
            draft.drop()


class _LedgerEnds:
    """How far ledgers that nobody here writes have whole records; what was read is not read again.

    Called from several threads.
    """

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[tuple[int, ...], int]] = {}

    def end_of(self, tree: Tree) -> int:
        """Raises FileNotFoundError, and LedgerError for what is none."""
        with tree.open(LEDGER) as fd:
            facts = os.fstat(fd)
            identity = facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns
            seen = self._seen.get(tree.root)
            if seen is not None and seen[0] == identity:
                return seen[1]
            end = whole_bytes(fd, tree.root / LEDGER)
            self._seen[tree.root] = identity, end
            return end


def _part(
    fd: int,
    offset: int,
    n_bytes: int,
    before: int | None = None,
    limit: int | None = None,
    has_holes: bool = False,
) -> FilePart:
    """Bytes of an open file, up to a limit."""
    facts = os.fstat(fd)
    size = facts.st_size if limit is None else min(limit, facts.st_size)
    empty = FilePart(b"", size, facts.st_mtime_ns)
    if offset < 0:
        raise SpecError(f"reading from byte {offset} failed; files begin at 0")
    if before is not None and (offset > size or crc_before(fd, offset) != before):
        return FilePart(b"", size, facts.st_mtime_ns, is_other=True)
    if offset >= size:
        return empty
    start, end = next_data(fd, offset, size) if has_holes else (offset, size)
    start, end = min(start, size), min(end, size)
    data = read_at(fd, start, min(max(0, n_bytes), PART_BYTES, end - start))
    return FilePart(data, size, facts.st_mtime_ns, n_zeros=start - offset)


def _is_ours(path: str) -> bool:
    """Whether a file is no mirror's business."""
    return path in _OURS or path.rpartition("/")[2].startswith(PARTIAL)


def _no_run(run_id: str) -> RunNotFoundError:
    return RunNotFoundError(
        f"the controller has no run {run_id}; `%runs` lists those there are", run_id=run_id
    )


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Errors of the disk, as people are told them."""
    try:
        yield
    except (JupyterDDLError, FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        raise CapacityError(
            f"{what} failed at its controller: {error.strerror}{used_up(error)}; make room in "
            f"its home, or give it a larger one"
        ) from error
