"""The list of runs on disk, read again only where something has changed.

A ledger that has ended is read once.  Ten thousand of them cost a second when the server first
looks, in a thread, and one look at a directory's time afterwards.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from jupyter_ddl.errors import JupyterDDLError, LedgerError, RunNotFoundError
from jupyter_ddl.formats import format_counted
from jupyter_ddl.ledger.reader import (
    MAX_FOLDED,
    LedgerReader,
    read_damaged_line,
    read_run_line,
    with_progress,
)
from jupyter_ddl.ledger.reducer import fold
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.writer import lock_path
from jupyter_ddl.protocol.snapshot import RunLine
from jupyter_ddl.store.exhaustion import used_up
from jupyter_ddl.store.locks import read_note
from jupyter_ddl.store.paths import ledger_path, runs_dir
from jupyter_ddl.store.processes import is_alive

__all__ = [
    "N_RUNS",
    "RECOVERS_S",
    "Driven",
    "Folds",
    "RunListing",
    "check_run",
    "trouble_of",
    "was_left",
]


# Folded runs, kept between requests so that only what is new in a ledger is read.

T = TypeVar("T")

RECOVERS_S = 20.0
"""Within this time whoever waits for a run has started another controller for it."""
_N_KEPT = 16
_MAX_ID = 80


def check_run_id(run_id: str) -> None:
    """Refuse what no run id can be, before it becomes part of a path.

    Raises
    ------
    RunNotFoundError
        There can be no such run.
    """
    if len(run_id) > _MAX_ID or not run_id.isascii() or not run_id.replace("-", "").isalnum():
        raise RunNotFoundError(
            f"there is no run {run_id[:_MAX_ID]!r}; ids are letters, digits and -"
        )


def check_run(run_id: str) -> None:
    """Refuse what is not the id of a run on disk: names, and ``last``, are for people.

    Raises
    ------
    RunNotFoundError
        There is no such run.
    """
    check_run_id(run_id)
    if not ledger_path(run_id).exists():
        raise RunNotFoundError(f"there is no run {run_id}", run_id=run_id)


class _Entry:
    def __init__(self, run_id: str) -> None:
        self.guard = threading.Lock()
        self.reader = LedgerReader(ledger_path(run_id), stops_at_damage=True)
        self.state = RunState()

    def catch_up(self) -> None:
        for event in self.reader.poll():
            fold(self.state, event)

    def __del__(self) -> None:
        reader = getattr(self, "reader", None)
        if reader is not None:
            reader.close()


class Folds:
    """Called from any thread but the server's loop: a long ledger takes a second."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def poll(self, run_id: str, read: Callable[[RunState], T]) -> T:
        """What ``read`` makes of a run as its ledger tells it now; it must not keep the state.

        Raises
        ------
        RunNotFoundError
            There is no such run.
        LedgerError
            Its ledger is damaged.
        """
        entry = self._entry(run_id)
        with entry.guard:
            try:
                entry.catch_up()
            except JupyterDDLError:
                self.forget(run_id)  # half-folded: the next look starts over
                raise
            if entry.state.spec is None:
                raise RunNotFoundError(f"run {run_id} has no first record yet", run_id=run_id)
            return read(entry.state)

    def damage(self, run_id: str) -> str:
        """Why a run that was just polled could not be read to its end; empty: it could."""
        with self._guard:
            entry = self._entries.get(run_id)
        found = None if entry is None else entry.reader.damage
        return "" if found is None else found.message

    def forget(self, run_id: str) -> None:
        """Read this run from its beginning the next time."""
        with self._guard:
            self._entries.pop(run_id, None)

    def clear(self) -> None:
        """Forget all runs: nobody looks at them now."""
        with self._guard:
            self._entries.clear()

    def _entry(self, run_id: str) -> _Entry:
        check_run_id(run_id)
        with self._guard:
            entry = self._entries.get(run_id)
            if entry is not None and not entry.reader.is_current():
                del self._entries[run_id]  # removed, cut short or another one
                entry = None
            if entry is None:
                check_run(run_id)
                try:
                    entry = self._entries[run_id] = _Entry(run_id)
                except LedgerError:
                    check_run(run_id)  # if it was removed meanwhile, that is what to tell
                    raise
                while len(self._entries) > _N_KEPT:
                    self._entries.popitem(last=False)
            self._entries.move_to_end(run_id)
            return entry


N_RUNS = 200
_READ_ALL_S = 60.0


@dataclass(slots=True)
class _Known:
    line: RunLine | None
    """None: it could not be read, as it was at this time and size."""
    mark: tuple[int, int]
    """Time and size of the ledger."""


@dataclass(frozen=True, slots=True)
class Driven:
    """What controllers do, as the last look at the clusters told."""

    live: frozenset[str] = frozenset()
    """Runs that a controller drives."""
    groups: frozenset[str] = frozenset()
    """Persistent groups among them: what they do is in their records alone."""
    waiting: frozenset[str] = frozenset()
    """Those of them that wait for something outside them."""
    unreachable: frozenset[str] = frozenset()
    """Clusters whose controllers do not answer."""


