"""Copies of runs of a controller elsewhere: what comes, what stays away, what is begun anew."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from jupyter_ddl.errors import (
    CapacityError,
    ControllerError,
    JupyterDDLError,
    LedgerBusyError,
    RunNotFoundError,
)
from jupyter_ddl.ledger.records import HEADER
from jupyter_ddl.ledger.removal import remove_directory
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.mirror.runs import RunCopies
from jupyter_ddl.protocol.mirroring import PART_BYTES, ReadRunFile
from jupyter_ddl.protocol.requests import Body
from jupyter_ddl.store.log_space import read_span
from tests.unit.mirror.elsewhere import CLUSTER, Elsewhere, contents, mirrored, naming


def test_a_run_comes_with_its_files_and_then_what_is_new(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        there.append("logs/rank-0.log", b"one\n")
        there.write("values/trial-0.pkl", b"v" * (2 * PART_BYTES + 5))
        there.record(naming("values/trial-0.pkl"))
        first = await copies.bring("r1")
        assert contents(tmp_path / "here/r1") == contents(there.runs / "r1")
        assert first.n_bytes > 2 * PART_BYTES
        there.append("logs/rank-0.log", b"two\n")
        there.record(naming("values/trial-0.pkl"))
        there.asked.clear()
        second = await copies.bring("r1")
        assert contents(tmp_path / "here/r1") == contents(there.runs / "r1")
        assert second.n_bytes < 100
        # Of what has not changed nothing is asked: the list, the log, the ledger.
        assert there.asked == ["ListRunFiles", "ReadRunFile", "ReadRunFile"]

    mirrored(tmp_path, work)


def test_files_are_here_before_the_ledger_tells_of_them(tmp_path: Path) -> None:
    seen = []

    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()

        def look(body: Body) -> None:
            if isinstance(body, ReadRunFile) and body.path == "ledger.ddl":
                seen.append(contents(tmp_path / "here/r1").get("outputs/a"))
                # Told of by a record behind the list that was taken.
                there.write("outputs/b", b"b")
                there.record(naming("outputs/b"))

        there.write("outputs/a", b"a")
        there.record(naming("outputs/a"))
        mark = there.ledger("r1").stat().st_size
        there.on_ask = look
        await copies.bring("r1")
        assert seen[0] == b"a"
        here = contents(tmp_path / "here/r1")
        assert len(here["ledger.ddl"]) == mark
        assert "outputs/b" not in here

    mirrored(tmp_path, work)


@pytest.mark.parametrize("kind", ["ListRunFiles", "ReadRunFile"])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_directory_that_is_removed_meanwhile_ends_one_copy(
    tmp_path: Path, kind: str, *, is_new: bool
) -> None:
    """Whoever brings runs goes on with the next, and the next look brings this one again."""

    async def work(there: Elsewhere, copies: RunCopies) -> None:
        def remove(body: Body) -> None:
            if type(body).__name__ == kind:
                shutil.rmtree(tmp_path / "here/r1", ignore_errors=True)

        there.begin()
        there.write("values/a", b"a")
        there.append("logs/a.log", b"a")
        if not is_new:
            await copies.bring("r1")
            there.write("values/b", b"b")
            there.append("logs/a.log", b"b")
        there.on_answer = remove
        with contextlib.suppress(JupyterDDLError):
            await copies.bring("r1")
        there.on_answer = lambda _: None
        await copies.bring("r1")
        assert contents(tmp_path / "here/r1") == contents(there.runs / "r1")

    mirrored(tmp_path, work)


def test_a_copy_that_broke_off_holds_no_lock_of_a_run_that_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of them would use up the descriptors; and removal makes room on a full disk."""

    async def work(there: Elsewhere, copies: RunCopies) -> None:
        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        there.begin()
        await copies.bring("r1")
        there.append("logs/a.log", b"a")
        there.end()
        with monkeypatch.context() as patched:
            patched.setattr("jupyter_ddl.mirror.one_run.write_at", full)
            with pytest.raises(CapacityError, match="No space left"):
                await copies.bring("r1")
        remove_directory(tmp_path / "here/r1")
        await copies.bring("r1")
        assert contents(tmp_path / "here/r1") == contents(there.runs / "r1")

    mirrored(tmp_path, work)


