"""The ledger keeps what was committed, whatever happens to its file."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from jupyter_ddl.errors import LedgerBusyError, LedgerError, ProtocolError
from jupyter_ddl.ledger import writer as ledger_module
from jupyter_ddl.ledger.reader import LedgerReader, read_ledger
from jupyter_ddl.ledger.records import HEADER
from jupyter_ddl.ledger.writer import LedgerWriter, lock_path
from jupyter_ddl.protocol.events import Event, FoldFinished, Notice, TrialCreated
from jupyter_ddl.store.locks import read_note
from tests.unit.ledger.event_makers import (
    begun,
    created,
    ended,
    long_run,
    reported,
    submitted,
    twenty_events,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.ddl"


def write(path: Path, events: list[Event]) -> list[int]:
    """Write one record at a time; returns the size of the file after each, the header first."""
    with LedgerWriter.open(path, create=True) as writer:
        sizes = [path.stat().st_size]
        for event in events:
            writer.append([event])
            sizes.append(path.stat().st_size)
    return sizes


def test_what_was_appended_is_read_in_order(path: Path) -> None:
    events = twenty_events()
    with LedgerWriter.open(path, create=True) as writer:
        writer.append(events[:3])
        writer.append([])
        writer.append(events[3:])
        assert writer.n_records == len(events)
    assert list(read_ledger(path)) == events
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_reopened_ledger_goes_on_behind_its_last_record(path: Path) -> None:
    write(path, [submitted()])
    with LedgerWriter.open(path) as writer:
        assert (writer.n_records, writer.cut_bytes) == (1, 0)
        writer.append([created(0)])
    assert list(read_ledger(path)) == [submitted(), created(0)]


def test_a_new_ledger_never_replaces_one_and_a_missing_one_is_not_made(path: Path) -> None:
    with pytest.raises(LedgerError, match="does not exist"):
        LedgerWriter.open(path)
    assert list(path.parent.iterdir()) == []
    write(path, [submitted()])
    with pytest.raises(LedgerError, match="exists already"):
        LedgerWriter.open(path, create=True)
    assert list(read_ledger(path)) == [submitted()]


def test_a_truncation_at_every_byte_leaves_the_committed_prefix(path: Path) -> None:
    events = twenty_events()
    assert len(events) == 20
    sizes = write(path, events)
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        n_kept = sum(size >= end for end in sizes[1:])
        assert list(read_ledger(path)) == events[:n_kept], size
        with LedgerWriter.open(path) as writer:
            assert writer.n_records == n_kept
            begin = sizes[n_kept] if size >= len(HEADER) else 0
            assert writer.cut_bytes == size - begin
            writer.append([Notice(1.0, "tail cut")])
        assert list(read_ledger(path)) == [*events[:n_kept], Notice(1.0, "tail cut")]


def test_a_flipped_bit_at_every_byte_is_named_or_cut_and_never_read_as_an_event(
    path: Path,
) -> None:
    events = twenty_events()
    sizes = write(path, events)
    whole = path.read_bytes()
    rng = random.Random(5)
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        n_before = sum(place >= end for end in sizes[1:])
        read: list[Event] = []
        refusal: LedgerError | None = None
        try:
            read.extend(read_ledger(path))
        except LedgerError as error:
            refusal = error
        if place < len(HEADER):
            assert refusal is not None
            assert (refusal.record, read) == (0, [])
        elif n_before < len(events) - 1:
            assert refusal is not None, place
            assert (refusal.record, refusal.offset) == (n_before + 1, sizes[n_before])
            assert f"record {n_before + 1} at byte" in str(refusal)
            assert "and whole records follow from byte" in str(refusal)
        else:
            assert refusal is None  # the last record: a torn tail
            assert read == events[:-1]
        if place % 7 == 0:
            _repair(path, bytes(damaged), refusal, events[:n_before] if refusal else read)


def _repair(path: Path, damaged: bytes, refusal: LedgerError | None, expected: list[Event]) -> None:
    if refusal is not None:
        with pytest.raises(LedgerError, match="%runs repair"):
            LedgerWriter.open(path)
        assert path.read_bytes() == damaged  # refusing changes nothing
    with LedgerWriter.open(path, repair=True):
        pass
    if refusal is not None and refusal.record == 0:
        expected = twenty_events()  # only the header was bad
    assert list(read_ledger(path)) == expected
    if refusal is not None:
        copy = path.with_name("ledger.ddl.damaged")
        assert copy.read_bytes() == damaged
        copy.unlink()  # a second one would get a number


def test_damage_in_a_long_ledger_is_told_from_a_torn_tail(path: Path) -> None:
    with LedgerWriter.open(path, create=True) as writer:
        writer.append(list(long_run(8000)))  # longer than one step of reading
    whole = path.read_bytes()
    assert len(whole) > 3 << 20
    middle = len(whole) // 2
    for mask in (0x01, 0x80):
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ mask]) + whole[middle + 1 :])
        with pytest.raises(LedgerError, match=r"whole records follow") as caught:
            LedgerWriter.open(path)
        assert middle - 400 < caught.value.offset <= middle


def test_a_file_that_is_no_ledger_or_a_later_one_is_left_alone_even_by_repair(path: Path) -> None:
    for content, message in (
        (b"%PDF-1.7 and more, much more than a header", "not a ledger"),
        (_header(2), "ledger format 2"),
    ):
        path.write_bytes(content)
        for repair in (False, True):
            with pytest.raises(LedgerError, match=message):
                LedgerWriter.open(path, repair=repair)
        assert path.read_bytes() == content


def _header(version: int) -> bytes:
    start = b"DDLEDGER" + version.to_bytes(4, "little")
    return start + crc32(start).to_bytes(4, "little")


def test_an_event_that_cannot_be_encoded_writes_nothing(path: Path) -> None:
    with LedgerWriter.open(path, create=True) as writer:
        with pytest.raises(ProtocolError, match="TrialCreated"):
            writer.append([submitted(), TrialCreated(0, {"seed": 1 << 70}, 1.0)])
        writer.append([submitted()])
    assert list(read_ledger(path)) == [submitted()]


def test_only_events_that_end_something_are_synced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(ledger_module, "_sync_data", synced.append)
    writer = LedgerWriter.open(path, create=True)
    synced.clear()
    writer.append([created(0), begun(0), reported(0)])
    assert len(synced) == 0
    writer.append([reported(0), ended(0), created(1), ended(1)])
    assert len(synced) == 1
    writer.append([FoldFinished(0, 1, b"key", 1.0, 2.0)])
    assert len(synced) == 2, "the outcome of a fold is never computed twice"
    writer.append([created(2)])
    writer.close()
    assert len(synced) == 3
    writer.close()
    assert len(synced) == 3


def test_a_closed_writer_refuses_by_name(path: Path) -> None:
    writer = LedgerWriter.open(path, create=True)
    writer.close()
    with pytest.raises(LedgerError, match="it is closed"):
        writer.append([submitted()])


def test_threads_may_append_at_once(path: Path) -> None:
    with LedgerWriter.open(path, create=True) as writer:
        writer.append([submitted()])

        def append(first: int) -> None:
            for trial in range(first, first + 200):
                writer.append([created(trial), begun(trial)])

        threads = [threading.Thread(target=append, args=(k * 200,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    events = list(read_ledger(path))
    assert len(events) == 1601
    assert all(events[k].trial == events[k + 1].trial for k in range(1, 1601, 2))


# -- one writer ------------------------------------------------------------------------------

_HOLD = """
import sys
from jupyter_ddl.ledger.writer import LedgerWriter
writer = LedgerWriter.open(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other_writer(path: Path) -> Iterator[subprocess.Popen[str]]:
    write(path, [submitted()])
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=10)


