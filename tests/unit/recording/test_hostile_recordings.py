"""Recordings that were made to do harm are refused in one line, or played like any other."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from jupyter_ddl.errors import RecordingError
from jupyter_ddl.protocol.events import RunFinished, TrialCreated
from jupyter_ddl.recording.lines import MAX_FILE_BYTES, read_recording
from jupyter_ddl.recording.page import page_html
from jupyter_ddl.recording.write import write_recording
from tests.unit.ledger.event_makers import begun, ended, reported, started, submitted
from tests.unit.recording.test_recording_files import recording_of


def written(path: Path) -> list[str]:
    """Lines of a small recording."""
    events = [submitted(), started(), TrialCreated(0, {"lr": 1.0}, 1002.0), begun(0)]
    events += [reported(0, step=1, acc=0.5), ended(0, at_s=1009.0)]
    events += [RunFinished(1010.0, "complete")]
    write_recording(recording_of(events), path)
    return path.read_text().splitlines()


def changed(path: Path, kind: str, field: str, value: str) -> Path:
    """The file with one field of one event as this JSON."""
    lines = written(path)
    for number, line in enumerate(lines):
        fields = json.loads(line)
        if fields["type"] == kind:
            fields[field] = "@@"
            lines[number] = json.dumps(fields).replace('"@@"', value)
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("value", ["1e999", "-1e999", "NaN", "Infinity", "-Infinity"])
@pytest.mark.parametrize(
    ("kind", "field"), [("reported", "at_s"), ("attempt_finished", "duration_s")]
)
def test_numbers_without_an_end_are_refused(
    tmp_path: Path, kind: str, field: str, value: str
) -> None:
    with pytest.raises(RecordingError, match=r"line \d+ is not a fact of a run"):
        read_recording(changed(tmp_path / "one.jsonl", kind, field, value))


@pytest.mark.parametrize("depth", [100, 400, 900, 5_000, 200_000])
@pytest.mark.parametrize(("left", "right"), [("[", "]"), ('{"a":', "}")])
def test_what_is_nested_without_end_is_refused(
    tmp_path: Path, depth: int, left: str, right: str
) -> None:
    nested = left * depth + "1" + right * depth
    with pytest.raises(RecordingError, match=r"line \d+ is not a fact of a run"):
        read_recording(changed(tmp_path / "one.jsonl", "reported", "metrics", nested))


def test_a_packed_file_that_unpacks_without_end_takes_no_more_than_its_limit(
    tmp_path: Path,
) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        for _ in range((MAX_FILE_BYTES >> 20) + 1):
            file.write(b"[" * (1 << 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(RecordingError, match="more than 128 MiB, more than any recording has"):
        read_recording(path)


@pytest.mark.parametrize("value", ["1e308", "-1e308", "1e18", "0.0"])
def test_times_far_away_are_played(tmp_path: Path, value: str) -> None:
    recording = read_recording(changed(tmp_path / "one.jsonl", "attempt_finished", "at_s", value))
    assert "<html" in page_html(recording)


def test_half_of_a_character_in_a_head_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="not the head of a recording"):
        read_recording(changed(tmp_path / "one.jsonl", "recording", "origin", '"\\ud800"'))
