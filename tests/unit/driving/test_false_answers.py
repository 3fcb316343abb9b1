"""What a worker answers is looked at: one that sends something else counts as lost."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from jupyter_ddl.driving.calls import WorkerLostError, call_worker
from jupyter_ddl.driving.dispatcher import Dispatcher
from jupyter_ddl.driving.file_sync import FileTransfer
from jupyter_ddl.protocol.events import AssignmentResult, CheckpointSaved, EventChunk, Notice
from jupyter_ddl.protocol.folder import FolderFile
from tests.unit.driving.test_gone_worker import _ASSIGNMENT


class Answers:
    """A scheduler's client whose worker answers by the function's name."""

    scheduler = cluster = None

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    async def run(self, function: Any, *args: Any, workers: Any, on_error: str) -> dict[str, Any]:
        return {workers[0]: self._answers[function.__name__]}

    def submit(self, function: Any, *args: Any, **options: Any) -> Answers:
        return self

    async def result(self) -> Any:
        return self._answers["execute_assignment"]

    def release(self) -> None: ...


class Reached(Answers):
    scheduler = object()


def chunk(*events: Any) -> bytes:
    return msgspec.msgpack.encode(EventChunk("r1", "r1-1", 0, events))


EVIL = chunk(CheckpointSaved(0, 1, 1, "../../evil", 4, 0.0))
ONE = msgspec.msgpack.encode(AssignmentResult("r1-1", 1))


def test_a_false_chunk_is_left_out_and_asked_for_again() -> None:
    told: list[Any] = []
    honest = Notice(1.0, "all is well")
    dispatcher = Dispatcher(Reached(execute_assignment=ONE, replay=[chunk(honest)]), "events")

    async def run() -> None:
        running = asyncio.create_task(dispatcher.execute(_ASSIGNMENT, "a", told.extend))
        await asyncio.sleep(0)
        dispatcher._on_message(EVIL)
        await running

    asyncio.run(run())
    assert told == [honest]


@pytest.mark.parametrize(
    "answers",
    [
        {"execute_assignment": ONE, "replay": [EVIL]},
        {"execute_assignment": ONE, "replay": ["text"]},
        {"execute_assignment": ONE, "replay": None},
        {"execute_assignment": b"\xc1", "replay": []},
        {"execute_assignment": {"n_chunks": 1}, "replay": []},
    ],
)
def test_a_worker_that_sends_something_else_counts_as_lost(answers: dict[str, Any]) -> None:
    dispatcher = Dispatcher(Reached(**answers), "events")
    with pytest.raises(WorkerLostError, match="worker a sent what this controller does not take"):
        asyncio.run(dispatcher.execute(_ASSIGNMENT, "a", lambda events: None))


@pytest.mark.parametrize("answer", ["text", None, {"a": 1}, [1], b"\xc1", object()])
def test_answers_have_the_type_that_was_asked_for(answer: Any) -> None:
    def asked() -> None: ...

    client = Reached(asked=answer)
    with pytest.raises(WorkerLostError, match="does not take"):
        asyncio.run(call_worker(client, "a", asked, gives=tuple[bytes, int]))


def test_a_list_of_files_with_a_way_out_is_not_taken(tmp_path: Any) -> None:
    listed = msgspec.msgpack.encode([FolderFile("fine", 1), FolderFile("/etc/passwd", 1)])
    transfer = FileTransfer(Reached(list_written=listed))
    with pytest.raises(WorkerLostError, match="does not take"):
        asyncio.run(transfer.list_written("a", "r1"))


def test_a_file_that_never_ends_ends(tmp_path: Any) -> None:
    transfer = FileTransfer(Reached(read_part=(b"", 10)))
    assert not asyncio.run(transfer.fetch("a", "r1", tmp_path, "values/x.pkl"))
    assert not (tmp_path / "values" / "x.pkl").exists()