def test_a_second_process_is_refused_with_pid_and_host_of_the_first(
    path: Path, other_writer: subprocess.Popen[str]
) -> None:
    before = path.read_bytes()
    told = f"process {other_writer.pid} on .* writes it; attach to that run, or stop it"
    with pytest.raises(LedgerBusyError, match=told) as caught:
        LedgerWriter.open(path)
    assert caught.value.pid == other_writer.pid
    assert caught.value.host == os.uname().nodename
    assert caught.value.since_s > 0
    assert path.read_bytes() == before
    holder = read_note(lock_path(path))
    assert holder is not None
    assert holder.process.pid == other_writer.pid


def test_the_lock_of_a_killed_holder_is_free_at_once(
    path: Path, other_writer: subprocess.Popen[str]
) -> None:
    other_writer.kill()
    other_writer.wait(10)
    holder = read_note(lock_path(path))
    assert holder is not None
    assert holder.process.pid == other_writer.pid  # its note stays
    with LedgerWriter.open(path) as writer:
        assert writer.n_records == 1
        now = read_note(lock_path(path))
        assert now is not None
        assert now.process.pid == os.getpid()
    assert read_note(lock_path(path)) is None


def test_a_second_writer_in_the_same_process_is_refused_too(path: Path) -> None:
    with (
        LedgerWriter.open(path, create=True),
        pytest.raises(LedgerBusyError, match=f"process {os.getpid()} "),
    ):
        LedgerWriter.open(path)


def test_a_ledger_in_a_missing_directory_is_refused_with_a_next_step(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="set JUPYTER_DDL_HOME"):
        LedgerWriter.open(tmp_path / "gone" / "ledger.ddl", create=True)


_APPEND = """
import sys
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import AttemptFinished, TrialCreated
writer = LedgerWriter.open(sys.argv[1])
for trial in range(1_000_000):
    writer.append([TrialCreated(trial, {"lr": 0.5}, 1002.0), AttemptFinished(
        trial, 1, "evicted", 1.0, 0.0)])
    print(trial, flush=True)
"""


def test_a_writer_killed_at_any_moment_has_written_all_that_it_acknowledged(path: Path) -> None:
    write(path, [submitted()])
    process = subprocess.Popen(
        [sys.executable, "-c", _APPEND, str(path)], stdout=subprocess.PIPE, text=True
    )
    seen: list[Event] = []
    try:
        assert process.stdout is not None
        with LedgerReader(path) as reader:
            for line in process.stdout:
                seen += reader.poll()
                if int(line) == 300:
                    break
            process.kill()
            acknowledged = [int(line) for line in process.stdout.read().split()] or [300]
            seen += reader.poll()
    finally:
        process.kill()
        process.communicate(timeout=10)
    trials = [event.trial for event in seen if isinstance(event, TrialCreated)]
    assert trials == list(range(len(trials)))
    assert trials[-1] >= acknowledged[-1]
    with LedgerWriter.open(path) as writer:
        assert writer.n_records >= 1 + 2 * (acknowledged[-1] + 1)
