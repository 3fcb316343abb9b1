"""Copies of the runs of a controller elsewhere, in this home."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from jupyter_ddl.background import in_thread
from jupyter_ddl.errors import JupyterDDLError
from jupyter_ddl.ledger.reader import read_run_line
from jupyter_ddl.mirror.one_run import UNASKED_BYTES, Bounds, Brought, Note, RunCopy
from jupyter_ddl.mirror.parts import Ask, OnProgress, expect
from jupyter_ddl.protocol.mirroring import ListRuns, RunMark, RunsResult
from jupyter_ddl.protocol.names import is_file_name
from jupyter_ddl.protocol.reading import from_json
from jupyter_ddl.protocol.snapshot import RunLine
from jupyter_ddl.store.paths import COPY_NOTE, LEDGER, runs_dir

__all__ = ["UNASKED_BYTES", "Ask", "Brought", "Look", "OnProgress", "RunCopies", "RunNews"]


_ANY_BYTES = 1 << 62


class RunNews(msgspec.Struct, frozen=True):
    """A run of the controller, beside its copy."""

    mark: RunMark
    is_changed: bool
    """Whether :meth:`RunCopies.bring` may find something: it goes on, or has since."""


class Look(msgspec.Struct, frozen=True):
    """What there is at the controller, and what is here alone."""

    runs: tuple[RunNews, ...]
    lost: tuple[RunLine, ...]
    """Runs of its cluster whose copies have more than the controller, which does not drive them:
    its home was lost.  Unfinished ones that it does not have at all, and any that it has less of;
    those that can be resumed are to be given."""
    removed: frozenset[str] = frozenset()
    """Unfinished ones that were deleted there, from another host, or are of a cluster of that name
    in another place: given to who asks for them."""


class RunCopies:
    """Used on one loop only; file work is done in threads.

    Parameters
    ----------
    ask : callable
        See :data:`Ask`.
    cluster : str
        Name of the controller's cluster.
    runs : Path, optional
        The folder of run directories; by default this home's.
    unasked_bytes : int
        Bound of a file that comes unasked; of a longer log, the end comes.
    checkpoint_bytes : int
        Bound of a checkpoint that comes unasked; 0: none does.
    home : str
        Names this home: a controller that has the same one has nothing that is not here.
    """

    def __init__(
        self,
        ask: Ask,
        cluster: str,
        *,
        runs: Path | None = None,
        unasked_bytes: int = UNASKED_BYTES,
        checkpoint_bytes: int = 0,
        home: str = "",
    ) -> None:
        self._ask = ask
        self._home = home
        self.place = ""
        """Where the cluster is, as soon as that is known."""
        self._cluster = cluster
        self._runs = runs or runs_dir()
        self._bounds = Bounds(unasked_bytes, checkpoint_bytes)
        self._copies: dict[str, RunCopy] = {}
        self._notes: dict[str, Note | None] = {}
        self._lines: dict[str, tuple[int, RunLine | None]] = {}
        """By run, and the bytes of its ledger that were read."""

    def bring_checkpoints(self, n_bytes: int) -> None:
        """From now on bring checkpoints unasked, up to so many bytes each."""
        self._bounds = msgspec.structs.replace(self._bounds, checkpoint_bytes=n_bytes)

    async def look(self) -> Look:
        """All runs of the controller.  Raises what ``ask`` raises."""
        found = expect(RunsResult, await self._ask(ListRuns()))
        here = await in_thread(self._here)
        runs = []
        for mark in found.runs:
            if not mark.ledger_bytes:
                continue
            is_new = mark.run_id not in here
            is_changed = is_new or mark.is_active or await self._noted(mark.run_id) != mark
            runs.append(RunNews(mark, is_changed))
        marks = {mark.run_id: mark for mark in found.runs}
        return Look(tuple(runs), *await in_thread(self._missing, here, marks, found.home))

    async def bring(self, run_id: str) -> Brought:
        """Make the copy of a run true.

        Raises
        ------
        RunNotFoundError
            The controller has no such run.
        ControllerError
            The link is over, or files of the run change faster than they can be read.
        CapacityError
            This disk is full.
        LedgerBusyError
            Somebody here writes that run.
        """
        brought = await self._copy(run_id).bring()
        if not brought.is_ahead and brought.is_whole:
            self._notes[run_id] = Note(self._cluster, brought.mark, brought.home, self.place)
        return brought

    async def bring_last(self, run_id: str) -> None:
        """The same for a run whose files are about to be lost: with those of any size.

        Large checkpoints come of a run that could go on from them.
        """
        await self.bring(run_id)
        line = await in_thread(read_run_line, self._runs / run_id / LEDGER)
        is_over = line.finished_at_s is not None
        checkpoints = self._bounds.checkpoint_bytes if is_over else _ANY_BYTES
        await self._copy(run_id).bring(Bounds(_ANY_BYTES, checkpoints))

    async def fetch(self, run_id: str, path: str, on_progress: OnProgress | None = None) -> Path:
        """Bring one file of a run, whatever its size; returns where it lies.

        Raises
        ------
        RunNotFoundError
            The controller has no such run or file.
        ControllerError, CapacityError
            As :meth:`bring`.
        """
        return await self._copy(run_id).fetch(path, on_progress)

    async def give(self, run_id: str, on_progress: OnProgress | None = None) -> None:
        """Give a whole run to a controller that does not have it: its files, then its ledger.

        Blobs are not part of it: ``bring_up(ask, digests_of(ResumeRun(run_id)))``.

        Raises
        ------
        LedgerBusyError
            The controller drives it already; or somebody here does.
        RunNotFoundError
            It is not here.
        """
        await self._copy(run_id).give(on_progress)

    def close(self) -> None:
        """Free the locks of all copies."""
        for copy in self._copies.values():
            copy.close()
        self._copies.clear()

    def _copy(self, run_id: str) -> RunCopy:
        copy = self._copies.get(run_id)
        if copy is None:
            directory = self._runs / run_id
            copy = RunCopy(
                self._ask, self._cluster, directory, self._bounds, self._home, self.place
            )
            self._copies[run_id] = copy
        return copy

    async def _noted(self, run_id: str) -> RunMark | None:
        """How far the copy was brought, by this mirror or by the one before."""
        if run_id not in self._notes:
            self._notes[run_id] = await in_thread(_read_note, self._runs / run_id / COPY_NOTE)
        note = self._notes[run_id]
        return note.mark if note is not None and note.cluster == self._cluster else None

    def _here(self) -> dict[str, int]:
        """Bytes of the ledgers in this home, by run."""
        sizes = {}
        with os.scandir(self._runs) as entries:
            for entry in entries:
                if is_file_name(entry.name):
                    # Somebody may be removing it, which is no reason to end the mirror.
                    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                        sizes[entry.name] = (Path(entry.path) / LEDGER).stat().st_size
        return sizes

    def _missing(
        self, here: Mapping[str, int], marks: Mapping[str, RunMark], home: str
    ) -> tuple[tuple[RunLine, ...], frozenset[str]]:
        """Runs that the controller has lost, and those that were removed from its home."""
        lost, removed = [], set()
        for run_id, size in here.items():
            mark = marks.get(run_id)
            if mark is not None and (mark.is_active or size <= mark.ledger_bytes):
                continue
            line = self._line(run_id, size)
            has_some = mark is not None and mark.ledger_bytes > 0
            if line is None or (line.finished_at_s is not None and not has_some):
                continue
            if mark is None and self._is_removed(run_id, home):
                removed.add(run_id)
            else:
                lost.append(line)
        return tuple(lost), frozenset(removed)

    def _is_removed(self, run_id: str, home: str) -> bool:
        """Whether a run that is not in the controller's home was; noted, for the next home.

        One of a cluster of that name in another place is not this one's either: it may go on there.
        """
        directory = self._runs / run_id
        note = _read_note(directory / COPY_NOTE)
        if note is None:
            return False
        if note.is_removed or note.place != self.place:
            return True
        if note.home != home:
            return False
        with contextlib.suppress(OSError):  # the next look tries again
            msgspec.structs.replace(note, is_removed=True).write(directory)
        return True

    def _line(self, run_id: str, size: int) -> RunLine | None:
        """A run of this cluster whose record can be read."""
        seen = self._lines.get(run_id)
        if seen is not None and seen[0] == size:
            return seen[1]
        try:
            line = read_run_line(self._runs / run_id / LEDGER)
        except JupyterDDLError:
            return None
        found = line if line.cluster == self._cluster else None
        self._lines[run_id] = size, found
        return found


def _read_note(path: Path) -> Note | None:
    try:
        return from_json(path.read_bytes(), Note)
    except (OSError, msgspec.DecodeError):
        return None
