"""What the machines of a run did, kept beside its ledger for recordings: thin, bounded, no event.

A file of JSON lines, one sample each.  It may lack samples and it may be missing: nothing depends
on it, and a disk that is full stops it without a word.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgspec

from jupyter_ddl.controller.telemetry_store import of_run
from jupyter_ddl.protocol.telemetry import WorkerSample
from jupyter_ddl.store.paths import ledger_path

__all__ = ["MAX_BYTES", "TelemetryRecord", "samples_path"]

log = logging.getLogger(__name__)

MAX_BYTES = 4 << 20
"""Of one run."""
_MIN_GAP_S = 0.9
_N_PER_AGE = 100
"""A sample of a worker is kept if the last one is older than its hundredth part of the run."""
_MAX_RUNS = 64


def samples_path(run_id: str) -> Path:
    """Where the samples of a run lie; the file need not exist."""
    return ledger_path(run_id).with_name("telemetry.jsonl")


class _Run:
    """What is known of one run's file."""

    def __init__(self, path: Path, began_s: float) -> None:
        self.path = path
        self.began_s = began_s
        self.last_s: dict[str, float] = {}
        self.waiting: list[bytes] = []
        self.n_bytes = path.stat().st_size if path.exists() else 0


class TelemetryRecord:
    """Used on the controller's loop; only :meth:`flush` touches the disk, in a thread."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}

    def observe(self, sample: WorkerSample) -> None:
        """Keep a sample for the runs whose ranks are at work in it, unless there are enough."""
        for run_id in {rank.run_id for rank in sample.ranks if rank.is_busy}:
            run = self._runs.get(run_id) or self._begin(run_id, sample.at_s)
            if run is None or run.n_bytes >= MAX_BYTES:
                continue
            gap_s = max(_MIN_GAP_S, (sample.at_s - run.began_s) / _N_PER_AGE)
            if sample.at_s - run.last_s.get(sample.worker, float("-inf")) < gap_s:
                continue
            run.last_s[sample.worker] = sample.at_s
            line = msgspec.json.encode(of_run(sample, run_id)) + b"\n"
            run.n_bytes += len(line)
            run.waiting.append(line)

    async def flush(self) -> None:
        """Append what has been kept."""
        found = [(run.path, b"".join(run.waiting)) for run in self._runs.values() if run.waiting]
        for run in self._runs.values():
            run.waiting.clear()
        if found:
            await asyncio.to_thread(_append, found)

    def _begin(self, run_id: str, at_s: float) -> _Run | None:
        # Workers name runs, and a name must not become any path.
        if not run_id.replace("-", "").isalnum() or not ledger_path(run_id).exists():
            return None
        while len(self._runs) >= _MAX_RUNS:
            self._runs.pop(next(iter(self._runs)))
        run = self._runs[run_id] = _Run(samples_path(run_id), at_s)
        return run


def _append(pieces: list[tuple[Path, bytes]]) -> None:
    for path, data in pieces:
        try:
            with path.open("ab") as file:
                file.write(data)
        except OSError as error:
            log.debug("samples of %s are not kept: %s", path.parent.name, error)
