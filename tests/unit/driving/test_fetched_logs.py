"""Logs of workers elsewhere: what such a worker has cut takes no room at the controller either."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.driving.file_sync import FileTransfer
from jupyter_ddl.store.log_space import read_span
from jupyter_ddl.worker.files import OwnFiles
from tests.leaks import Home

MIB = 1 << 20


class Elsewhere:
    """A scheduler's client whose one worker has files of its own."""

    scheduler, cluster = object(), None

    def __init__(self, files: OwnFiles) -> None:
        self._files = files

    async def run(self, _: Any, *args: Any, workers: Any, on_error: str) -> dict[str, Any]:
        return {workers[0]: self._files.read(*args)}


@pytest.mark.usefixtures("holes")
def test_a_long_log_is_cut_there_and_stays_so_here(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_DDL_LOG_BYTES", str(2 * MIB))
    files = OwnFiles()
    there = files._run_dir("r1") / "logs" / "a.log"
    there.parent.mkdir(parents=True)
    there.write_bytes(b"first\n" + b"x" * 30 * MIB + b"\nlast\n")
    (tmp_path / "logs").mkdir()
    transfer: Any = FileTransfer(Elsewhere(files), str)
    asyncio.run(transfer.fetch_logs("w", "r1", tmp_path, ["a.log"]))
    here = tmp_path / "logs" / "a.log"
    assert there.stat().st_blocks * 512 <= 2 * MIB
    assert here.stat().st_size == there.stat().st_size
    assert here.stat().st_blocks * 512 < 16 * MIB
    text = read_span(here, 0)
    assert text[:6] == b"first\n"
    assert text[-6:] == b"\nlast\n"
    assert text.count(b"not kept here") == 1


@pytest.mark.usefixtures("holes")
def test_logs_of_runs_that_are_read_at_one_time_are_all_bounded(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_DDL_LOG_BYTES", str(2 * MIB))
    files = OwnFiles()
    for run_id in ("r1", "r2"):
        log = files._run_dir(run_id) / "logs" / "a.log"
        log.parent.mkdir(parents=True)
        log.write_bytes(b"x" * 8 * MIB)
        assert files.read(run_id, "logs/a.log", 0, 1) is not None
        assert log.stat().st_blocks * 512 <= 2 * MIB, run_id