def test_large_files_and_checkpoints_come_when_they_are_asked_for(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        there.write("values/large", b"l" * 5000)
        there.write("checkpoints/t0-s1.pt", b"c" * 10)
        brought = await copies.bring("r1")
        assert {file.path for file in brought.absent} == {"values/large", "checkpoints/t0-s1.pt"}
        assert contents(tmp_path / "here/r1").keys() == {"ledger.ddl"}
        told: list[tuple[int, int]] = []
        path = await copies.fetch("r1", "values/large", lambda *done: told.append(done))
        assert path.read_bytes() == b"l" * 5000
        there.asked.clear()
        assert await copies.fetch("r1", "values/large") == path
        assert there.asked == ["ListRunFiles"]
        # One that was fetched stays for as long as it is what its original is.
        assert "values/large" in contents(tmp_path / "here/r1")
        await copies.bring("r1")
        assert "values/large" in contents(tmp_path / "here/r1")
        there.write("values/large", b"m" * 5000)
        await copies.bring("r1")
        assert "values/large" not in contents(tmp_path / "here/r1")
        with pytest.raises(RunNotFoundError, match="has no file values/none at its controller"):
            await copies.fetch("r1", "values/none")
        with pytest.raises(RunNotFoundError):
            await copies.fetch("r1", "ledger.ddl.lock")

    mirrored(tmp_path, work, unasked_bytes=4096)


def test_of_much_that_is_new_a_part_comes_at_once_the_small_files_first(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        for number in range(6):
            there.write(f"outputs/{number}", b"o" * (1000 + number))
        there.append("logs/a.log", b"l" * 5000)
        there.end()
        come = []
        for n_here in (3, 6):
            assert (await copies.look()).runs[0].is_changed
            brought = await copies.bring("r1")
            here = contents(tmp_path / "here/r1")
            come.append(here.keys())
            assert here["ledger.ddl"] == there.ledger("r1").read_bytes()
            assert len(brought.absent) == 6 - n_here
            assert brought.is_whole == (n_here == 6)
        assert come[0] == {"ledger.ddl", "logs/a.log", "outputs/0", "outputs/1", "outputs/2"}
        assert not (await copies.look()).runs[0].is_changed
        assert contents(tmp_path / "here/r1") == contents(there.runs / "r1")

    mirrored(tmp_path, work, unasked_bytes=3000)


def test_checkpoints_up_to_a_bound_come_unasked_where_that_is_wanted(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        there.write("checkpoints/small", b"c" * 10)
        there.write("checkpoints/large", b"c" * 11)
        brought = await copies.bring("r1")
        assert [file.path for file in brought.absent] == ["checkpoints/large"]
        assert "checkpoints/small" in contents(tmp_path / "here/r1")
        (there.runs / "r1/checkpoints/small").unlink()
        await copies.bring("r1")
        assert "checkpoints/small" not in contents(tmp_path / "here/r1")

    mirrored(tmp_path, work, checkpoint_bytes=10)


def test_progress_of_a_fetch_is_told(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        there.write("values/large", bytes(3 * PART_BYTES))
        told: list[tuple[int, int]] = []
        await copies.fetch("r1", "values/large", lambda *done: told.append(done))
        assert told[-1] == (3 * PART_BYTES, 3 * PART_BYTES)
        assert told == sorted(told)

    mirrored(tmp_path, work)


@pytest.mark.usefixtures("holes")
def test_of_a_long_log_the_end_comes_and_readers_are_told_of_the_rest(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        there.append("logs/a.log", b"x" * (1 << 20) + b"the end\n")
        brought = await copies.bring("r1")
        assert brought.n_bytes < 200_000
        path = tmp_path / "here/r1/logs/a.log"
        assert path.stat().st_size == (1 << 20) + 8
        kept = read_span(path, 0)
        assert kept.endswith(b"the end\n")
        assert b"of output were not kept" in kept
        there.append("logs/a.log", b"more\n")
        await copies.bring("r1")
        assert read_span(path, 0).endswith(b"the end\nmore\n")

    mirrored(tmp_path, work, unasked_bytes=1 << 16)


@pytest.mark.usefixtures("holes")
def test_what_was_cut_out_of_a_log_takes_nothing_on_its_way(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        path = there.runs / "r1/logs/a.log"
        path.parent.mkdir()
        with path.open("wb") as file:
            file.write(b"begin\n")
            file.seek(20 << 20)
            file.write(b"end\n")
        brought = await copies.bring("r1")
        here = tmp_path / "here/r1/logs/a.log"
        assert here.read_bytes() == path.read_bytes()
        assert here.stat().st_blocks < 200
        assert brought.n_bytes < 3 << 20

    mirrored(tmp_path, work)


def test_a_file_that_is_replaced_while_it_is_read_comes_whole(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        there.write("values/v", b"a" * (3 * PART_BYTES))
        n_asked = 0

        def replace(body: Body) -> None:
            nonlocal n_asked
            if isinstance(body, ReadRunFile) and body.path == "values/v":
                n_asked += 1
                if n_asked == 2:
                    there.write("values/v", b"b" * (3 * PART_BYTES))

        there.on_ask = replace
        await copies.bring("r1")
        assert contents(tmp_path / "here/r1")["values/v"] == b"b" * (3 * PART_BYTES)
        there.on_ask = lambda body: (
            there.write("values/v", b"a" * (3 * PART_BYTES))
            if isinstance(body, ReadRunFile)
            else None
        )
        there.write("values/v", b"c" * (3 * PART_BYTES))
        with pytest.raises(ControllerError, match="values/v of run r1 changed 4 times"):
            await copies.bring("r1")

    mirrored(tmp_path, work)


def test_a_file_that_is_gone_before_it_is_read_has_the_list_taken_anew(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        there.write("outputs/1", b"1")
        there.record(naming("outputs/1"))

        def supersede(body: Body) -> None:
            if isinstance(body, ReadRunFile):
                there.on_ask = lambda _: None
                there.write("outputs/2", b"2")
                (there.runs / "r1/outputs/1").unlink()
                there.record(naming("outputs/2"))

        there.on_ask = supersede
        await copies.bring("r1")
        assert contents(tmp_path / "here/r1") == contents(there.runs / "r1")

    mirrored(tmp_path, work)


def test_a_copy_of_a_ledger_that_was_cut_and_went_on_is_begun_anew(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        beginning = there.ledger("r1").read_bytes()
        there.record(naming("a"))
        await copies.bring("r1")
        there.ledger("r1").write_bytes(beginning)  # its end was torn
        there.record(naming("b"))
        there.record(naming("c"))
        await copies.bring("r1")
        assert contents(tmp_path / "here/r1") == contents(there.runs / "r1")
        # As long as what is here, and another one.
        there.ledger("r1").write_bytes(beginning)
        there.record(naming("d"))
        there.record(naming("e"))
        await copies.bring("r1")
        assert contents(tmp_path / "here/r1") == contents(there.runs / "r1")
        # Driven, it is the truth, however short.
        there.ledger("r1").write_bytes(beginning)
        await copies.bring("r1")
        assert contents(tmp_path / "here/r1") == contents(there.runs / "r1")

    mirrored(tmp_path, work)


def test_a_ledger_that_became_another_one_behind_the_list_is_listed_anew(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        await copies.bring("r1")
        before = there.ledger("r1").read_bytes()
        there.write("outputs/1", b"1")
        there.record(naming("outputs/1"))

        def crash(body: Body) -> None:
            if isinstance(body, ReadRunFile) and body.path == "ledger.ddl":
                # Its last record was torn, and another one, as long, has its place.
                there.on_ask = lambda _: None
                there.write("outputs/2", b"2")
                there.ledger("r1").write_bytes(before + naming("outputs/2"))

        there.on_ask = crash
        await copies.bring("r1")
        assert contents(tmp_path / "here/r1") == contents(there.runs / "r1")

    mirrored(tmp_path, work)


def test_a_damaged_copy_is_mended(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        there.record(naming("a") + naming("b") + naming("c"))
        there.driven.clear()
        await copies.bring("r1")
        path = tmp_path / "here/r1/ledger.ddl"
        for at in (3, len(HEADER) + 20, path.stat().st_size - 70):
            damaged = bytearray(path.read_bytes())
            damaged[at] ^= 255
            path.write_bytes(damaged)
            await copies.bring("r1")
            assert path.read_bytes() == there.ledger("r1").read_bytes()
        with path.open("ab") as file:
            file.write(naming("torn")[:-1])
        await copies.bring("r1")
        assert path.read_bytes() == there.ledger("r1").read_bytes()

    mirrored(tmp_path, work)


def test_a_look_tells_what_has_changed(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin("r1")
        there.begin("r2")
        there.end("r2")
        news = {each.mark.run_id: each for each in (await copies.look()).runs}
        assert {run_id: each.is_changed for run_id, each in news.items()} == {
            "r1": True,
            "r2": True,
        }
        assert (news["r1"].mark.is_active, news["r2"].mark.is_active) == (True, False)
        for run_id in news:
            await copies.bring(run_id)

        async def changed(of: RunCopies) -> list[str]:
            return [each.mark.run_id for each in (await of.look()).runs if each.is_changed]

        assert await changed(copies) == ["r1"]  # it goes on: its logs may have
        # The next mirror knows as much; one of another cluster does not take it for its own.
        assert await changed(RunCopies(there.ask, CLUSTER, runs=tmp_path / "here")) == ["r1"]
        other = RunCopies(there.ask, "other", runs=tmp_path / "here")
        assert await changed(other) == ["r1", "r2"]
        there.end("r1")
        assert await changed(copies) == ["r1"]
        await copies.bring("r1")
        assert await changed(copies) == []

    mirrored(tmp_path, work)


def test_a_run_that_is_removed_here_while_there_is_a_look_ends_no_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        for run_id in ("r1", "r2"):
            there.begin(run_id)
            await copies.bring(run_id)
        stat = Path.stat

        def late(path: Path, **options: Any) -> os.stat_result:
            found = stat(path, **options)
            if path == tmp_path / "here/r1/ledger.ddl":
                path.unlink()  # behind every look at it
            return found

        monkeypatch.setattr(Path, "stat", late)
        await copies.look()
        monkeypatch.undo()
        news = {each.mark.run_id: each.is_changed for each in (await copies.look()).runs}
        assert news["r1"]

    mirrored(tmp_path, work)


def test_a_copy_is_locked_while_its_run_goes_on(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        await copies.bring("r1")
        path = tmp_path / "here/r1/ledger.ddl"
        with pytest.raises(LedgerBusyError):
            LedgerWriter.open(path)
        there.end()
        await copies.bring("r1")
        with LedgerWriter.open(path), pytest.raises(LedgerBusyError):
            await copies.bring("r1")
        await copies.bring("r1")

    mirrored(tmp_path, work)


def test_a_directory_that_somebody_has_removed_comes_again(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        await copies.bring("r1")
        (tmp_path / "here/r1").rename(tmp_path / "gone")
        assert (await copies.look()).runs[0].is_changed
        there.record(naming("a"))
        await copies.bring("r1")
        assert contents(tmp_path / "here/r1") == contents(there.runs / "r1")

    mirrored(tmp_path, work)


def test_event_files_are_left_to_who_writes_them_here(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        there.write("tensorboard/trial-1/events", b"there")
        await copies.bring("r1")
        own = tmp_path / "here/r1/tensorboard/trial-1/events"
        assert not own.exists()
        own.parent.mkdir(parents=True)
        own.write_bytes(b"here")
        await copies.bring("r1")
        assert own.read_bytes() == b"here"
        with pytest.raises(RunNotFoundError):
            await copies.fetch("r1", "tensorboard/trial-1/events")
        there.driven.clear()
        (there.runs / "r1").rename(tmp_path / "lost")
        await copies.give("r1")
        assert contents(there.runs / "r1").keys() == {"ledger.ddl"}

    mirrored(tmp_path, work)


def test_a_full_disk_here_is_told_and_leaves_what_was_true(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        await copies.bring("r1")
        before = contents(tmp_path / "here/r1")
        there.write("values/v", b"v" * 10)
        there.record(naming("values/v"))
        folder = tmp_path / "here/r1/values"
        folder.write_bytes(b"")  # no folder can be made there
        with pytest.raises(CapacityError, match=r"copying run r1 failed: .*; make room"):
            await copies.bring("r1")
        folder.unlink()
        assert contents(tmp_path / "here/r1") == before
        await copies.bring("r1")
        assert contents(tmp_path / "here/r1") == contents(there.runs / "r1")

    mirrored(tmp_path, work)


def test_what_a_killed_mirror_has_left_is_cleared_by_the_next(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        left = tmp_path / "here/r1/values/.partial-1234"
        left.parent.mkdir(parents=True)
        left.write_bytes(b"half")
        await copies.bring("r1")
        assert not left.exists()

    mirrored(tmp_path, work)


def test_paths_of_a_hostile_controller_lead_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()

    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        there.write("values/v", b"v")
        await copies.bring("r1")
        # A folder of the copy is a link by now: it is not written through.
        (tmp_path / "here/r1/files").symlink_to(outside)
        there.write("files/w1/x", b"x")
        with pytest.raises(CapacityError):
            await copies.bring("r1")
        assert list(outside.iterdir()) == []
        with pytest.raises(RunNotFoundError):
            await copies.fetch("r1", "../r2/ledger.ddl")

    mirrored(tmp_path, work)
