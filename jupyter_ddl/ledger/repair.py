"""Repairs a damaged ledger: what stands before the damage is kept, and what is lost is told."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from jupyter_ddl.errors import LedgerError, ProtocolError
from jupyter_ddl.formats import format_counted
from jupyter_ddl.ledger.reader import read_damaged_line
from jupyter_ddl.ledger.records import HEADER, find_record, frame_at
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.codec import decode_event
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    CheckpointSaved,
    Event,
    Notice,
    RunFinished,
)

__all__ = ["Repaired", "repair_ledger"]

_N_NAMED = 8


class Repaired(msgspec.Struct, frozen=True):
    """What came of a repair."""

    n_kept: int
    """Records."""
    lost: str
    """What stood in whole records behind the damage, as a sentence's part."""
    copy: Path
    """The file as it was."""


def repair_ledger(path: Path) -> Repaired | None:
    """Keep what stands before the damage; None where nothing is damaged.

    Raises
    ------
    LedgerBusyError
        Somebody writes it.
    LedgerError
        Its first record, which says what was to be run, is lost: nothing can be kept.
    CapacityError
        No room for the copy; nothing has changed.
    """
    data = path.read_bytes()
    first = frame_at(data, len(HEADER))
    line = read_damaged_line(path)
    if first is None and line is not None:
        raise LedgerError(
            f"repairing {path} failed: its first record, which tells what was to be run, is "
            f"damaged, so nothing can be kept; copy the file back from elsewhere, or remove the "
            f"run with `%runs rm {path.parent.name}`",
            path=str(path),
            record=1,
        )
    with LedgerWriter.open(path, repair=True) as ledger:
        if ledger.damaged_copy is None:
            return None
        n_kept = ledger.n_records
        if data[: len(HEADER)] != HEADER:
            return Repaired(n_kept, "nothing is", ledger.damaged_copy)
        lost = _told(_behind(ledger.damaged_copy.read_bytes(), path.stat().st_size))
        ledger.append([Notice(time.time(), f"repaired: {n_kept} records are kept, {lost} lost")])
        return Repaired(n_kept, lost, ledger.damaged_copy)


def _behind(data: bytes, offset: int) -> list[Event]:
    """The events of all whole records behind damage that begins at ``offset``."""
    events: list[Event] = []
    position = find_record(data, offset)
    while position is not None:
        payload = frame_at(data, position)
        if payload is None:
            break
        with contextlib.suppress(ProtocolError):  # of another version: lost, and can't be named
            events.append(decode_event(payload))
        position = find_record(data, position + 8 + len(payload))
    return events


def _told(events: Sequence[Event]) -> str:
    ends = sorted({event.trial for event in events if isinstance(event, AttemptFinished)})
    named = ", ".join(map(str, ends[:_N_NAMED])) + (" …" if len(ends) > _N_NAMED else "")
    n_saved = sum(isinstance(event, CheckpointSaved) for event in events)
    parts = [f"ends of attempts at trials {named}"] if ends else []
    parts += [f"{format_counted(n_saved, 'checkpoint')} on record"] if n_saved else []
    parts += ["the end of the run"] if any(isinstance(e, RunFinished) for e in events) else []
    what = f" ({'; '.join(parts)})" if parts else ""
    return f"the damaged one and {format_counted(len(events), 'record')} behind it{what} are"
