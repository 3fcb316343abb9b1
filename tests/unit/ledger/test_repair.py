"""A damaged run is listed as such, shows what stands before the damage, and can be repaired."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_ddl.client.history import list_runs, repair_run
from jupyter_ddl.client.run import Run
from jupyter_ddl.errors import LedgerBusyError, LedgerError
from jupyter_ddl.ledger.reader import read_ledger
from jupyter_ddl.ledger.records import HEADER
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import Event, Notice, RunFinished
from jupyter_ddl.server.run_list import Driven, Folds, RunListing
from jupyter_ddl.store.paths import ledger_path
from tests.unit.ledger.event_makers import begun, created, ended, started, submitted

RUN = submitted().spec.run_id
EVENTS: list[Event] = [
    submitted(),
    started(),
    created(0),
    begun(0),
    ended(0),
    created(1),
    begun(1),
    ended(1),
    RunFinished(at_s=9.0, state="complete"),
]


@pytest.fixture
def ledger(home: object) -> Path:
    path = ledger_path(RUN)
    path.parent.mkdir(parents=True)
    return path


def _sizes(path: Path) -> list[int]:
    """Where each record begins, and the end."""
    places = [len(HEADER)]
    with LedgerWriter.open(path, create=True) as writer:
        for event in EVENTS:
            writer.append([event])
            places.append(path.stat().st_size)
    return places


def _damage(path: Path, whole: bytes, place: int) -> bytes:
    damaged = whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :]
    path.write_bytes(damaged)
    return damaged


def test_damage_at_every_byte_is_listed_and_repaired_to_what_stands_before(ledger: Path) -> None:
    places = _sizes(ledger)
    whole = ledger.read_bytes()
    for place in range(places[-2]):
        damaged = _damage(ledger, whole, place)
        (line,) = list_runs()
        (seen,) = RunListing(Folds()).poll(Driven())
        assert (line.run_id, line.is_damaged) == (seen.run_id, seen.is_damaged) == (RUN, True)
        if place % 11:
            continue
        n_whole = sum(end <= place for end in places[1:])
        if len(HEADER) <= place < places[1]:
            with pytest.raises(LedgerError, match="its first record, which tells"):
                repair_run(RUN)
            assert ledger.read_bytes() == damaged
            continue
        copy = ledger.with_name("ledger.ddl.damaged")
        assert str(copy) in repair_run(RUN)
        assert copy.read_bytes() == damaged
        copy.unlink()
        (line,) = list_runs()
        assert not line.is_damaged
        kept = list(read_ledger(ledger))
        if place < len(HEADER):
            assert kept == EVENTS
        else:
            assert kept[:-1] == EVENTS[:n_whole]
            assert isinstance(kept[-1], Notice)


def test_what_was_lost_is_told_and_what_is_readable_is_shown(ledger: Path) -> None:
    places = _sizes(ledger)
    _damage(ledger, ledger.read_bytes(), places[3] + 12)
    run = Run(RUN)
    assert f"`%runs repair {RUN}` keeps the 3 records before it" in run.damage
    assert run.events() == EVENTS[:3]
    assert run.snapshot().counts.waiting == 1
    told = repair_run(RUN)
    assert "3 records kept, the damaged one and 5 records behind it (ends of attempts at " in told
    assert "trials 0, 1; the end of the run) are lost" in told
    assert Run(RUN).damage == ""
    assert repair_run(RUN) == f"The record of run {RUN} is not damaged."


def test_a_second_repair_leaves_the_first_copy_alone(ledger: Path) -> None:
    places = _sizes(ledger)
    whole = ledger.read_bytes()
    first = _damage(ledger, whole, places[3] + 12)
    repair_run(RUN)
    second = _damage(ledger, whole, places[2] + 12)
    repair_run(RUN)
    assert ledger.with_name("ledger.ddl.damaged").read_bytes() == first
    assert ledger.with_name("ledger.ddl.damaged-2").read_bytes() == second


def test_nothing_is_repaired_while_somebody_writes(ledger: Path) -> None:
    places = _sizes(ledger)
    with LedgerWriter.open(ledger):
        damaged = _damage(ledger, ledger.read_bytes(), places[3] + 12)
        with pytest.raises(LedgerBusyError):
            repair_run(RUN)
        assert ledger.read_bytes() == damaged
