"""Names in messages of others: what would leave its folder is refused with its message."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jupyter_ddl.errors import ProtocolError
from jupyter_ddl.protocol import events as up
from jupyter_ddl.protocol.cells import CellDone, RankAddress, RankAnswer
from jupyter_ddl.protocol.codec import decode_event, encode_event
from jupyter_ddl.protocol.events import Event, EventChunk
from jupyter_ddl.protocol.fit_results import NodeResult, UnitResult
from jupyter_ddl.protocol.folder import FolderFile
from jupyter_ddl.protocol.names import is_file_name, is_written_path

HOSTILE = (
    "../../evil",
    "..",
    ".",
    "...",
    "/etc/passwd",
    "a/../../b",
    "a//b",
    "trial-0/..",
    "./a",
    "a\x00b",
    "a\nb",
    "a\\..\\b",
    "x" * 300,
    ".bashrc",
    "a/b/c/d/e/f",
)
EVENTS = (
    (up.AttemptStarted, "log", "run-0-123.log"),
    (up.RankStarted, "log", "run-0-123.log"),
    (up.RankEnded, "values_file", "trial-0-a1-r1.pkl"),
    (up.AttemptFinished, "values_file", "trial-0-a1.pkl"),
    (up.CheckpointSaved, "file", "trial-0/step--3-a1.ckpt"),
    (up.OutputShown, "file", "trial-0-a1-1.json"),
    (up.OutputShown, "shown", "trial-0-a1-1.json"),
    (up.ProfileTaken, "file", "trial-0-a1-r0.json.gz"),
    (up.CellExecuted, "outputs", "cell-1-r0-1.json"),
    (up.FoldFinished, "file", "unit-r1-1-0.pkl"),
    (up.FoldFinished, "log", "rank.log"),
)
_ENDS = up.RankEnded, up.AttemptFinished, up.CellExecuted
SAMPLES: dict[type, Any] = {int: 1, float: 1.0, str: "w0", bytes: b"k"}


def event(kind: type[Any], field: str, name: str) -> Any:
    """One of this kind, with a name in one place."""
    values: dict[str, Any] = {"outcome": "complete"} if kind in _ENDS else {}
    for each in msgspec.structs.fields(kind):
        if each.required and each.name not in values:
            base = each.type.__origin__ if hasattr(each.type, "__metadata__") else each.type
            values[each.name] = SAMPLES.get(base, ())
    for each in ("file", "log"):
        if each in values:
            values[each] = "plain"
    values[field] = (name,) if field in ("shown", "outputs") else name
    return kind(**values)


@pytest.mark.parametrize(("kind", "field", "honest"), EVENTS)
def test_an_event_with_a_name_that_leaves_its_folder_is_refused(
    kind: type[Any], field: str, honest: str
) -> None:
    good = event(kind, field, honest)
    assert decode_event(encode_event(good)) == good
    for name in HOSTILE:
        bad = msgspec.msgpack.encode(event(kind, field, name))
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(bad, type=Event)
        with pytest.raises(ProtocolError, match="another version of jupyter_ddl or is damaged"):
            decode_event(bad)


def test_a_chunk_of_a_workers_events_is_refused_as_a_whole() -> None:
    good = event(up.CheckpointSaved, "file", "trial-0/step-1-a1.ckpt")
    bad = event(up.CheckpointSaved, "file", "../ledger.ddl")
    chunk = msgspec.msgpack.encode(EventChunk("r", "a", 0, (good, bad)))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(chunk, type=EventChunk)


def test_answers_of_ranks_and_results_of_fits_are_looked_at_too() -> None:
    done = CellDone(0, 1, "complete", 1.0, 0, 1)
    for bad in (
        msgspec.structs.replace(done, values_file="../x"),
        msgspec.structs.replace(done, outputs=("a/b",)),
        RankAddress("h", 1, 1, "/srv/data/.ssh/id"),
        RankAddress("h", 1, 1, "/tmp/../jupyter_ddl-x/store"),
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(msgspec.msgpack.encode(bad), type=RankAnswer)
    for store in ("", "/proc/12/fd/7", "/var/folders/x.y/jupyter_ddl-a_b1/store"):
        address = RankAddress("h", 1, 1, store)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(address), type=RankAnswer) == address
    data = msgspec.msgpack.encode(UnitResult(file="../../x"))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(data, type=NodeResult | UnitResult)


@pytest.mark.parametrize(
    ("path", "fits"),
    [
        ("model.bin", True),
        (".hidden/..a/höhe 3 (1).txt", True),
        ("a/" * 31 + "b", True),
        ("a/" * 32 + "b", False),
        *((name, False) for name in HOSTILE[:3] if name != "..."),
        ("/etc/passwd", False),
        ("a/../b", False),
        ("a/..", False),
        ("a\nb", False),
        ("a\x00", False),
        ("a\\b", False),
        ("", False),
        ("ü" * 256, False),
        ("bad\udc80", False),
    ],
)
def test_what_user_code_has_written_keeps_its_name_and_its_folder(path: str, fits: bool) -> None:
    assert is_written_path(path) is fits
    if "\udc80" in path:
        return  # nor does it travel as text
    data = msgspec.msgpack.encode(FolderFile(path, 1))
    if fits:
        assert msgspec.msgpack.decode(data, type=FolderFile).path == path
    else:
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(data, type=FolderFile)


def test_ids_are_names() -> None:
    assert is_file_name("20260101-120000-abc")
    assert not any(is_file_name(name) for name in HOSTILE)
