"""A full or failing disk pauses a ledger and loses nothing."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from pathlib import Path

import pytest

from jupyter_ddl.errors import CapacityError
from jupyter_ddl.ledger import writer as ledger_module
from jupyter_ddl.ledger.reader import LedgerReader, read_ledger
from jupyter_ddl.ledger.records import HEADER, pack_frames
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.codec import encode_event
from tests.unit.ledger.event_makers import begun, created, ended, submitted


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.ddl"


def fill_until_refused(writer: LedgerWriter) -> tuple[int, CapacityError]:
    """Append batches until the disk is full; returns how many trials were committed."""
    for trial in range(0, 100_000, 5):
        try:
            writer.append([created(number) for number in range(trial, trial + 5)])
        except CapacityError as error:
            return trial, error
    pytest.fail("the disk never became full")


def test_a_full_disk_loses_nothing_and_the_same_events_go_in_when_there_is_room(
    tmp_path: Path,
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root; the file size limit test covers the rest")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        timeout=10,
    )
    if mounted.returncode:
        pytest.skip(f"mounting a small disk is refused here: {mounted.stderr.strip()}")
    try:
        _fill_and_go_on(disk)
    finally:
        subprocess.run(["umount", str(disk)], check=True, timeout=10)


def _fill_and_go_on(disk: Path) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(24_000))
    path = disk / "ledger.ddl"
    with LedgerWriter.open(path, create=True) as writer:
        writer.append([submitted()])
        n_committed, error = fill_until_refused(writer)
        assert error.path == str(path)
        assert error.needed_bytes > 0
        assert error.free_bytes < error.needed_bytes
        assert "No space left" in str(error)
        assert "nothing is lost, the run goes on when there is room" in str(error)
        with LedgerReader(path) as reader:
            events = reader.poll()
        assert len(events) == 1 + n_committed
        # Nor is a part of the refused record in the file.
        assert path.read_bytes() == HEADER + pack_frames(map(encode_event, events))
        lost = [created(number) for number in range(n_committed, n_committed + 5)]
        with pytest.raises(CapacityError):
            writer.append(lost)
        ballast.unlink()
        writer.append(lost)
    assert list(read_ledger(path)) == [submitted(), *map(created, range(n_committed + 5))]


def test_a_file_size_limit_loses_nothing_either(path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with LedgerWriter.open(path, create=True) as writer:
        writer.append([submitted()])
        resource.setrlimit(resource.RLIMIT_FSIZE, (9_001, hard))
        try:
            n_committed, error = fill_until_refused(writer)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "File too large" in str(error)
        assert len(list(read_ledger(path))) == 1 + n_committed
        writer.append([created(number) for number in range(n_committed, n_committed + 5)])
    assert list(read_ledger(path)) == [submitted(), *map(created, range(n_committed + 5))]


def test_after_a_failed_sync_everything_since_the_last_good_one_is_written_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_sync = ledger_module._sync_data
    failing = [True, True]

    def sync(fd: int) -> None:
        if failing:
            failing.pop()
            raise OSError(errno.EIO, "Input/output error")
        real_sync(fd)

    with LedgerWriter.open(path, create=True) as writer:
        writer.append([submitted()])
        writer.append([created(0), begun(0)])  # not synced
        monkeypatch.setattr(ledger_module, "_sync_data", sync)
        for _ in range(2):
            with pytest.raises(CapacityError, match="Input/output error"):
                writer.append([ended(0)])
            assert list(read_ledger(path)) == [submitted()]  # only what is on disk for sure
        writer.append([ended(0)])
        assert writer.n_records == 4
    assert list(read_ledger(path)) == [submitted(), created(0), begun(0), ended(0)]
