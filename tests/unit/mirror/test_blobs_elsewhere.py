"""Blobs that go up before a request that names them, and come down when they are asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect as shapes

from jupyter_ddl.errors import ControllerError, ProtocolError, RunNotFoundError, StorageError
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.mirror.blobs import bring_up, digests_of, fetch_blob
from jupyter_ddl.protocol.cells import Cell
from jupyter_ddl.protocol.events import RunSubmitted
from jupyter_ddl.protocol.facts import Patch, WheelFile
from jupyter_ddl.protocol.fit import FeedFit, FitTable
from jupyter_ddl.protocol.mirroring import (
    PART_BYTES,
    CopyBody,
    FindBlobs,
    GiveBlob,
    MirrorBody,
    MissingBlobs,
    ReadBlob,
)
from jupyter_ddl.protocol.program import ModuleFile, Program, Settings
from jupyter_ddl.protocol.requests import (
    Body,
    ExecuteCell,
    GetStatus,
    OpenGroup,
    ResumeRun,
    SubmitRun,
    SyncEnvironment,
)
from jupyter_ddl.protocol.verb import load_verb
from jupyter_ddl.store.blobs import digest_of, put_blob
from jupyter_ddl.store.paths import blob_dirs, ledger_path, private_dir, run_dir
from tests.unit.mirror.elsewhere import Elsewhere, spec_of

_DIGESTS = [digest_of(b"%d" % number) for number in range(6)]


def carried() -> dict[str, Any]:
    payload, buffer, module, settings, data = _DIGESTS[:5]
    return {
        "payload": payload,
        "buffers": (buffer,),
        "modules": (ModuleFile("m.py", module, 1),),
        "settings": Settings(settings, ()),
        "data": (ModuleFile("d.csv", data, 1), ModuleFile("seen.csv", "", 1)),
    }


@pytest.fixture(autouse=True)
def own_home(home: Any) -> None:
    return None


def asked(tmp_path: Path, work: Callable[[Elsewhere], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await work(Elsewhere(tmp_path))

    asyncio.run(main())


def test_a_request_names_all_that_its_ranks_are_given() -> None:
    program = Program("x", "In [1]", **carried())
    spec = msgspec.structs.replace(spec_of("r1"), program=program)
    five = set(_DIGESTS[:5])
    assert set(digests_of(SubmitRun(spec))) == five
    assert set(digests_of(OpenGroup(spec))) == five
    assert set(digests_of(ExecuteCell("g1", Cell("x", "In [1]", **carried())))) == five
    wheels = (WheelFile("a.whl", _DIGESTS[5], 1), WheelFile("b.whl", _DIGESTS[5], 1))
    assert digests_of(SyncEnvironment(Patch(wheels=wheels))) == (_DIGESTS[5],)
    assert digests_of(GetStatus()) == ()


def test_a_part_of_a_batch_names_its_table_and_what_that_names() -> None:
    fields = carried()
    del fields["data"]
    table = FitTable("score", (), **fields)
    digest = put_blob(msgspec.msgpack.encode(table), blob_dirs())
    assert set(digests_of(FeedFit("r1", 1, 0, digest))) == {digest, *_DIGESTS[:4]}
    with pytest.raises(StorageError, match=f"blob {_DIGESTS[0]} is no longer in .*run the cell"):
        digests_of(FeedFit("r1", 1, 0, _DIGESTS[0]))
    other = put_blob(b"no table", blob_dirs())
    with pytest.raises(ProtocolError, match="is no table of fits"):
        digests_of(FeedFit("r1", 1, 0, other))


def test_a_run_that_is_resumed_names_what_is_here_of_it() -> None:
    program = Program("x", "In [1]", payload=put_blob(b"payload", blob_dirs()), buffers=("b" * 64,))
    assert digests_of(ResumeRun("r1")) == ()
    private_dir(run_dir("r1"))
    with LedgerWriter.open(ledger_path("r1"), create=True) as ledger:
        spec = msgspec.structs.replace(spec_of("r1"), program=program)
        ledger.append([RunSubmitted(spec, 1000.0)])
    assert digests_of(ResumeRun("r1")) == (program.payload,)


def _carriers(shape: Any, seen: set[Any]) -> set[str]:
    """Fields of a message, at any depth, that tell of blobs."""
    found = set()
    for part in getattr(shape, "types", ()) or ():
        found |= _carriers(part, seen)
    for name in ("item_type", "key_type", "value_type"):
        if (inner := getattr(shape, name, None)) is not None:
            found |= _carriers(inner, seen)
    for inner in getattr(shape, "item_types", ()) or ():
        found |= _carriers(inner, seen)
    if isinstance(shape, shapes.StructType) and shape.cls not in seen:
        seen.add(shape.cls)
        for field in shape.fields:
            if field.name in ("payload", "buffers", "digest", "digests", "blob", "table"):
                found.add(f"{shape.cls.__name__}.{field.name}")
            found |= _carriers(field.type, seen)
    return found


def test_no_request_names_blobs_that_a_mirror_does_not_know_of() -> None:
    found = {
        kind.__name__: told
        for kind in get_args(Body)
        if kind not in (*get_args(MirrorBody), *get_args(CopyBody))
        if (told := _carriers(shapes.type_info(kind), set()))
    }
    # A verb's own options are read later, and name none; a package's digest is no blob's.
    assert found.keys() == {"SubmitRun", "OpenGroup", "ExecuteCell", "FeedFit", "SyncEnvironment"}
    assert set().union(*found.values()) == {
        "Program.payload", "Program.buffers", "Cell.payload", "Cell.buffers", "Settings.blob",
        "ModuleFile.digest", "FeedFit.table", "WheelFile.digest", "PackageContents.digest",
    }  # fmt: skip


def test_no_verb_names_blobs_itself() -> None:
    for word in ("search", "map", "run", "ddp", "fit"):
        assert _carriers(shapes.type_info(load_verb(word)), set()) == set(), word


def test_what_the_controller_lacks_goes_up_in_parts_and_the_rest_does_not(tmp_path: Path) -> None:
    large = bytes(range(256)) * (12 * PART_BYTES // 256) + b"end"
    digests = [put_blob(data, blob_dirs()) for data in (large, b"", b"known")]

    async def work(there: Elsewhere) -> None:
        put_blob(b"known", (there.blobs,))
        n_under_way = n_most = 0

        async def ask(body: Body) -> Any:
            nonlocal n_under_way, n_most
            n_under_way += 1
            n_most = max(n_most, n_under_way)
            try:
                return await there.ask(body)
            finally:
                n_under_way -= 1

        told: list[tuple[int, int]] = []
        await bring_up(ask, digests, lambda *done: told.append(done))
        assert await there.ask(FindBlobs(tuple(digests))) == MissingBlobs(())
        assert there.asked.count("GiveBlob") == 14
        assert 1 < n_most <= 4
        assert told[-1] == (len(large), len(large))
        assert told == sorted(told)
        there.asked.clear()
        await bring_up(ask, digests)
        await bring_up(ask, ())
        assert there.asked == ["FindBlobs"]

    asked(tmp_path, work)


def test_what_is_neither_there_nor_here_is_told(tmp_path: Path) -> None:
    async def work(there: Elsewhere) -> None:
        with pytest.raises(StorageError, match=f"blob {_DIGESTS[0]} is no longer in"):
            await bring_up(there.ask, _DIGESTS[:1])

    asked(tmp_path, work)


def test_a_link_that_breaks_leaves_nothing_half(tmp_path: Path) -> None:
    digest = put_blob(bytes(range(200)) * (PART_BYTES // 25), blob_dirs())

    async def work(there: Elsewhere) -> None:
        def break_off(body: Body) -> None:
            if isinstance(body, GiveBlob) and body.offset == 6 * PART_BYTES:
                there.break_link()

        there.on_ask = break_off
        with pytest.raises(ControllerError):
            await bring_up(there.ask, [digest])
        assert [*there.blobs.iterdir()] == []

        def break_once(body: Body) -> None:
            if isinstance(body, GiveBlob) and body.offset == 6 * PART_BYTES:
                there.on_ask = lambda _: None
                there.break_link()

        there.on_ask = break_once
        await bring_up(there.ask, [digest])
        assert await there.ask(FindBlobs((digest,))) == MissingBlobs(())

    asked(tmp_path, work)


def test_a_blob_comes_down_whole_or_not_at_all(tmp_path: Path) -> None:
    data = bytes(range(256)) * (9 * PART_BYTES // 256) + b"end"

    async def work(there: Elsewhere) -> None:
        digest = put_blob(data, (there.blobs,))
        disk = blob_dirs()[-1]

        def break_off(body: Body) -> None:
            if isinstance(body, ReadBlob) and body.offset > 5 * PART_BYTES:
                raise ControllerError("the controller is gone")

        there.on_ask = break_off
        with pytest.raises(ControllerError):
            await fetch_blob(there.ask, digest)
        assert [*disk.iterdir()] == []
        there.on_ask = lambda _: None
        told: list[tuple[int, int]] = []
        path = await fetch_blob(there.ask, digest, lambda *done: told.append(done))
        assert path.read_bytes() == data
        assert told[-1] == (len(data), len(data))
        there.asked.clear()
        assert await fetch_blob(there.ask, digest) == path
        assert there.asked == []
        with pytest.raises(RunNotFoundError):
            await fetch_blob(there.ask, _DIGESTS[0])

    asked(tmp_path, work)
