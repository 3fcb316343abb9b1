"""What a run is made of is lost: it pauses with a sentence, and nothing is burnt meanwhile."""

from __future__ import annotations

import asyncio
import os

import msgspec
import pytest

from jupyter_ddl.controller.blob_care import room_for_copies
from jupyter_ddl.driving.machine import (
    Answered,
    Arrived,
    Ask,
    Begun,
    Committed,
    Ended,
    Instruction,
    KeepBlobs,
    LookForBlobs,
    Now,
    Record,
    Replay,
    Send,
    WaitUntil,
    Woken,
)
from jupyter_ddl.driving.run_blobs import RunBlobs, disk_budget, lost_text
from jupyter_ddl.driving.trials import TrialMachine
from jupyter_ddl.errors import OptionError
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Failure,
    Notice,
    RunSubmitted,
)
from jupyter_ddl.protocol.program import CapturedName, ModuleFile, Program, Settings
from jupyter_ddl.protocol.run import Provenance, RunSpec
from jupyter_ddl.store.blobs import LARGE_BYTES, digest_of, find_blob, keep_blobs, put_blob
from jupyter_ddl.store.paths import blob_dirs, ledger_path, memory_blob_dir, run_dir
from jupyter_ddl.verbs.map import Map
from tests.unit.driving.test_machine import NOW, machine_of, sent

LARGE = bytes(LARGE_BYTES)
LOST = "this host no longer has `X`"


def _asked(instructions: list[Instruction], kind: type) -> int:
    (question,) = [
        each.question
        for each in instructions
        if isinstance(each, Ask) and isinstance(each.work, kind)
    ]
    return question


def _notices(instructions: list[Instruction]) -> list[str]:
    events = [event for each in instructions if isinstance(each, Record) for event in each.events]
    return [event.text for event in events if isinstance(event, Notice)]


def _resumed() -> tuple[TrialMachine, int]:
    """A machine in its second session that may send, and its question for blobs."""
    machine = machine_of()
    machine.state.session = 1
    machine = TrialMachine(
        machine.spec, machine._source, machine._policy, machine.state, machine._context
    )
    (record, _) = machine.handle(Begun(), NOW)
    assert isinstance(record, Record)
    asked = machine.handle(Committed(record.events), NOW)
    after = machine.handle(Answered(_asked(asked, Replay)), NOW)
    assert sent(after) == []  # not before it is known that all is there
    return machine, _asked(asked, LookForBlobs)


def test_a_resumed_run_sends_nothing_before_all_is_there() -> None:
    machine, question = _resumed()
    assert len(sent(machine.handle(Answered(question, ""), NOW))) == 1


def test_a_resumed_run_that_lacks_something_pauses_looks_again_and_goes_on() -> None:
    machine, question = _resumed()
    told = machine.handle(Answered(question, LOST), NOW)
    assert sent(told) == []
    assert _notices(told) == [LOST]
    assert machine.paused(NOW) == LOST
    (wait,) = [each for each in told if isinstance(each, WaitUntil)]
    assert wait.at_s is not None
    later = Now(wait.at_s, 1000.0)
    question = _asked(machine.handle(Woken(), later), LookForBlobs)
    told = machine.handle(Answered(question, LOST), later)
    assert (sent(told), _notices(told)) == ([], [])  # told once
    later = Now(wait.at_s + 1.0, 1000.0)
    question = _asked(machine.handle(Woken(), later), LookForBlobs)
    back = machine.handle(Answered(question, ""), later)
    assert len(sent(back)) == 1
    assert _notices(back) == ["all that the run is made of is there again: it goes on"]
    assert machine.paused(later) == ""


def test_an_attempt_that_lacked_something_stops_all_others_from_being_sent() -> None:
    machine = machine_of()
    (record, _) = machine.handle(Begun(), NOW)
    assert isinstance(record, Record)
    created, send, *_ = machine.handle(Committed(record.events), NOW)
    assert isinstance(created, Record)
    assert isinstance(send, Send)
    machine.handle(Committed(created.events), NOW)
    name, trial = send.assignment.assignment_id, send.assignment.trials[0]
    failure = Failure("blob", "BlobMissingError", "gone")
    events = (
        AttemptStarted(trial.trial, trial.attempt, 0.0, "w1", 1, "log", 0),
        AttemptFinished(trial.trial, trial.attempt, "evicted", 0.0, 0.1, failure=failure),
    )
    (record,) = machine.handle(Arrived(name, events), NOW)
    assert isinstance(record, Record)
    question = _asked(machine.handle(Committed(record.events), NOW), LookForBlobs)
    assert sent(machine.handle(Ended(name), NOW)) == []
    assert sent(machine.handle(Answered(question, LOST), NOW)) == []
    assert machine.paused(NOW) == LOST


def test_what_the_controller_itself_has_lost_pauses_the_run_too() -> None:
    machine = machine_of()
    (record, _) = machine.handle(Begun(), NOW)
    assert isinstance(record, Record)
    (name,) = sent(machine.handle(Committed(record.events), NOW))
    ended = machine.handle(Ended(name, "blob b is not there", lacks_blob=True), NOW)
    assert sent(ended) == []
    machine.handle(Answered(_asked(ended, LookForBlobs), LOST), NOW)
    assert machine.paused(NOW) == LOST


