"""Ledgers are read while they grow, listed without being folded, and opened fast."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jupyter_ddl.errors import LedgerError, ProtocolError
from jupyter_ddl.ledger.reader import LedgerReader, read_ledger, read_run_line, read_submitted
from jupyter_ddl.ledger.records import HEADER, pack_frames
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.snapshots import with_totals
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.codec import encode_event
from jupyter_ddl.protocol.events import Event, Failure, Notice, RunFinished, RunSubmitted
from jupyter_ddl.protocol.snapshot import Counts
from tests.unit.ledger.event_makers import (
    begun,
    created,
    ended,
    long_run,
    map_spec,
    search_spec,
    started,
    submitted,
    twenty_events,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.ddl"


def write(path: Path, events: list[Event]) -> None:
    with LedgerWriter.open(path, create=True) as writer:
        writer.append(events)


def test_a_reader_follows_a_writer(path: Path) -> None:
    with LedgerWriter.open(path, create=True) as writer, LedgerReader(path) as reader:
        assert reader.poll() == []
        writer.append([submitted()])
        assert reader.poll() == [submitted()]
        assert reader.poll() == []
        writer.append([created(0), begun(0)])
        assert reader.poll() == [created(0), begun(0)]
        assert reader.n_records == 3


def test_a_reader_at_rest_goes_on_where_it_was(path: Path) -> None:
    with LedgerWriter.open(path, create=True) as writer, LedgerReader(path) as reader:
        writer.append([submitted()])
        assert reader.poll() == [submitted()]
        reader.rest()
        reader.rest()
        assert reader.is_current()
        writer.append([created(0)])
        assert reader.poll() == [created(0)]
        assert reader.poll() == []
        reader.rest()
    moved = path.rename(path.with_name("moved"))
    assert reader.poll() == []
    path.write_bytes(moved.read_bytes())
    assert (reader.poll(), reader.is_current()) == ([], False), "that is another one"


def test_a_record_that_is_still_being_written_comes_when_it_is_whole(path: Path) -> None:
    write(path, [submitted(), created(0)])
    whole = path.read_bytes()
    path.write_bytes(b"")
    seen: list[Event] = []
    with LedgerReader(path) as reader, path.open("ab", buffering=0) as file:
        for place in range(len(whole)):
            file.write(whole[place : place + 1])
            seen += reader.poll()
    assert seen == [submitted(), created(0)]


def test_reading_never_changes_the_file(path: Path) -> None:
    write(path, twenty_events())
    torn = path.read_bytes()[:-3]
    path.write_bytes(torn)
    with LedgerReader(path) as reader:
        assert len(reader.poll()) == 19
    assert path.read_bytes() == torn


def test_a_missing_ledger_and_a_closed_reader_are_refused(path: Path) -> None:
    with pytest.raises(LedgerError, match="No such file"):
        LedgerReader(path)
    write(path, [submitted()])
    reader = LedgerReader(path)
    reader.close()
    reader.close()
    with pytest.raises(LedgerError, match="it is closed"):
        reader.poll()


def test_a_record_of_another_version_is_named(path: Path) -> None:
    good = msgspec.msgpack.encode(submitted())
    strange = msgspec.msgpack.encode({"type": "teleported", "trial": 1})
    path.write_bytes(HEADER + pack_frames([good, strange]))
    with pytest.raises(ProtocolError, match=r"record 2 of .*ledger\.ddl.*teleported"):
        list(read_ledger(path))


def test_messages_of_a_later_version_are_refused(path: Path) -> None:
    write(path, [RunSubmitted(search_spec(), 1.0, schema=99)])
    for read in (lambda p: list(read_ledger(p)), read_submitted):
        with pytest.raises(ProtocolError, match=r"version 99.*upgrade"):
            read(path)


def test_the_first_record_is_read_alone_even_when_it_is_large(path: Path) -> None:
    program = msgspec.structs.replace(search_spec().program, source="x" * 300_000)
    large = submitted(msgspec.structs.replace(search_spec(), program=program))
    write(path, [large, started()])
    assert read_submitted(path) == large


def test_an_empty_ledger_has_no_first_record(path: Path) -> None:
    for content in (b"", HEADER[:5], HEADER, HEADER + b"\x01\x02"):
        path.write_bytes(content)
        assert list(read_ledger(path)) == []
        with pytest.raises(LedgerError, match="no whole first record"):
            read_submitted(path)


def test_a_line_of_a_finished_run_comes_from_its_last_record(path: Path) -> None:
    events = list(long_run(500))
    end = with_totals(fold_all(events[:-1]), RunFinished(2000.0, "complete"))
    write(path, [*events[:-1], end, Notice(2001.0, "afterwards")])
    assert path.stat().st_size > 1 << 16
    line = read_run_line(path)
    assert (line.state, line.finished_at_s) == ("complete", 2000.0)
    assert (line.n_finished, line.n_trials) == (500, 500)
    assert (line.best, line.metric) == (249.5, "acc")


def test_a_line_of_a_short_unfinished_run_is_folded(path: Path) -> None:
    write(path, [submitted(), started(), created(0), begun(0), ended(0, value=0.5), created(1)])
    line = read_run_line(path)
    assert (line.state, line.finished_at_s) == ("running", None)
    assert line.n_finished == 1
    assert line.best == 0.5


def test_a_line_tells_a_resumed_run_from_a_finished_one(path: Path) -> None:
    end = RunFinished(9.0, "cancelled", totals={"cancelled": 1})
    write(path, [submitted(map_spec()), started(), created(0), end, started(2)])
    assert read_run_line(path).state == "running"
    assert read_run_line(path).verb == "map"


def test_a_line_of_a_run_that_never_began_is_submitted(path: Path) -> None:
    write(path, [submitted()])
    assert read_run_line(path).state == "submitted"
    assert read_run_line(path).n_finished == 0


def test_a_line_finds_an_end_with_a_long_traceback(path: Path) -> None:
    failure = Failure("exception", "ValueError", "boom", "line\n" * 5000)
    end = RunFinished(9.0, "failed", "boom", failure, 3, {"failed": 1})
    write(path, [submitted(), started(), end])
    assert read_run_line(path).state == "failed"


def test_a_ledger_of_ten_thousand_trials_opens_whole(path: Path) -> None:
    write(path, list(long_run(10_000)))
    state = fold_all(read_ledger(path))
    assert state.counts == Counts(complete=10_000)
    assert read_run_line(path).state == state.state


def test_totals_of_states_that_nobody_knows_are_passed_over(tmp_path: Path) -> None:
    end = RunFinished(1.0, "complete", totals={"complete": 3, "lost": 2})
    path = tmp_path / "ledger.ddl"
    path.write_bytes(HEADER + pack_frames(map(encode_event, (submitted(), end))))
    assert read_run_line(path).n_finished == 3
