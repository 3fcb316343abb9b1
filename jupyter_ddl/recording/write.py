"""Writes a run as a recording: a file that appears whole or not at all."""

from __future__ import annotations

import gzip
import heapq
import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from jupyter_ddl import __version__
from jupyter_ddl.controller.telemetry_record import samples_path
from jupyter_ddl.errors import RecordingError
from jupyter_ddl.events.messages import Event, Reported, RunSubmitted
from jupyter_ddl.events.reader import read_ledger
from jupyter_ddl.events.telemetry import WorkerSample
from jupyter_ddl.recording.facts import FORMAT, Fact, Head, Measured, Origin, Recording
from jupyter_ddl.recording.lines import in_time, line_of, time_of
from jupyter_ddl.recording.printed import printed_lines
from jupyter_ddl.recording.privacy import Scrubber
from jupyter_ddl.spec.run import verb_name
from jupyter_ddl.store.paths import ledger_path, run_dir

__all__ = ["MAX_REPORTS", "head_of", "record_run", "save_text", "write_recording"]

_SAMPLE = msgspec.json.Decoder(WorkerSample)
MAX_REPORTS = 200_000
"""Of more reports, every second one is left out, until they fit."""


def record_run(run_id: str) -> Recording:
    """A run of this user as far as it has come, without secrets, names and folders.

    Raises
    ------
    LedgerError
        There is no such run, or its ledger is damaged.
    """
    events = list(read_ledger(ledger_path(run_id)))
    kept, left_out = _thinned(events)
    printed, cut = printed_lines(events, run_dir(run_id) / "logs")
    measured = _measured(run_id)
    scrub = Scrubber()
    printed.sort(key=time_of)
    beside = (in_time(printed), in_time(measured))
    merged = heapq.merge(in_time(kept), *beside, key=lambda pair: pair[0])
    facts = [scrub.fact(fact) for _, fact in merged]
    return Recording(head_of(facts, "recorded", (*left_out, *cut)), tuple(facts))


def head_of(facts: Iterable[Fact], origin: Origin, left_out: tuple[str, ...] = ()) -> Head:
    """The head that goes with these facts, of which one is ``RunSubmitted``."""
    spec = next(fact.spec for fact in facts if isinstance(fact, RunSubmitted))
    return Head(
        format=FORMAT,
        origin=origin,
        version=__version__,
        run_id=spec.run_id,
        verb=verb_name(spec.verb),
        name=spec.name,
        line=spec.provenance.line,
        cell=spec.provenance.cell,
        left_out=left_out,
    )


def write_recording(recording: Recording, path: str | Path, *, overwrite: bool = False) -> int:
    """Write JSON lines, packed by gzip if the name ends in ``.gz``; returns the number of facts.

    Raises
    ------
    RecordingError
        The file is there already, or can't be written; says why.
    """
    path = Path(path).expanduser()
    text = "".join(f"{line}\n" for line in _lines_of(recording))
    data = text.encode()
    if path.suffix == ".gz":
        packed = io.BytesIO()
        # No time and no name inside: the same recording is the same file.
        with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as file:
            file.write(data)
        data = packed.getvalue()
    save_text(data, path, overwrite=overwrite)
    return len(recording.facts)


def save_text(data: bytes, path: Path, *, overwrite: bool) -> None:
    """Make a file appear with its whole content.

    Raises
    ------
    RecordingError
        It is there already and ``overwrite`` is false, or it can't be written.
    """
    if path.is_dir():
        raise _refusal(path, "it is a directory; give the name of a file")
    if path.exists() and not overwrite:
        raise _refusal(path, "it is there already; give another name, or --overwrite")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        try:
            partial.write_bytes(data)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise _refusal(path, f"{error.strerror}; give a place that you may write to") from None


def _lines_of(recording: Recording) -> Iterator[str]:
    yield line_of(recording.head)
    for fact in recording.facts:
        yield line_of(fact)


def _thinned(events: list[Event]) -> tuple[list[Event], tuple[str, ...]]:
    """The events with at most :data:`MAX_REPORTS` reports; the last of each trial stays."""
    n_reports = sum(type(event) is Reported for event in events)
    stride = 1
    while n_reports / stride > MAX_REPORTS:
        stride *= 2
    if stride == 1:
        return events, ()
    totals = Counter((e.trial, e.attempt, e.rank) for e in events if isinstance(e, Reported))
    seen: Counter[tuple[int, int, int]] = Counter()
    kept: list[Event] = []
    for event in events:
        if isinstance(event, Reported):
            key = (event.trial, event.attempt, event.rank)
            seen[key] += 1
            if seen[key] % stride and seen[key] < totals[key]:
                continue
        kept.append(event)
    return kept, (f"{len(events) - len(kept):,} of {n_reports:,} reports",)


def _measured(run_id: str) -> list[Fact]:
    """The samples that the controller has kept; none where it has kept none."""
    try:
        lines = samples_path(run_id).read_bytes().splitlines()
    except OSError:
        return []
    found: list[Fact] = []
    for line in lines:
        try:
            found.append(Measured(_SAMPLE.decode(line)))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # the last one may be cut off
    return sorted(found, key=time_of)


def _refusal(path: Path, what: str) -> RecordingError:
    return RecordingError(f"writing {path} failed: {what}", path=str(path))
