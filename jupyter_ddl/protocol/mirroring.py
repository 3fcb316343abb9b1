"""What a mirror asks of a controller elsewhere: what its runs have on disk, in parts, and blobs.

A mirror keeps a copy of the run directories of a controller whose files nobody here sees, and
brings what that controller needs from here.  Everything is asked for; nothing is pushed.  What it
does not copy unasked its own clients ask it for.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from jupyter_ddl.protocol.names import FileName, WrittenPath

__all__ = [
    "CHECKED_BYTES",
    "PART_BYTES",
    "BlobBody",
    "BringBlob",
    "BringRunFile",
    "CopyBody",
    "CopyState",
    "FilePart",
    "FindBlobs",
    "GiveBlob",
    "GiveRunFile",
    "HandOver",
    "HandedOver",
    "ListRunFiles",
    "ListRuns",
    "MirrorBody",
    "MirrorResult",
    "MissingBlobs",
    "ReadBlob",
    "ReadRunFile",
    "RemoveRun",
    "RunFilesResult",
    "RunMark",
    "RunsResult",
    "SettleRuns",
    "StoredFile",
]

PART_BYTES = 1 << 20
"""Of a file or blob in one message, in either direction."""
CHECKED_BYTES = 4096
"""In front of an offset, by which a file is known to be the one that was read before."""

Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
"""Of a blob, and its name."""


class ListRuns(msgspec.Struct, frozen=True, tag="list_runs"):
    """All runs in the controller's home."""


class ListRunFiles(msgspec.Struct, frozen=True, tag="list_run_files"):
    """The files of a run, and how far its ledger reached before they were looked at."""

    run_id: FileName


class ReadRunFile(msgspec.Struct, frozen=True, tag="read_run_file"):
    """A part of a file of a run."""

    run_id: FileName
    path: WrittenPath
    offset: int = 0
    n_bytes: int = PART_BYTES
    before: int | None = None
    """CRC-32 of the ``min(offset, CHECKED_BYTES)`` bytes before the offset, as the asker has them:
    where the file has others there, it is another one by now, and the answer has no data."""


class GiveRunFile(msgspec.Struct, frozen=True, tag="give_run_file"):
    """A part of a file of a run that the controller does not have, in order; kept at the last one.

    Refused where the run is driven, or the file is there.
    """

    run_id: FileName
    path: WrittenPath
    offset: int
    data: bytes
    is_last: bool
    n_zeros: int = 0
    """So many zeros stand in front of the data: what was cut out of a log."""


class RemoveRun(msgspec.Struct, frozen=True, tag="remove_run"):
    """Delete the directory of a run that nobody drives."""

    run_id: FileName


class SettleRuns(msgspec.Struct, frozen=True, tag="settle_runs"):
    """Drive no run any more: what is on disk by the answer stays as it is until the end."""


class FindBlobs(msgspec.Struct, frozen=True, tag="find_blobs"):
    """Which of these blobs are missing in the controller's store."""

    digests: tuple[Digest, ...]


class GiveBlob(msgspec.Struct, frozen=True, tag="give_blob"):
    """A part of a blob, in order; the last one has the whole checked against its digest."""

    digest: Digest
    offset: int
    data: bytes
    is_last: bool


class ReadBlob(msgspec.Struct, frozen=True, tag="read_blob"):
    """A part of a blob."""

    digest: Digest
    offset: int = 0
    n_bytes: int = PART_BYTES


class HandOver(msgspec.Struct, frozen=True, tag="hand_over"):
    """Of a client: bring these blobs of this host to where the controller is.

    Answered within a second or two with what is left of it, and asked again until nothing is.
    """

    digests: tuple[Digest, ...]


BlobBody: TypeAlias = FindBlobs | GiveBlob | ReadBlob
MirrorBody: TypeAlias = (
    ListRuns
    | ListRunFiles
    | ReadRunFile
    | GiveRunFile
    | RemoveRun
    | SettleRuns
    | BlobBody
    | HandOver
)


class BringRunFile(msgspec.Struct, frozen=True, tag="bring_run_file"):
    """Have a file of a run copied to this host; asked again until the copy is over.

    Answered within a second.  A copy that nobody asks for any more is given up.
    """

    run_id: FileName
    path: WrittenPath


class BringBlob(msgspec.Struct, frozen=True, tag="bring_blob"):
    """The same for a blob."""

    digest: Digest


CopyBody: TypeAlias = BringRunFile | BringBlob
"""What clients ask a mirror for; a controller of this host has nothing to bring."""


class RunMark(msgspec.Struct, frozen=True):
    """A run, as far as a mirror has to know it."""

    run_id: FileName
    ledger_bytes: int
    """Committed; it only grows.  0: what there is can't be read."""
    is_active: bool


class RunsResult(msgspec.Struct, frozen=True, tag="runs_result"):
    runs: tuple[RunMark, ...]
    home: str
    """Names the home that they are in: what is not there now, and was, has been removed from it."""


class StoredFile(msgspec.Struct, frozen=True, array_like=True):
    """A file in a run's directory."""

    path: WrittenPath
    size_bytes: int
    changed_at_ns: int
    """Of the controller's host; only compared with itself."""


class RunFilesResult(msgspec.Struct, frozen=True, tag="run_files_result"):
    """What a ledger names up to ``ledger_bytes`` is among the files."""

    mark: RunMark
    ledger_crc: int
    """CRC-32 of the ``CHECKED_BYTES`` in front of the mark, by which it is known later on."""
    files: tuple[StoredFile, ...]
    """All but the ledger, its lock, and what is being written."""
    home: str
    """As in :class:`RunsResult`."""


class FilePart(msgspec.Struct, frozen=True, tag="file_part"):
    """Bytes from the offset that was asked for; fewer at the end, none where there are none."""

    data: bytes
    size_bytes: int
    """Of the whole."""
    changed_at_ns: int = 0
    """As in a list of files: parts that differ in it are of two files."""
    n_zeros: int = 0
    """So many zeros stand in front of the data: what was cut out of a log."""
    is_other: bool = False
    """What the asker has before the offset is not what the file has there."""


class MissingBlobs(msgspec.Struct, frozen=True, tag="missing_blobs"):
    digests: tuple[Digest, ...]


class CopyState(msgspec.Struct, frozen=True, tag="copy_state"):
    """How far a copy has come."""

    n_bytes: int
    size_bytes: int
    is_over: bool
    """Nothing more comes: what was asked for is here, or there is nothing to bring."""


class HandedOver(msgspec.Struct, frozen=True, tag="handed_over"):
    """How far a :class:`HandOver` has come; 0 bytes left: all blobs are there."""

    left_bytes: int = 0
    n_bytes: int = 0
    """Of what was missing there at the beginning."""


MirrorResult: TypeAlias = (
    RunsResult | RunFilesResult | FilePart | MissingBlobs | CopyState | HandedOver
)