def was_left(run_id: str, driven_s: float, is_unreachable: bool) -> bool:
    """Whether the controller of a run that was driven has left it on purpose, and was not lost.

    One that ends gives the run's lock up, and is no longer found before that.

    Parameters
    ----------
    driven_s : float
        When the run was seen to be driven last (Unix seconds); who took the lock since takes it up.
    is_unreachable : bool
        Whether the controller of the run's cluster is found and does not answer.
    """
    path = lock_path(ledger_path(run_id))
    holder = read_note(path)
    if holder is None:
        return not _has_text(path)
    is_taken_up = holder.since_s > driven_s
    return not (is_unreachable or is_taken_up) and is_alive(holder.process)


def _has_text(path: Path) -> bool:
    """Also of a note that can't be read now: to ask for its size takes no descriptor."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


class RunListing:
    """Called from one thread at a time, never from the server's loop."""

    def __init__(self, folds: Folds) -> None:
        self._folds = folds
        self._known: dict[str, _Known] = {}
        self._directory_mark: int | None = None
        self._driven: dict[str, tuple[float, float]] = {}
        """When runs were last seen to be driven: monotonic, and Unix seconds."""
        self._read_all_s = -_READ_ALL_S
        self._unread: dict[str, OSError] = {}

    @property
    def trouble(self) -> str:
        """Which runs could not be read at the last look, and why; empty: all could."""
        if not self._unread:
            return ""
        run_id, error = next(iter(self._unread.items()))
        n_others = len(self._unread) - 1
        others = f" and {format_counted(n_others, 'other run')}" if n_others else ""
        return trouble_of(f"run {run_id}{others} can't be read now", error)

    def poll(self, driven: Driven) -> tuple[RunLine, ...]:
        """The newest runs, newest first; an ended one that is driven goes on."""
        self._take_names()
        now = time.monotonic()
        if now - self._read_all_s >= _READ_ALL_S:
            # An ended run may have been resumed by a controller that has died since.
            self._read_all_s = now
            changing = list(self._known)
        else:
            changing = [run_id for run_id, each in self._known.items() if _may_change(each)]
            changing += [run_id for run_id in self._known if run_id in driven.live]
            changing += self._unread
        for run_id in changing:
            self._read(run_id)
        there = (each.line for each in self._known.values() if each.line is not None)
        newest = heapq.nlargest(N_RUNS, there, key=lambda line: line.created_at_s)
        return self._lines(newest, driven, now)

    def _take_names(self) -> None:
        """Runs that have come or gone since the last look."""
        mark = runs_dir().stat().st_mtime_ns
        if mark == self._directory_mark:
            return
        names = {entry.name for entry in os.scandir(runs_dir())}
        for gone in self._known.keys() - names:
            del self._known[gone]
            self._unread.pop(gone, None)
        for new in names - self._known.keys():
            self._known[new] = _Known(None, (0, 0))
            self._read(new)
        self._directory_mark = mark

    def _read(self, run_id: str) -> None:
        known = self._known[run_id]
        path = ledger_path(run_id)
        self._unread.pop(run_id, None)
        try:
            facts = path.stat()
            mark = (facts.st_mtime_ns, facts.st_size)
            if mark != known.mark:
                known.line = _line_of(path)
                known.mark = mark
        except (FileNotFoundError, NotADirectoryError):
            known.line = None  # it is being created or removed, or is no run
        except OSError as error:
            self._unread[run_id] = error  # with its old mark: it is read again at the next look

    def _lines(self, lines: list[RunLine], driven: Driven, now: float) -> tuple[RunLine, ...]:
        n_folded = 0
        seen = (now, time.time())
        self._driven |= {line.run_id: seen for line in lines if line.run_id in driven.live}
        found = []
        for line in lines:
            if line.n_finished is None and n_folded < MAX_FOLDED:
                n_folded += 1
                line = self._with_progress(line)
            is_live = line.run_id in driven.live or self._has_just_begun(line)
            changed = {
                "live": is_live,
                "waits": line.run_id in driven.waiting,
                "recovering": not is_live and self._recovers(line, driven, now),
            }
            found.append(msgspec.structs.replace(line, **changed))
        return tuple(found)

    def _has_just_begun(self, line: RunLine) -> bool:
        """Whether it is driven by a controller that was looked at before it had this run."""
        if line.finished_at_s is not None or line.run_id in self._driven:
            return False
        if abs(time.time() - line.created_at_s) > RECOVERS_S:
            return False
        holder = read_note(lock_path(ledger_path(line.run_id)))
        return holder is not None and is_alive(holder.process)

    def _recovers(self, line: RunLine, driven: Driven, now: float) -> bool:
        if line.finished_at_s is not None or line.run_id not in self._driven:
            return False
        last, last_s = self._driven[line.run_id]
        is_new = now - last < RECOVERS_S
        return is_new and not was_left(line.run_id, last_s, line.cluster in driven.unreachable)

    def _with_progress(self, line: RunLine) -> RunLine:
        try:
            return self._folds.poll(line.run_id, lambda state: with_progress(line, state))
        except JupyterDDLError:
            return line  # it was removed in this moment, or is damaged


def _line_of(path: Path) -> RunLine | None:
    """None: it is being created.  Raises OSError where it can't be read now."""
    try:
        return read_run_line(path)
    except JupyterDDLError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        return read_damaged_line(path)


def trouble_of(what: str, error: JupyterDDLError | OSError) -> str:
    """One line on what the server could not do, and what would help."""
    if isinstance(error, JupyterDDLError):
        return f"{what}: {error.message}"
    return f"{what}: {error.strerror or error}{used_up(error)}"


def _may_change(known: _Known) -> bool:
    return known.line is None or known.line.finished_at_s is None
