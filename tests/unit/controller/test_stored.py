"""What a controller tells a mirror of its home, and takes from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
import pytest

from jupyter_ddl.errors import (
    CapacityError,
    JupyterDDLError,
    LedgerBusyError,
    ProtocolError,
    RunNotFoundError,
    SpecError,
)
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import RunSubmitted
from jupyter_ddl.protocol.mirroring import (
    PART_BYTES,
    FilePart,
    FindBlobs,
    GiveBlob,
    GiveRunFile,
    ListRunFiles,
    ListRuns,
    MissingBlobs,
    ReadBlob,
    ReadRunFile,
    RemoveRun,
    RunFilesResult,
    RunMark,
    RunsResult,
)
from jupyter_ddl.protocol.replies import Accepted
from jupyter_ddl.store.blobs import digest_of
from jupyter_ddl.store.tree import Tree
from tests.unit.mirror.elsewhere import Elsewhere, Mirror, naming, spec_of

Work = Callable[[Elsewhere], Awaitable[None]]


@pytest.fixture
def asked(tmp_path: Path) -> Callable[[Work], None]:
    def run(work: Work) -> None:
        async def main() -> None:
            async with asyncio.timeout(60):
                await work(Elsewhere(tmp_path))

        asyncio.run(main())

    return run


def test_runs_are_listed_with_what_of_their_ledgers_is_whole(asked: Callable[[Work], None]) -> None:
    async def work(there: Elsewhere) -> None:
        for run_id in ("r1", "r2", "r3", "r4"):
            there.begin(run_id)
        there.driven = {"r1"}
        whole = there.ledger("r2").stat().st_size
        there.record(naming("a")[:-3], "r2")  # torn
        damaged = naming("a")[:-1] + b"!" + naming("b")
        there.record(damaged, "r3")
        there.ledger("r4").unlink()  # it is being given
        there.begin("r5", is_driven=False)
        there.ledger("r5").write_bytes(b"no ledger at all")
        (there.runs / "file").touch()
        (there.runs / "link").symlink_to(there.runs / "r1")
        for _ in range(2):
            result = await there.ask(ListRuns())
            assert result == RunsResult(
                (
                    RunMark("r1", there.ledger("r1").stat().st_size, True),
                    RunMark("r2", whole, False),
                    RunMark("r3", whole, False),
                    RunMark("r5", 0, False),
                ),
                "home 1",
            )
        there.record(naming("a")[-3:], "r2")
        listed = await there.ask(ListRuns())
        assert isinstance(listed, RunsResult)
        assert listed.runs[1].ledger_bytes == whole + len(naming("a"))

    asked(work)


def test_the_files_of_a_run_are_listed_behind_its_mark(asked: Callable[[Work], None]) -> None:
    async def work(there: Elsewhere) -> None:
        there.begin()
        there.write("values/v", b"12345")
        (there.runs / "r1/values/.partial-1").write_bytes(b"half")
        (there.runs / "r1/ledger.ddl.lock").touch()
        (there.runs / "r1/logs").symlink_to("/etc")
        found = await there.ask(ListRunFiles("r1"))
        assert isinstance(found, RunFilesResult)
        assert [(file.path, file.size_bytes) for file in found.files] == [("values/v", 5)]
        ledger = there.ledger("r1").read_bytes()
        assert found.mark == RunMark("r1", len(ledger), True)
        assert found.ledger_crc == crc32(ledger[-4096:])
        with pytest.raises(RunNotFoundError, match="the controller has no run r9"):
            await there.ask(ListRunFiles("r9"))

    asked(work)


def test_what_is_told_while_files_are_listed_is_behind_the_mark(
    asked: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(there: Elsewhere) -> None:
        there.begin(is_driven=False)
        mark = there.ledger("r1").stat().st_size
        files = Tree.files

        def late(tree: Tree) -> Any:
            yield from files(tree)
            there.write("values/v", b"v")
            there.record(naming("values/v"))

        monkeypatch.setattr(Tree, "files", late)
        found = await there.ask(ListRunFiles("r1"))
        assert isinstance(found, RunFilesResult)
        assert (found.mark.ledger_bytes, found.files) == (mark, ())

    asked(work)


def test_of_a_ledger_only_what_is_committed_is_read(asked: Callable[[Work], None]) -> None:
    async def work(there: Elsewhere) -> None:
        there.begin()
        committed = there.ledger("r1").stat().st_size
        there.stored._driven = lambda: {"r1": committed}
        there.record(naming("a"))  # in the file, and not committed yet
        part = await there.ask(ReadRunFile("r1", "ledger.ddl", 4))
        assert isinstance(part, FilePart)
        assert (len(part.data), part.size_bytes) == (committed - 4, committed)
        there.stored._driven = dict
        part = await there.ask(ReadRunFile("r1", "ledger.ddl", committed))
        assert isinstance(part, FilePart)
        assert part.data == naming("a")
        there.record(naming("b")[:5])  # torn
        part = await there.ask(ReadRunFile("r1", "ledger.ddl", committed))
        assert isinstance(part, FilePart)
        assert part.data == naming("a")

    asked(work)


def test_a_part_is_read_where_the_file_is_the_one_that_was_read_before(
    asked: Callable[[Work], None],
) -> None:
    async def work(there: Elsewhere) -> None:
        there.begin()
        data = bytes(range(256)) * 40
        there.write("logs/a.log", data)

        async def read(*args: Any) -> FilePart:
            part = await there.ask(ReadRunFile("r1", "logs/a.log", *args))
            assert isinstance(part, FilePart)
            return part

        assert (await read()).data == data
        assert (await read(5000, 10, crc32(data[904:5000]))).data == data[5000:5010]
        assert (await read(3, 2, crc32(data[:3]))).data == data[3:5]
        other = await read(5000, 10, 1)
        assert (other.data, other.is_other, other.size_bytes) == (b"", True, len(data))
        assert (await read(len(data), 10, crc32(data[-4096:]))) == msgspec.structs.replace(
            other, is_other=False
        )
        assert (await read(len(data) + 1, 10, crc32(data[-4096:]))).is_other
        assert (await read(1 << 62)).data == b""
        assert (await read(0, -5)).data == b""
        there.write("logs/a.log", bytes(PART_BYTES + 1) + b"x")
        assert len((await read(0, 1 << 40)).data) == PART_BYTES
        with pytest.raises(SpecError, match="reading from byte -1 failed"):
            await read(-1)

    asked(work)


@pytest.mark.parametrize(
    "path",
    ["ledger.ddl.lock", "values/.partial-1", "link/secret", "values/secret", "values", "none"],
)
def test_what_is_no_file_of_a_run_is_neither_read_nor_written(
    asked: Callable[[Work], None], path: str, tmp_path: Path
) -> None:
    async def work(there: Elsewhere) -> None:
        there.begin(is_driven=False)
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "secret").write_bytes(b"secret")
        values = there.runs / "r1/values"
        values.mkdir()
        (there.runs / "r1/ledger.ddl.lock").write_bytes(b"")
        (values / ".partial-1").write_bytes(b"half")
        (values / "secret").symlink_to(outside / "secret")
        (there.runs / "r1/link").symlink_to(outside)
        with pytest.raises(RunNotFoundError, match="has no file"):
            await there.ask(ReadRunFile("r1", path))
        if path != "none":
            with pytest.raises(SpecError):
                await there.ask(GiveRunFile("r1", path, 0, b"new", is_last=True))
        assert (outside / "secret").read_bytes() == b"secret"
        assert [each.name for each in outside.iterdir()] == ["secret"]

    asked(work)


def test_paths_that_lead_elsewhere_do_not_even_arrive(asked: Callable[[Work], None]) -> None:
    async def work(there: Elsewhere) -> None:
        for run_id, path in (("r1", "../x"), ("r1", "/etc/passwd"), ("../r1", "x"), ("r1", "a\0b"),
                             ("", "x"), ("r1", ""), (".", "x"), ("r1", "a/./b")):  # fmt: skip
            with pytest.raises(msgspec.ValidationError):
                await there.ask(ReadRunFile(run_id, path))
            with pytest.raises(msgspec.ValidationError):
                await there.ask(GiveRunFile(run_id, path, 0, b"", is_last=True))
        for digest in ("../" + "a" * 61, "x" * 64, "a" * 63, "A" * 64, "a" * 64 + ".intact"):
            with pytest.raises(msgspec.ValidationError):
                await there.ask(ReadBlob(digest))
            with pytest.raises(msgspec.ValidationError):
                await there.ask(FindBlobs((digest,)))

    asked(work)


def test_a_file_is_kept_with_its_last_part(asked: Callable[[Work], None]) -> None:
    async def work(there: Elsewhere) -> None:
        path = there.runs / "r1/values/v"
        assert (
            await there.ask(GiveRunFile("r1", "values/v", 0, b"abc", is_last=False)) == Accepted()
        )
        with pytest.raises(ProtocolError, match=r"a part at byte 5 came behind 3 bytes"):
            await there.ask(GiveRunFile("r1", "values/v", 5, b"x", is_last=True))
        assert list(path.parent.iterdir()) == []
        with pytest.raises(ProtocolError, match="begin again at 0"):
            await there.ask(GiveRunFile("r1", "values/v", 3, b"def", is_last=True))
        await there.ask(GiveRunFile("r1", "values/v", 0, b"abc", is_last=False))
        await there.ask(GiveRunFile("r1", "values/v", 3, b"def", is_last=True, n_zeros=2))
        assert path.read_bytes() == b"abc\0\0def"
        with pytest.raises(SpecError, match="there is something of that name"):
            await there.ask(GiveRunFile("r1", "values/v", 0, b"new", is_last=True))
        with pytest.raises(SpecError):
            await there.ask(GiveRunFile("r1", "values/v/w", 0, b"new", is_last=True))
        assert path.read_bytes() == b"abc\0\0def"
        assert [each.name for each in path.parent.iterdir()] == ["v"]
        await there.ask(GiveRunFile("r1", "values/empty", 0, b"", is_last=True))
        assert (path.parent / "empty").read_bytes() == b""

    asked(work)


def test_two_that_give_the_same_file_are_not_mixed(asked: Callable[[Work], None]) -> None:
    async def work(there: Elsewhere) -> None:
        one, two = Mirror(), Mirror()
        give = there.stored.answer
        await give(GiveRunFile("r1", "v", 0, b"one", False), one)
        await give(GiveRunFile("r1", "v", 0, b"two", False), two)
        await give(GiveRunFile("r1", "v", 3, b"ONE", True), one)
        with pytest.raises(SpecError):
            await give(GiveRunFile("r1", "v", 3, b"TWO", True), two)
        assert [each.name for each in (there.runs / "r1").iterdir()] == ["v"]
        assert (there.runs / "r1/v").read_bytes() == b"oneONE"

    asked(work)


def test_what_a_mirror_had_begun_goes_with_it(asked: Callable[[Work], None]) -> None:
    async def work(there: Elsewhere) -> None:
        mirror = Mirror()
        digest = digest_of(b"abcdef")
        await there.stored.answer(GiveRunFile("r1", "v", 0, b"one", False), mirror)
        await there.stored.answer(GiveBlob(digest, 0, b"abc", False), mirror)
        assert len([*(there.runs / "r1").iterdir(), *there.blobs.iterdir()]) == 2
        mirror.is_closed = True
        there.stored.closed(mirror)
        assert [*(there.runs / "r1").iterdir(), *there.blobs.iterdir()] == []
        with pytest.raises(ProtocolError, match="v of run r1 is not taken: its giver is gone"):
            await there.stored.answer(GiveRunFile("r1", "v", 0, b"one", False), mirror)
        there.stored.closed(mirror)

    asked(work)


def test_a_ledger_is_kept_only_whole_and_of_its_run(asked: Callable[[Work], None]) -> None:
    async def work(there: Elsewhere) -> None:
        there.begin("r1")
        good = there.ledger("r1").read_bytes() + naming("a")
        bad = {
            "torn": good[:-1],
            "flipped": good[:-1] + b"!",
            "empty": b"",
            "of another run": good,
            "not a ledger": b"x" * 100,
            "header alone": good[:16],
        }
        for what, data in bad.items():
            with pytest.raises(JupyterDDLError):
                await there.ask(GiveRunFile("r2", "ledger.ddl", 0, data, is_last=True))
            assert not there.ledger("r2").exists(), what
        assert [*there.runs.rglob(".partial-*")] == []
        mine = there.runs / "r3.ddl"
        with LedgerWriter.open(mine, create=True) as ledger:
            ledger.append([RunSubmitted(spec_of("r3"), 1000.0)])
        await there.ask(GiveRunFile("r3", "ledger.ddl", 0, mine.read_bytes(), is_last=True))
        LedgerWriter.open(there.ledger("r3")).close()

    asked(work)


def test_a_run_that_is_driven_is_neither_given_nor_removed(asked: Callable[[Work], None]) -> None:
    async def work(there: Elsewhere) -> None:
        there.begin()
        with pytest.raises(LedgerBusyError, match="its controller drives that run"):
            await there.ask(GiveRunFile("r1", "v", 0, b"v", is_last=True))
        there.driven.clear()
        writer = LedgerWriter.open(there.ledger("r1"))
        with pytest.raises(LedgerBusyError, match="run r1 is still active"):
            await there.ask(RemoveRun("r1"))
        writer.close()
        await there.ask(RemoveRun("r1"))
        assert [*there.runs.iterdir()] == []
        with pytest.raises(RunNotFoundError):
            await there.ask(RemoveRun("r1"))
        (there.runs / "r2").symlink_to(there.blobs)
        with pytest.raises(RunNotFoundError):
            await there.ask(RemoveRun("r2"))
        assert there.blobs.is_dir()

    asked(work)


def test_a_blob_is_there_when_its_content_is_what_its_name_says(
    asked: Callable[[Work], None],
) -> None:
    async def work(there: Elsewhere) -> None:
        data = bytes(range(256)) * 5000
        digest = digest_of(data)
        assert await there.ask(FindBlobs((digest,))) == MissingBlobs((digest,))
        with pytest.raises(RunNotFoundError, match="is not in the controller's store"):
            await there.ask(ReadBlob(digest))
        parts = [(at, data[at : at + PART_BYTES]) for at in range(0, len(data), PART_BYTES)]

        async def give(changed: bytes) -> None:
            # One behind the other without waiting, as over a link.
            await asyncio.gather(
                there.ask(GiveBlob(digest, 0, parts[0][1], False)),
                there.ask(GiveBlob(digest, parts[1][0], changed, True)),
            )

        with pytest.raises(ProtocolError, match="were changed on their way"):
            await give(parts[1][1][:-1] + b"!")
        assert [*there.blobs.iterdir()] == []
        await give(parts[1][1])
        assert await there.ask(FindBlobs((digest,))) == MissingBlobs(())
        part = await there.ask(ReadBlob(digest, 5, 10))
        assert isinstance(part, FilePart)
        assert (part.data, part.size_bytes) == (data[5:15], len(data))
        await give(parts[1][1])  # again does no harm
        (there.blobs / digest).write_bytes(b"damaged")
        assert await there.ask(FindBlobs((digest,))) == MissingBlobs((digest,))

    asked(work)


def test_a_full_disk_there_is_told(
    asked: Callable[[Work], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    async def work(there: Elsewhere) -> None:
        monkeypatch.setattr("jupyter_ddl.store.tree.write_at", full)
        for body in (GiveRunFile("r1", "v", 0, b"v", True), GiveBlob("a" * 64, 0, b"v", True)):
            with pytest.raises(CapacityError, match=r"No space left on device.*make room in its"):
                await there.ask(body)
        assert [*there.blobs.iterdir(), *(there.runs / "r1").iterdir()] == []

    asked(work)


def test_looking_is_no_use_of_the_cluster_and_giving_is(tmp_path: Path, home: Any) -> None:
    from jupyter_ddl.controller.handlers import Requests

    class Lease:
        touched = 0

        def touch(self, _: float) -> None:
            self.touched += 1

    class Nobody:
        driven: dict[str, int] = {}

        def unwatch(self, _: object) -> None:
            return None

    class Service:
        lease, runs, groups = Lease(), Nobody(), Nobody()

    async def main() -> None:
        service: Any = Service()
        requests = Requests(service, tmp_path / "log", lambda _: None)
        session: Any = Mirror()
        digest = digest_of(b"v")
        looks = (ListRuns(), ListRunFiles("r1"), ReadRunFile("r1", "v"), FindBlobs((digest,)))
        await requests.handle(GiveRunFile("r1", "v", 0, b"v", True), session)
        await requests.handle(GiveBlob(digest, 0, b"v", True), session)
        assert service.lease.touched == 2
        for body in (*looks, ReadBlob(digest)):
            assert await requests.handle(body, session) is not None
        assert service.lease.touched == 2
        await requests.handle(GiveBlob(digest_of(b"w"), 0, b"w", False), session)
        requests.closed(session)

    asyncio.run(main())
    assert not [*home.data.rglob(".partial-*")]
