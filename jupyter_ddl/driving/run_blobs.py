"""What a run is made of, on this host: whether all of it is there, and copies that stay.

Programs lie in the ledger, modules and small values on disk.  A large value lies in shared memory,
which is as quick as memory and as short-lived: once a run has lasted for some seconds, it gets a
copy on disk, within a budget.
"""

from __future__ import annotations

import asyncio
import os
import threading
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from jupyter_ddl.errors import CapacityError, OptionError
from jupyter_ddl.formats import format_bytes
from jupyter_ddl.grammar import size_bytes
from jupyter_ddl.protocol.program import blobs_of
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.store.blobs import (
    LARGE_BYTES,
    BlobMissingError,
    copy_to_disk,
    find_blob,
    put_blob,
)

__all__ = ["RunBlobs", "disk_budget", "lost_names", "lost_text"]

_BUDGET_VARIABLE = "JUPYTER_DDL_DISK_COPIES"
_DEFAULT_BUDGET_BYTES = 20 * 10**9
_COPY_AFTER_S = 5.0
"""Most runs are over by then, and cost the disk nothing."""


def disk_budget() -> int:
    """Bytes that copies of large values may take on disk: ``JUPYTER_DDL_DISK_COPIES``, 20 GB.

    Raises
    ------
    OptionError
        The variable is no size.
    """
    text = os.environ.get(_BUDGET_VARIABLE, "").strip()
    if not text:
        return _DEFAULT_BUDGET_BYTES
    try:
        return 0 if text == "0" else size_bytes(text)
    except ArgumentTypeError as error:
        raise OptionError(f"{_BUDGET_VARIABLE}: {error}") from None


def lost_text(spec: RunSpec, dirs: Iterable[Path]) -> str:
    """What of a run is no longer on this host, and what brings it back; empty: all is there."""
    lost = lost_names(spec, dirs)
    if not lost:
        return ""
    notebook = spec.provenance.notebook
    where = f" of {Path(notebook).name}" if notebook else ""
    return (
        f"this host no longer has {lost} of the run (a restart empties its shared memory): run "
        f"the cell {spec.program.filename}{where} again with --resume {spec.run_id}, and the run "
        f"goes on"
    )


def lost_names(spec: RunSpec, dirs: Iterable[Path]) -> str:
    """What of a run is no longer on this host, in the words of who wrote the cell.

    Blocks while large values are hashed, once on each host.
    """
    directories, program = tuple(dirs), spec.program
    lost = {each for each in blobs_of(program) if find_blob(each, directories) is None}
    names: list[str] = []
    if program.payload in lost:
        names += [f"`{each.name}`" for each in program.captures]
    elif lost.intersection(program.buffers):
        # Which name a buffer belongs to is not on record: only large ones have any.
        large = [each for each in program.captures if each.size_bytes >= LARGE_BYTES]
        names += [f"`{each.name}`" for each in large or program.captures]
    names += [each.path for each in (*program.modules, *program.data) if each.digest in lost]
    if program.settings is not None and program.settings.blob in lost:
        names.append("the notebook's settings")
    return ", ".join(names)


class RunBlobs:
    """Looks after the blobs of one run.

    Parameters
    ----------
    make_room : callable
        Given a number of bytes that are wanted on disk: how many may be had there, after copies
        that no run needs have been removed; blocking.
    """

    def __init__(
        self, spec: RunSpec, dirs: tuple[str, ...], make_room: Callable[[int], int]
    ) -> None:
        self._spec = spec
        self._dirs = tuple(map(Path, dirs))
        self._make_room = make_room

    async def check(self) -> str:
        """Why the run can't go on; empty: all that it is made of is there."""
        return await asyncio.to_thread(self._check)

    async def keep(self) -> str:
        """Bring copies to the disk; what the user should know of them, empty when all is well."""
        wanted = await asyncio.to_thread(self._only_in_memory)
        n_bytes = sum(wanted.values())
        if not n_bytes:
            return ""
        room = await asyncio.to_thread(self._make_room, n_bytes)
        if room < n_bytes:
            return _no_room(n_bytes, room)
        await asyncio.sleep(_COPY_AFTER_S)
        leaving = threading.Event()
        try:
            return await asyncio.to_thread(self._copy, wanted, leaving.is_set)
        finally:
            leaving.set()  # the thread outlives a task that is cancelled

    def _check(self) -> str:
        put_blob(msgspec.msgpack.encode(self._spec.program), self._dirs)  # the ledger has it
        return lost_text(self._spec, self._dirs)

    def _only_in_memory(self) -> dict[str, int]:
        *memory, disk = self._dirs
        sizes = {}
        for digest in self._spec.program.buffers:
            found = find_blob(digest, memory)
            if found is not None and not (disk / digest).exists():
                sizes[digest] = found.stat().st_size
        return sizes

    def _copy(self, wanted: Iterable[str], is_unwanted: Callable[[], bool]) -> str:
        try:
            for digest in wanted:
                copy_to_disk(digest, self._dirs, is_unwanted)
        except BlobMissingError:
            return ""  # the run meets that by itself, and tells more of it
        except CapacityError as error:
            return f"large values of this run would not survive a restart of the host: {error}"
        return ""


def _no_room(n_bytes: int, room: int) -> str:
    return (
        f"{format_bytes(n_bytes)} of captured values lie in shared memory only, and would not "
        f"survive a restart of the host: copies on disk may take {format_bytes(room)} more; "
        f"{_BUDGET_VARIABLE} (now {format_bytes(disk_budget())}) and free disk space raise that"
    )
