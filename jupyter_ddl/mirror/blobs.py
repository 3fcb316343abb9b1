"""Blobs between this host and a controller elsewhere: up before a request that names them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from blake3 import blake3

from jupyter_ddl.background import in_thread
from jupyter_ddl.errors import (
    CapacityError,
    ControllerError,
    JupyterDDLError,
    ProtocolError,
    StorageError,
)
from jupyter_ddl.ledger.reader import read_submitted
from jupyter_ddl.mirror.parts import Ask, OnProgress, expect, in_flight
from jupyter_ddl.protocol.fit import FitTable
from jupyter_ddl.protocol.mirroring import (
    PART_BYTES,
    FilePart,
    FindBlobs,
    GiveBlob,
    MissingBlobs,
    ReadBlob,
)
from jupyter_ddl.protocol.program import blobs_of
from jupyter_ddl.protocol.reading import from_msgpack
from jupyter_ddl.protocol.requests import (
    Body,
    ExecuteCell,
    FeedFit,
    OpenGroup,
    ResumeRun,
    SubmitRun,
    SyncEnvironment,
)
from jupyter_ddl.store.blobs import BlobMissingError, find_blob, read_blob
from jupyter_ddl.store.exhaustion import used_up
from jupyter_ddl.store.paths import blob_dirs, ledger_path
from jupyter_ddl.store.tree import Draft, Tree, read_at

__all__ = ["bring_up", "digests_of", "fetch_blob"]

_N_ASKED = 10_000
"""Digests of one request."""
_N_TRIES = 3
"""At a blob, where the link breaks: it waits for the next connection by itself."""


def digests_of(body: Body) -> tuple[str, ...]:
    """Blobs that a request names, and those that they name; blocking, it reads small ones.

    Of a run that is resumed those of them that are here: what its controller has, it need not get.

    Raises
    ------
    StorageError
        A table of fits, which names others, is not here.
    """
    return tuple(dict.fromkeys(_named(body)))


def _named(body: Body) -> Iterable[str]:
    match body:
        case SubmitRun(spec=spec) | OpenGroup(spec=spec):
            return blobs_of(spec.program)
        case ExecuteCell(cell=cell):
            return blobs_of(cell)
        case FeedFit(table=table):
            return [table, *blobs_of(_table(table))]
        case SyncEnvironment(patch=patch):
            return [each.digest for each in patch.wheels]
        case ResumeRun(run_id=run_id):
            return _kept_of(run_id)
    return ()


def _table(digest: str) -> FitTable:
    try:
        return from_msgpack(read_blob(digest, blob_dirs()), FitTable)
    except BlobMissingError:
        raise _lost(digest) from None
    except msgspec.DecodeError as error:
        raise ProtocolError(f"blob {digest} is no table of fits: {error}") from None


def _kept_of(run_id: str) -> list[str]:
    try:
        program = read_submitted(ledger_path(run_id)).spec.program
    except JupyterDDLError:
        return []  # its controller has its record, or says that there is none
    directories = blob_dirs()
    return [each for each in blobs_of(program) if find_blob(each, directories) is not None]


async def bring_up(ask: Ask, digests: Iterable[str], on_progress: OnProgress | None = None) -> None:
    """Give the controller those blobs that it lacks.

    Raises
    ------
    StorageError
        One is neither there nor here.
    ControllerError
        The link is over, and does not come back; what was given stays given.
    """
    wanted = tuple(digests)
    missing: list[str] = []
    for at in range(0, len(wanted), _N_ASKED):
        missing += await _missing(ask, wanted[at : at + _N_ASKED])
    if not missing:
        return
    paths = await in_thread(_paths_of, missing)
    total, before = sum(path.stat().st_size for path in paths.values()), 0

    def tell(n_bytes: int) -> None:
        if on_progress is not None:
            on_progress(before + n_bytes, total)

    for digest, path in paths.items():
        await _give(ask, digest, path, tell)
        before += path.stat().st_size


async def _missing(ask: Ask, digests: tuple[str, ...]) -> tuple[str, ...]:
    return expect(MissingBlobs, await ask(FindBlobs(digests))).digests


async def _give(ask: Ask, digest: str, path: Path, tell: Callable[[int], object]) -> None:
    """Give one blob; where the link breaks meanwhile, again."""
    for n_left in reversed(range(_N_TRIES)):
        with Tree(path.parent).open(path.name) as fd:
            size = os.fstat(fd).st_size
            answers = in_flight(ask, _parts_of(digest, fd, size))
            try:
                async with contextlib.aclosing(answers):
                    done = 0
                    async for _ in answers:
                        done = min(done + PART_BYTES, size)
                        tell(done)
                return
            except (ControllerError, ProtocolError):
                if not n_left:
                    raise
        if not await _missing(ask, (digest,)):
            return  # its last part was heard


def _paths_of(digests: Iterable[str]) -> dict[str, Path]:
    directories = blob_dirs()
    found = {}
    for digest in digests:
        path = find_blob(digest, directories)
        if path is None:
            raise _lost(digest)
        found[digest] = path
    return found


def _parts_of(digest: str, fd: int, size: int) -> Iterator[GiveBlob]:
    for at in range(0, max(size, 1), PART_BYTES):
        data = read_at(fd, at, PART_BYTES)
        yield GiveBlob(digest, at, data, is_last=at + PART_BYTES >= size)


def _lost(digest: str) -> StorageError:
    return StorageError(
        f"sending a captured value failed: blob {digest} is no longer in {blob_dirs()[-1]}, and "
        f"the controller does not have it; run the cell again, which stores it",
        digest=digest,
    )


async def fetch_blob(ask: Ask, digest: str, on_progress: OnProgress | None = None) -> Path:
    """Bring a blob from the controller's store into this one; returns where it lies.

    Raises
    ------
    RunNotFoundError
        The controller does not have it either.
    ControllerError
        The link is over.
    ProtocolError
        What came is not what the name says.
    CapacityError
        This disk is full.
    """
    directories = blob_dirs()
    found = await in_thread(find_blob, digest, directories)
    if found is not None:
        return found
    first = expect(FilePart, await ask(ReadBlob(digest)))  # nothing begins here if it has none
    disk = directories[-1]
    try:
        draft = await in_thread(Tree(disk).begin, digest)
        try:
            await _read_into(draft, ask, digest, first, on_progress)
            await in_thread(draft.keep, replaces=True, is_synced=True)
        finally:
            draft.drop()
    except JupyterDDLError:
        raise
    except OSError as error:
        raise CapacityError(
            f"bringing blob {digest} of {first.size_bytes:,} bytes failed: "
            f"{error.strerror}{used_up(error, disk)}; make room in {disk}",
            digest=digest,
        ) from error
    return disk / digest


async def _read_into(
    draft: Draft, ask: Ask, digest: str, first: FilePart, on_progress: OnProgress | None
) -> None:
    hasher: Any = blake3(first.data)
    await in_thread(draft.add, first.data)
    size = first.size_bytes
    offsets = range(len(first.data), size, PART_BYTES) if first.data else ()
    rest = in_flight(ask, (ReadBlob(digest, at) for at in offsets))
    async with contextlib.aclosing(rest):
        async for result in rest:
            part = expect(FilePart, result)
            hasher.update(part.data)
            await in_thread(draft.add, part.data)
            if on_progress is not None:
                on_progress(draft.size, size)
    if hasher.hexdigest() != digest:
        raise ProtocolError(
            f"what came as blob {digest} has the digest {hasher.hexdigest()}; try again",
            digest=digest,
        )
