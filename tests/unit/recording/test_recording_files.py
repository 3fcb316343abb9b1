"""A recording is written whole and read back, and what is none is refused in one line."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from jupyter_ddl.errors import LedgerError, RecordingError
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.snapshots import snapshot_of
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import (
    AttemptStarted,
    Event,
    Notice,
    OutputShown,
    RankEnded,
    RankStarted,
    Reported,
    RunSubmitted,
    TrialCreated,
)
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.space import Choice
from jupyter_ddl.protocol.telemetry import WorkerSample
from jupyter_ddl.recording import write
from jupyter_ddl.recording.lines import (
    FORMAT,
    Displayed,
    Measured,
    Printed,
    Recording,
    in_time,
    read_recording,
)
from jupyter_ddl.recording.page import export_run
from jupyter_ddl.recording.timeline import last_snapshot
from jupyter_ddl.recording.write import head_of, record_run, write_recording
from jupyter_ddl.store.paths import ledger_path, run_dir
from jupyter_ddl.verbs.search import Search
from tests.unit.ledger.event_makers import (
    begun,
    ended,
    reported,
    search_spec,
    started,
    submitted,
    twenty_events,
)


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_DDL_HOME", str(tmp_path / "home"))


def recording_of(events: list[Event]) -> Recording:
    return Recording(head_of(events, "recorded"), tuple(events))


def ledger(run_id: str, events: list[Event]) -> Path:
    """A run of this home."""
    folder = run_dir(run_id)
    (folder / "logs").mkdir(parents=True)
    with LedgerWriter.open(ledger_path(run_id), create=True) as writer:
        writer.append(events)
    return folder


def written(tmp_path: Path, events: list[Event], name: str = "demo.jsonl") -> Path:
    path = tmp_path / name
    write_recording(recording_of(events), path)
    return path


def odd_events() -> list[Event]:
    """Numbers that JSON has no word for, and texts that read like them."""
    verb = Search("acc", "max", 4, {"clip": Choice((1.0, math.inf)), "norm": Choice(("NaN?",))})
    spec = RunSpec("r1", verb, Program("NaN", "In [1]"), 7, "local", 1.0, name="Infinity")
    return [
        RunSubmitted(spec, 1.0),
        started(),
        TrialCreated(0, {"clip": math.inf, "norm": "NaN?"}, 1.0),
        begun(0),
        reported(0, loss=-math.inf),
        ended(0, value=math.inf),
        Notice(1.0, "NaN"),
    ]


def test_a_recording_is_strict_json_and_comes_back_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path, odd_events())

    def refuse(word: str) -> None:
        raise AssertionError(word)

    lines = [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]
    kinds = [line["type"] for line in lines]
    assert kinds[:4] == ["recording", "run_submitted", "run_started", "trial_created"]
    assert lines[5]["metrics"] == {"loss": "-Infinity"}
    assert list(read_recording(path).facts) == odd_events()
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["demo.jsonl"]


def test_figures_are_in_it_as_pictures_and_text_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "MAX_DISPLAYED_BYTES", 5000)
    picture = "hf_" + "A" * 4000  # letters of base64 that read like a token
    home = "/".join(("", "home", "somebody"))
    contents = {
        "0-1": {"image/png": "x" * 4500},
        "1-1": {"image/png": picture, "text/html": "<script>"},
        "1-2": {"text/html": "<b>", "text/plain": f"token=hunter22 in {home}/x"},
    }
    events = [submitted(search_spec(2)), started()]
    for trial, value in ((0, 1.0), (1, 2.0)):
        shown = tuple(name for name in contents if name.startswith(f"{trial}-"))
        told = [OutputShown(trial, 1, name, 9, 1004.0, shown) for name in shown]
        events += [TrialCreated(trial, {"lr": 0.1}, 1002.0), begun(trial), *told]
        events.append(ended(trial, value=value))
    folder = ledger("r1", events) / "outputs"
    folder.mkdir()
    for name, data in contents.items():
        (folder / name).write_bytes(msgspec.json.encode({"data": data}))

    recording = record_run("r1")

    found = [fact for fact in recording.facts if isinstance(fact, Displayed)]
    assert [(each.trial, each.mime) for each in found] == [(1, "image/png"), (1, "text/plain")]
    assert found[0].content == picture
    assert found[1].content == "token=••• in ~/x"
    assert recording.head.left_out == ("1 of 3 figures and tables",)
    path = tmp_path / "with.jsonl"
    write_recording(recording, path)
    assert read_recording(path) == recording


def test_not_a_number_comes_back_as_a_number(tmp_path: Path) -> None:
    path = written(tmp_path, [submitted(), reported(0, acc=math.nan)])
    last = read_recording(path).facts[-1]
    assert isinstance(last, Reported)
    assert math.isnan(last.metrics["acc"])


def test_a_recording_folds_to_the_same_run(tmp_path: Path) -> None:
    recording = read_recording(written(tmp_path, twenty_events()))
    assert last_snapshot(recording) == snapshot_of(fold_all(twenty_events()), 1006.0)


def test_a_packed_recording_is_the_same_one_and_the_same_file_every_time(tmp_path: Path) -> None:
    plain = written(tmp_path, twenty_events())
    packed = written(tmp_path, twenty_events(), "demo.jsonl.gz")
    again = written(tmp_path, twenty_events(), "again.jsonl.gz")
    assert read_recording(packed) == read_recording(plain)
    assert packed.read_bytes() == again.read_bytes()
    assert packed.read_bytes()[4:8] == bytes(4)  # no time in it
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()


def test_a_run_is_exported_with_what_it_printed(tmp_path: Path) -> None:
    folder = ledger("r1", twenty_events())
    text = "".join(f"line {number}\n" for number in range(12))
    (folder / "logs" / "r1-1-1.log").write_text(text)
    answer = export_run("r1", tmp_path / "demo.jsonl")
    recording = read_recording(tmp_path / "demo.jsonl")
    assert answer.startswith(f"{len(recording.facts)} facts of run r1 are in ")
    assert (recording.head.origin, recording.head.format) == ("recorded", FORMAT)
    first = [fact for fact in recording.facts if isinstance(fact, Printed) and fact.trial == 0]
    assert [line for fact in first for line in fact.lines] == text.split("\n")[:-1]
    assert first[0].at_s > 1003.0
    assert first[-1].at_s == 1005.0
    events = [fact for fact in recording.facts if not isinstance(fact, Printed | Measured)]
    assert events == twenty_events()


def test_ranks_of_a_group_have_their_own_output_and_none_is_told_twice() -> None:
    def rank_started(rank: int, log: str) -> RankStarted:
        return RankStarted(0, 1, rank, 1003.0, "w", "h", 7, log, 0)

    def rank_ended(rank: int, log_end: int) -> RankEnded:
        return RankEnded(0, 1, rank, "complete", 1009.0, 6.0, log_end)

    events: list[Event] = [submitted(), started(), TrialCreated(0, {}, 1002.0), begun(0)]
    events += [rank_started(0, "r1-1-1.log"), rank_started(1, "one.log")]
    events += [rank_ended(0, 10), rank_ended(1, 9), ended(0, at_s=1009.0)]
    folder = ledger("r1", events)
    (folder / "logs" / "r1-1-1.log").write_text("from zero\n")
    (folder / "logs" / "one.log").write_text("from one\nof a later round\n")
    printed = [fact for fact in record_run("r1").facts if isinstance(fact, Printed)]
    assert [(each.rank, each.lines) for each in printed] == [
        (0, ("from zero",)),
        (1, ("from one",)),
    ]


def test_a_run_is_exported_with_what_its_machines_did(tmp_path: Path) -> None:
    folder = ledger("r1", twenty_events())
    samples = [WorkerSample("w0", "h", at_s, cpu=1.5) for at_s in (1004.5, 1003.5)]
    lines = b"".join(msgspec.json.encode(sample) + b"\n" for sample in samples)
    (folder / "telemetry.jsonl").write_bytes(lines + lines[:40])
    export_run("r1", tmp_path / "demo.jsonl")
    facts = read_recording(tmp_path / "demo.jsonl").facts
    measured = [fact.sample.at_s for fact in facts if isinstance(fact, Measured)]
    assert measured == [1003.5, 1004.5]
    times = [at_s for at_s, _ in in_time(facts)]
    assert times == sorted(times)


def test_of_long_outputs_the_end_is_kept_and_the_head_tells_so(tmp_path: Path) -> None:
    folder = ledger("r1", [submitted(), started(), TrialCreated(0, {"lr": 1.0}, 1002.0), begun(0)])
    (folder / "logs" / "r1-1-1.log").write_text("".join(f"line {n}\n" for n in range(100_000)))
    recording = record_run("r1")
    lines = [line for fact in recording.facts if isinstance(fact, Printed) for line in fact.lines]
    assert lines[-1] == "line 99999"
    assert sum(map(len, lines)) < 10_000
    assert recording.head.left_out == ("the beginning of long outputs",)


def test_of_too_many_reports_every_other_one_and_the_last_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(write, "MAX_REPORTS", 10)
    reports: list[Event] = [reported(0, step=step, acc=0.1) for step in range(1, 36)]
    head: list[Event] = [submitted(), started(), TrialCreated(0, {"lr": 1.0}, 1002.0), begun(0)]
    ledger("r1", [*head, *reports])
    recording = record_run("r1")
    steps = [fact.step for fact in recording.facts if isinstance(fact, Reported)]
    assert steps == [4, 8, 12, 16, 20, 24, 28, 32, 35]
    assert recording.head.left_out == ("26 of 35 reports",)


def test_clocks_that_differ_do_not_change_the_order(tmp_path: Path) -> None:
    late = AttemptStarted(0, 1, 5000.0, "ahead", 1, "x.log", 0)
    events: list[Event] = [submitted(), started(), TrialCreated(0, {"lr": 1.0}, 1002.0)]
    events += [late, reported(0), ended(0, value=1.0)]
    ledger("r1", events)
    facts = [fact for fact in record_run("r1").facts if not isinstance(fact, Printed)]
    assert facts == events


# -- bad input ---------------------------------------------------------------------------------


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _head(path: Path, **fields: object) -> None:
    lines = path.read_text().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), **fields})
    path.write_text("\n".join(lines) + "\n")


def _replace(number: int, text: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        lines = path.read_text().splitlines()
        lines[number - 1] = text
        path.write_text("\n".join(lines) + "\n")

    return change


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (lambda path: path.unlink(), "there is no such file; `%runs export"),
    "empty": (lambda path: path.write_text(""), "first line is not the head"),
    "image": (
        lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n\x00"),
        "first line is not the head",
    ),
    "ledger": (
        lambda path: path.write_bytes(b"DDLEDGER\x01\x00\x00\x00"),
        "first line is not the head",
    ),
    "events only": (_replace(1, '{"type": "notice"}'), "first line is not the head"),
    "newer": (
        lambda path: _head(path, format=9, version="7.1.0"),
        r"format 9, written by jupyter_ddl 7\.1\.0; this one knows up to 1: install",
    ),
    "odd head": (lambda path: _head(path, origin="dreamt"), "its head is damaged .*dreamt"),
    "cut": (_cut, r"line 21, its last one, is cut off; copy it again"),
    "damaged": (_replace(5, "{"), "line 5 is not a fact of a run: no JSON"),
    "list": (_replace(5, "[1]"), "line 5 is not a fact of a run"),
    "number": (_replace(5, "7"), "line 5 is not a fact of a run"),
    "unknown": (_replace(5, '{"type": "dance"}'), "line 5 is not a fact of a run.*dance"),
    "short": (_replace(5, '{"type": "reported"}'), "line 5 is not a fact of a run.*missing"),
    "deep": (_replace(5, "[" * 100_000), "line 5 is not a fact of a run"),
    "headless": (_replace(2, ""), "its second line is RunStarted, expected RunSubmitted"),
    "only head": (
        lambda path: path.write_text(path.read_text().split("\n")[0] + "\n"),
        "its second line is nothing, expected RunSubmitted",
    ),
    "directory": (lambda path: (path.unlink(), path.mkdir())[0], "Is a directory"),
    "torn gzip": (
        lambda path: path.write_bytes(gzip.compress(path.read_bytes())[:-30]),
        "packed content is cut off or damaged",
    ),
    "no gzip": (lambda path: path.write_bytes(b"\x1f\x8bnonsense here"), "packed content is cut"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_can_not_be_read_is_refused_in_one_line_with_the_file_and_a_code(
    tmp_path: Path, name: str
) -> None:
    path = written(tmp_path, twenty_events())
    change, message = BROKEN[name]
    change(path)
    with pytest.raises(RecordingError, match=message) as caught:
        read_recording(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    assert text.endswith("[DDL-5004]")


def test_a_file_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(b" " * 3_000_000))
    monkeypatch.setattr("jupyter_ddl.recording.lines.MAX_FILE_BYTES", 1 << 20)
    with pytest.raises(RecordingError, match="more than 1 MiB"):
        read_recording(path)


def test_facts_that_do_not_follow_from_each_other_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, [submitted(), begun(3), ended(3)])
    assert last_snapshot(read_recording(path)).counts.finished == 0  # late events change nothing
    bad = recording_of([submitted(search_spec())])
    with pytest.raises(RecordingError, match=r"playing the recording of run r1 failed.*RunStarted"):
        last_snapshot(Recording(bad.head, (started(),)))


def test_a_file_that_is_there_is_left_alone_unless_it_may_be_replaced(tmp_path: Path) -> None:
    ledger("r1", twenty_events())
    target = tmp_path / "demo.html"
    target.write_text("mine")
    with pytest.raises(RecordingError, match="it exists already; give another name, or --over"):
        export_run("r1", target)
    assert target.read_text() == "mine"
    assert "A page that plays run r1 is in" in export_run("r1", target, overwrite=True)
    assert target.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere/demo.jsonl", "No such file or directory; give a place"),
        ("demo.csv", r"ends in '\.csv'; expected \.jsonl, \.jsonl\.gz, \.html"),
        ("demo", r"ends in 'nothing'; expected"),
    ],
)
def test_a_place_that_can_not_be_written_is_refused(
    tmp_path: Path, name: str, message: str
) -> None:
    ledger("r1", twenty_events())
    with pytest.raises(RecordingError, match=message):
        export_run("r1", tmp_path / name)
    assert [each for each in tmp_path.iterdir() if each.is_file()] == []


def test_a_run_that_is_not_there_is_refused() -> None:
    with pytest.raises(LedgerError, match="r404"):
        export_run("r404", "x.jsonl")
