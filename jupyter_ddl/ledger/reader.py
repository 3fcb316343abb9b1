"""Reads ledgers, also while their writer goes on; never changes a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import msgspec

from jupyter_ddl.errors import LedgerError, ProtocolError
from jupyter_ddl.ledger.records import HEADER, MAX_RECORD_BYTES, Fault, FrameCursor, frame_at
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.run_state import RunState
from jupyter_ddl.ledger.snapshots import latest_round, latest_step
from jupyter_ddl.protocol.codec import decode_event
from jupyter_ddl.protocol.events import SCHEMA_VERSION, Event, RunFinished, RunSubmitted
from jupyter_ddl.protocol.reading import converted
from jupyter_ddl.protocol.snapshot import Counts, RunLine
from jupyter_ddl.protocol.verb import Capabilities, Nouns
from jupyter_ddl.store.exhaustion import used_up

__all__ = [
    "MAX_FOLDED",
    "LedgerReader",
    "read_damaged_line",
    "read_ledger",
    "read_run_line",
    "read_submitted",
    "submitted_in",
    "with_progress",
]

MAX_FOLDED = 10
"""Long unfinished runs of a list whose whole ledger is read to tell how far they are."""
_TAIL_BYTES = 1 << 16
_FIRST_BYTES = 1 << 16
_FOLDED_BYTES = 1 << 16
# A tag cannot occur inside text: its length byte is no UTF-8 between two letters.
_FINISHED = b"\xa4type\xacrun_finished"
_STARTED = b"\xa4type\xabrun_started"
_TAG_OFFSET = 9


class LedgerReader:
    """Follows one ledger: every call of :meth:`poll` gives what is new since the last one.

    Safe while a writer appends: a record that is not whole yet comes with a later call.
    Close it, or use it in a ``with`` statement.

    Parameters
    ----------
    stops_at_damage : bool
        Give what stands before damage, and what it is in ``damage``, instead of raising it.
    """

    def __init__(self, path: str | Path, *, stops_at_damage: bool = False) -> None:
        self.path = Path(path)
        self.damage: LedgerError | None = None
        self._stops_at_damage = stops_at_damage
        self._rests = False
        self._at_rest = (0, 0)
        self._fd = _open(self.path)
        try:
            self._cursor = FrameCursor(self._fd, self.path)
        except BaseException:
            os.close(self._fd)
            raise

    @property
    def n_records(self) -> int:
        """Records read so far."""
        return self._cursor.n_records

    def is_current(self) -> bool:
        """Whether the file is still there, and is the one that was read and no shorter."""
        try:
            facts = self.path.stat()
        except OSError:
            return False
        own = self._at_rest if self._rests else _identity(self._fd)
        return (facts.st_dev, facts.st_ino) == own and facts.st_size >= self._cursor.offset

    def poll(self) -> list[Event]:
        """New events, in order.

        Raises
        ------
        LedgerError
            A record is damaged and whole ones follow; names record and offset.
        ProtocolError
            A whole record is not an event that this version knows.
        """
        if self._rests and not self._wake():
            return []
        events: list[Event] = []
        while batch := self._poll_some():
            events += batch
        return events

    def rest(self) -> None:
        """Hold no descriptor until the next look: the run is over, or nobody knows when one comes.

        A file that is another one by then, or gone, has nothing new.
        """
        if self._fd >= 0:
            self._at_rest = _identity(self._fd)
            self.close()
            self._rests = True

    def _wake(self) -> bool:
        if not self.path.exists():
            return False
        fd = _open(self.path)
        if _identity(fd) != self._at_rest:
            os.close(fd)
            return False
        self._fd, self._rests = fd, False
        self._cursor.go_on_in(fd)
        return True

    def _poll_some(self) -> list[Event]:
        """The events of the next few megabytes."""
        if self._fd < 0:
            raise LedgerError(f"reading {self.path} failed: it is closed", path=str(self.path))
        number = self._cursor.n_records
        payloads = self._cursor.read()
        if not payloads and _is_damage(self._cursor.fault):
            # A look while the writer takes a write back (disk full) may show half of it.
            payloads = self._cursor.read()
        if not payloads:
            if _is_damage(self._cursor.fault):
                self.damage = self._refusal(self._cursor.fault)
                if not self._stops_at_damage:
                    raise self.damage
            return []
        try:
            events = [decode_event(payload) for payload in payloads]
        except ProtocolError:
            events = []
            for payload in payloads:  # again, to name the record
                number += 1
                events.append(decode_event(payload, f"record {number} of {self.path}"))
        if number == 0:
            _check_schema(events[0], self.path)
        return events

    def _refusal(self, fault: Fault) -> LedgerError:
        return LedgerError(
            f"reading {self.path} failed: record {fault.record} at byte {fault.offset:,} is "
            f"damaged ({fault.cause}), and whole records follow from byte {fault.next_whole:,}; "
            f"`%runs repair {self.path.parent.name}` keeps the {fault.record - 1} records before "
            f"it",
            path=str(self.path),
            record=fault.record,
            offset=fault.offset,
        )

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> LedgerReader:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def read_ledger(path: str | Path) -> Iterator[Event]:
    """All committed events of a ledger; stops at a torn tail.  Raises as ``poll`` does."""
    with LedgerReader(path) as reader:
        while batch := reader._poll_some():
            yield from batch


def read_submitted(path: str | Path) -> RunSubmitted:
    """The first record of a ledger, without reading the others.

    Raises
    ------
    LedgerError
        There is no ledger, or it has no whole first record.
    """
    path = Path(path)
    fd = _open(path)
    try:
        return submitted_in(fd, path)
    finally:
        os.close(fd)


def read_run_line(path: str | Path) -> RunLine:
    """What a list shows of a run: first and last record only, in about 0.1 ms.

    A short ledger (64 kB) without totals at its end is folded.  Raises as ``read_submitted``.
    """
    path = Path(path)
    fd = _open(path)
    try:
        submitted = submitted_in(fd, path)
        size = os.fstat(fd).st_size
        last, started = _last(fd, size)
    finally:
        os.close(fd)
    if (last is None or not last.totals) and size <= _FOLDED_BYTES:
        with LedgerReader(path, stops_at_damage=True) as reader:
            state = fold_all(reader.poll())
            line = with_progress(_line(submitted, state.end, state.session > 0), state)
            return msgspec.structs.replace(line, is_damaged=reader.damage is not None)
    line = _line(submitted, last, started)
    if last is None:
        return line
    return msgspec.structs.replace(
        line,
        n_finished=converted(last.totals, Counts).finished if last.totals else None,
        best=last.best_value,
        step=last.step,
        round=last.round,
        cost=None if last.spent is msgspec.UNSET else last.spent.amount,
    )


def read_damaged_line(path: str | Path) -> RunLine | None:
    """The same of a ledger whose beginning is damaged; None where none was ever begun.

    Raises
    ------
    LedgerError
        This process, or its host, can open no file now: whether it is damaged is not known.
    """
    path = Path(path)
    try:
        data = path.read_bytes()[: len(HEADER) + MAX_RECORD_BYTES]
        changed_at_s = path.stat().st_mtime
    except OSError as error:
        if used_up(error):
            raise _unreadable(path, error) from error
        return None
    if len(data) <= len(HEADER):
        return None
    payload = frame_at(data, len(HEADER))
    event = None if payload is None else decode_event(payload)
    if isinstance(event, RunSubmitted):
        return msgspec.structs.replace(_line(event, None, True), is_damaged=True)
    name = path.parent.name
    return RunLine(
        name, "", "", Capabilities(), Nouns(), "", "failed", changed_at_s, is_damaged=True
    )


def with_progress(line: RunLine, state: RunState) -> RunLine:
    """The line with what only the whole ledger of a run tells."""
    return msgspec.structs.replace(
        line,
        n_finished=state.counts.finished,
        best=state.best_value,
        step=latest_step(state),
        round=latest_round(state),
        cost=state.spent.amount,
    )


def _line(submitted: RunSubmitted, last: RunFinished | None, started: bool) -> RunLine:
    spec = submitted.spec
    return RunLine(
        run_id=spec.run_id,
        name=spec.name,
        verb=spec.verb.word,
        can=spec.verb.can,
        nouns=spec.verb.nouns,
        cluster=spec.cluster,
        state=last.state if last is not None else "running" if started else "submitted",
        created_at_s=spec.created_at_s,
        finished_at_s=None if last is None else last.at_s,
        n_trials=spec.n_trials,
        metric=None if spec.verb.objective is None else spec.verb.objective.metric,
        currency="" if spec.prices is msgspec.UNSET else spec.prices.currency,
    )


def _is_damage(fault: Fault | None) -> TypeGuard[Fault]:
    """Whether whole records follow; otherwise it is a torn tail, or one being written."""
    return fault is not None and fault.next_whole is not None


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _unreadable(path, error) from error


def _identity(fd: int) -> tuple[int, int]:
    facts = os.fstat(fd)
    return facts.st_dev, facts.st_ino


def _unreadable(path: Path, error: OSError) -> LedgerError:
    return LedgerError(
        f"reading the ledger {path} failed: {error.strerror}{used_up(error)}; "
        f"`%runs` lists the runs there are",
        path=str(path),
    )


def submitted_in(fd: int, path: Path) -> RunSubmitted:
    """The first record of an open ledger; raises as ``read_submitted``."""
    cursor = FrameCursor(fd, path)  # judges the header
    begin = cursor.offset or len(HEADER)
    payload = frame_at(os.pread(fd, _FIRST_BYTES, begin), 0)
    if payload is None:  # a long cell, or none at all
        payload = frame_at(os.pread(fd, MAX_RECORD_BYTES + 8, begin), 0)
    if payload is None:
        raise LedgerError(
            f"reading {path} failed: it has no whole first record; the run was never submitted, "
            f"and its directory may be removed",
            path=str(path),
            record=1,
            offset=begin,
        )
    event = decode_event(payload, f"record 1 of {path}")
    _check_schema(event, path)
    if not isinstance(event, RunSubmitted):
        raise LedgerError(
            f"reading {path} failed: its first record is {type(event).__name__}, expected "
            f"RunSubmitted",
            path=str(path),
            record=1,
        )
    return event


def _last(fd: int, size: int) -> tuple[RunFinished | None, bool]:
    """The record that ended the run, if one did, and whether the run had begun by the tail."""
    data = os.pread(fd, _TAIL_BYTES, max(size - _TAIL_BYTES, 0))
    finished = data.rfind(_FINISHED)
    if finished > data.rfind(_STARTED):
        payload = frame_at(data, finished - _TAG_OFFSET)
        event = None if payload is None else decode_event(payload)
        return (event if isinstance(event, RunFinished) else None), True
    return None, size > _TAIL_BYTES or _STARTED in data


def _check_schema(event: Event, path: Path) -> None:
    if isinstance(event, RunSubmitted) and event.schema > SCHEMA_VERSION:
        raise ProtocolError(
            f"reading {path} failed: its messages have version {event.schema}, this version of "
            f"jupyter_ddl knows {SCHEMA_VERSION}; upgrade jupyter_ddl",
            path=str(path),
        )
