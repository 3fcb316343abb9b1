"""Samples are kept beside the ledger of the run whose ranks work: few, bounded, nowhere else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from jupyter_ddl.controller import telemetry_store as telemetry_record
from jupyter_ddl.controller.telemetry_store import TelemetryRecord, samples_path
from jupyter_ddl.protocol.telemetry import WorkerSample
from jupyter_ddl.store.paths import ledger_path, run_dir
from tests.unit.controller.telemetry_samples import gpu, rank, sample


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DDL_HOME", str(tmp_path / "home"))
    for run_id in ("run-1", "run-2"):
        run_dir(run_id).mkdir()
        ledger_path(run_id).touch()


def kept(run_id: str) -> list[WorkerSample]:
    lines = samples_path(run_id).read_bytes().splitlines()
    return [msgspec.json.decode(line, type=WorkerSample) for line in lines]


def flush(record: TelemetryRecord) -> None:
    asyncio.run(record.flush())


def test_a_run_gets_the_samples_in_which_its_ranks_work() -> None:
    record = TelemetryRecord()
    both = (rank(0, "run-1"), rank(1, "run-2"))
    record.observe(sample("w0", 10.0, ranks=both, gpus=(gpu(),)))
    record.observe(sample("w0", 11.0, ranks=(rank(0, "run-1", is_busy=False),)))
    record.observe(sample("w1", 11.0, ranks=()))
    flush(record)
    assert [each.ranks for each in kept("run-1")] == [(rank(0, "run-1"),)]
    assert [each.ranks for each in kept("run-2")] == [(rank(1, "run-2"),)]
    assert kept("run-1")[0].gpus == (gpu(),)


def test_the_longer_a_run_lasts_the_fewer_are_kept() -> None:
    record = TelemetryRecord()
    for second in range(3600):
        record.observe(sample("w0", float(second), ranks=(rank(),)))
        if second == 1800:
            flush(record)
    flush(record)
    times = [each.at_s for each in kept("run-1")]
    assert times[:3] == [0.0, 1.0, 2.0]
    assert 36.0 <= times[-1] - times[-2] <= 37.0
    assert len(times) < 600


def test_a_file_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_record, "MAX_BYTES", 2_000)
    record = TelemetryRecord()
    for second in range(100):
        record.observe(sample("w0", float(second), ranks=(rank(),)))
    flush(record)
    assert 2_000 <= samples_path("run-1").stat().st_size < 3_000
    again = TelemetryRecord()  # of the next controller
    again.observe(sample("w0", 200.0, ranks=(rank(),)))
    flush(again)
    assert samples_path("run-1").stat().st_size < 3_000


@pytest.mark.parametrize("run_id", ["run-3", "../../x", "", "/etc", "a/b"])
def test_runs_that_are_not_there_get_no_file(run_id: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    record = TelemetryRecord()
    record.observe(sample("w0", 1.0, ranks=(rank(0, run_id),)))
    flush(record)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_was_removed_stays_removed() -> None:
    record = TelemetryRecord()
    record.observe(sample("w0", 1.0, ranks=(rank(),)))
    ledger_path("run-1").unlink()
    run_dir("run-1").rmdir()
    flush(record)
    assert not run_dir("run-1").exists()