def test_a_run_of_small_values_asks_for_no_copies_and_one_of_large_ones_tells_what_comes() -> None:
    machine = machine_of()
    (record, _) = machine.handle(Begun(), NOW)
    assert isinstance(record, Record)
    asked = machine.handle(Committed(record.events), NOW)
    assert not [each for each in asked if isinstance(each, Ask)]
    machine = machine_of()
    program = msgspec.structs.replace(machine.spec.program, buffers=("b",))
    machine.spec = msgspec.structs.replace(machine.spec, program=program)
    (record, _) = machine.handle(Begun(), NOW)
    assert isinstance(record, Record)
    question = _asked(machine.handle(Committed(record.events), NOW), KeepBlobs)
    assert _notices(machine.handle(Answered(question, "no room"), NOW)) == ["no room"]


# -- what is lost, in words ------------------------------------------------------------------------


def _spec(program: Program, run_id: str = "r1-abc") -> RunSpec:
    provenance = Provenance(notebook="me/train.ipynb")
    verb = Map("items", "item", 1)
    return RunSpec(run_id, verb, program, 1, "c", 0.0, provenance=provenance)


@pytest.mark.usefixtures("home")
def test_what_is_lost_is_named_with_the_cell_that_brings_it_back() -> None:
    small, module = digest_of(b"payload"), digest_of(b"module")
    program = Program(
        source="",
        filename="In [12]",
        captures=(CapturedName("X", "ndarray", LARGE_BYTES), CapturedName("n", "int", 5)),
        payload=small,
        buffers=(digest_of(LARGE),),
        modules=(ModuleFile("tools.py", module, 6),),
        settings=Settings(digest_of(b"settings"), ()),
    )
    spec = _spec(program)
    for name, data in (
        ("`X`, `n`, tools.py, the notebook's settings", b"payload"),
        ("`X`, tools.py, the notebook's settings", LARGE),
        ("tools.py, the notebook's settings", b"module"),
        ("the notebook's settings", b"settings"),
    ):
        assert lost_text(spec, blob_dirs()) == (
            f"this host no longer has {name} of the run (a restart empties its shared memory): "
            f"run the cell In [12] of train.ipynb again with --resume r1-abc, and the run goes on"
        )
        keep_blobs([(digest_of(data), data)], blob_dirs())
    assert lost_text(spec, blob_dirs()) == ""


# -- copies ----------------------------------------------------------------------------------------


def _blobs(data: bytes, room: int) -> RunBlobs:
    digest = put_blob(data, blob_dirs())
    spec = _spec(Program(source="", filename="In [1]", buffers=(digest,)))
    return RunBlobs(spec, tuple(map(str, blob_dirs())), lambda _: room)


@pytest.mark.usefixtures("home")
def test_a_run_that_lasts_has_its_large_values_on_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if memory_blob_dir() is None:
        pytest.skip("this host has no shared memory directory")
    monkeypatch.setattr("jupyter_ddl.driving.run_blobs._COPY_AFTER_S", 0.0)
    blobs, disk = _blobs(LARGE, LARGE_BYTES), blob_dirs()[-1]
    assert asyncio.run(blobs.keep()) == ""
    assert find_blob(digest_of(LARGE), (disk,)) is not None
    assert asyncio.run(blobs.keep()) == ""


@pytest.mark.usefixtures("home")
def test_without_room_the_user_is_told_and_nothing_is_copied() -> None:
    if memory_blob_dir() is None:
        pytest.skip("this host has no shared memory directory")
    told = asyncio.run(_blobs(LARGE, LARGE_BYTES - 1).keep())
    assert told.startswith("1 MiB of captured values lie in shared memory only, and would not")
    assert list(blob_dirs()[-1].iterdir()) == []


@pytest.mark.usefixtures("home")
def test_copies_that_no_run_needs_make_room_the_oldest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = blob_dirs()[-1]
    old, new = (put_blob(bytes([n]) * LARGE_BYTES, (disk,)) for n in (1, 2))
    os.utime(disk / old, ns=(0, (disk / old).stat().st_mtime_ns))
    monkeypatch.setenv("JUPYTER_DDL_DISK_COPIES", str(3 * LARGE_BYTES))
    assert room_for_copies(LARGE_BYTES) == LARGE_BYTES
    assert (disk / old).exists()
    assert room_for_copies(2 * LARGE_BYTES) == 2 * LARGE_BYTES
    assert not (disk / old).exists()
    assert (disk / new).exists()
    assert room_for_copies(4 * LARGE_BYTES) == 3 * LARGE_BYTES
    needed = put_blob(bytes([3]) * LARGE_BYTES, (disk,))
    spec = _spec(Program(source="", filename="In [1]", buffers=(needed,)))
    run_dir(spec.run_id).mkdir(parents=True)
    with LedgerWriter.open(ledger_path(spec.run_id), create=True) as ledger:
        ledger.append([RunSubmitted(spec, 0.0)])
    assert room_for_copies(3 * LARGE_BYTES) == 2 * LARGE_BYTES
    assert (disk / needed).exists()


def test_a_budget_is_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUPYTER_DDL_DISK_COPIES", raising=False)
    assert disk_budget() == 20 * 10**9
    monkeypatch.setenv("JUPYTER_DDL_DISK_COPIES", "0")
    assert disk_budget() == 0
    monkeypatch.setenv("JUPYTER_DDL_DISK_COPIES", "much")
    with pytest.raises(OptionError, match="JUPYTER_DDL_DISK_COPIES: 'much' is not a size"):
        disk_budget()
