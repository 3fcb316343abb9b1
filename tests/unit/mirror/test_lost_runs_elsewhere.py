"""Runs that a controller elsewhere has lost, and is given back; and those that it has not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jupyter_ddl.errors import (
    CapacityError,
    ControllerError,
    LedgerBusyError,
    RunNotFoundError,
)
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.mirror.runs import RunCopies
from jupyter_ddl.protocol.mirroring import PART_BYTES, GiveRunFile
from jupyter_ddl.protocol.requests import Body
from tests.unit.mirror.elsewhere import CLUSTER, Elsewhere, contents, mirrored, naming


def test_a_run_that_could_not_be_given_is_not_locked(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        await copies.bring("r1")
        with pytest.raises(LedgerBusyError):
            await copies.give("r1")
        LedgerWriter.open(tmp_path / "here/r1/ledger.ddl").close()

    mirrored(tmp_path, work)


def test_a_directory_that_is_removed_while_it_is_given_ends_that(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        there.write("values/a", b"a")
        await copies.bring("r1")
        there.driven.clear()
        shutil.rmtree(there.runs / "r1")
        there.on_ask = lambda _: shutil.rmtree(tmp_path / "here/r1", ignore_errors=True)
        with pytest.raises(CapacityError, match="copying run r1 failed"):
            await copies.give("r1")

    mirrored(tmp_path, work)


def test_a_copy_that_has_more_than_its_lost_original_is_kept_and_given(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        before = there.ledger("r1").read_bytes()
        there.write("checkpoints/c", b"c" * 100)
        there.append("logs/a.log", b"line\n")
        there.record(naming("checkpoints/c"))
        await copies.bring("r1")
        mirrored_files = contents(tmp_path / "here/r1")
        assert "checkpoints/c" in mirrored_files
        there.driven.clear()
        # Less of it, as another mirror has given it; then nothing at all.
        there.ledger("r1").write_bytes(before)
        look = await copies.look()
        assert [line.run_id for line in look.lost] == ["r1"]
        brought = await copies.bring("r1")
        assert brought.is_ahead
        assert contents(tmp_path / "here/r1") == mirrored_files
        await copies.give("r1")
        assert contents(there.runs / "r1") == mirrored_files
        (there.runs / "r1").rename(tmp_path / "lost")
        there.move()
        look = await copies.look()
        assert look.runs == ()
        assert [line.run_id for line in look.lost] == ["r1"]
        with pytest.raises(RunNotFoundError):
            await copies.bring("r1")
        await copies.give("r1")
        assert contents(there.runs / "r1") == mirrored_files
        for folder in ("logs", "checkpoints", "values"):
            assert (there.runs / "r1" / folder).is_dir()
        assert (await copies.look()).lost == ()
        # It has the run; giving it again is nothing.
        there.asked.clear()
        await copies.give("r1")
        assert there.asked == ["ListRunFiles"]
        there.driven.add("r1")
        with pytest.raises(LedgerBusyError, match="it drives the run already"):
            await copies.give("r1")

    mirrored(tmp_path, work, checkpoint_bytes=1000)


def test_what_was_interrupted_while_a_run_was_given_goes_on(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        there.write("values/a", b"a" * (2 * PART_BYTES + 1))
        there.write("values/b", b"b" * (2 * PART_BYTES + 1))
        there.record(naming("values/a"))
        await copies.bring("r1")
        there.driven.clear()
        (there.runs / "r1").rename(tmp_path / "lost")
        n_given = 0

        def break_off(body: Body) -> None:
            nonlocal n_given
            if isinstance(body, GiveRunFile) and body.path == "values/b":
                n_given += 1
                if n_given >= 2:
                    there.break_link()

        there.on_ask = break_off
        with pytest.raises(ControllerError, match="is gone"):
            await copies.give("r1")
        assert contents(there.runs / "r1").keys() == {"values/a"}
        assert [path.name for path in (there.runs / "r1/values").iterdir()] == ["a"]
        assert [news.mark.run_id for news in (await copies.look()).runs] == []
        there.on_ask = lambda _: None
        there.asked.clear()
        await copies.give("r1")
        assert contents(there.runs / "r1") == contents(tmp_path / "here/r1")
        # values/a was there: of values/b three parts, and the ledger.
        assert there.asked.count("GiveRunFile") == 4

    mirrored(tmp_path, work)


def test_a_link_that_breaks_once_is_no_reason_not_to_give_a_run(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin()
        there.write("values/a", b"a" * (6 * PART_BYTES + 1))
        there.record(naming("values/a"))
        await copies.bring("r1")
        there.driven.clear()
        (there.runs / "r1").rename(tmp_path / "lost")

        def break_off(body: Body) -> None:
            if isinstance(body, GiveRunFile) and body.offset == 2 * PART_BYTES:
                there.on_ask = lambda _: None
                there.break_link()

        there.on_ask = break_off
        await copies.give("r1")
        assert contents(there.runs / "r1") == contents(tmp_path / "here/r1")

    mirrored(tmp_path, work)


def test_runs_of_other_clusters_and_finished_ones_are_not_lost(tmp_path: Path) -> None:
    async def work(there: Elsewhere, copies: RunCopies) -> None:
        for run_id in ("r1", "r2", "r3"):
            there.begin(run_id)
        there.end("r2")
        for run_id in ("r1", "r2", "r3"):
            await copies.bring(run_id)
            there.driven.discard(run_id)
            (there.runs / run_id).rename(tmp_path / f"lost-{run_id}")
        there.move()
        assert [line.run_id for line in (await copies.look()).lost] == ["r1", "r3"]
        other = RunCopies(there.ask, "other", runs=tmp_path / "here")
        assert (await other.look()).lost == ()

    mirrored(tmp_path, work)


def test_a_run_that_was_removed_there_is_not_lost(tmp_path: Path) -> None:
    """From another host, while this one slept: nobody may have it trained once more."""

    async def work(there: Elsewhere, copies: RunCopies) -> None:
        there.begin("r1")
        there.begin("r2")
        for run_id in ("r1", "r2"):
            await copies.bring(run_id)
        there.driven.clear()
        (there.runs / "r1").rename(tmp_path / "removed")
        there.ledger("r2").write_bytes(b"damaged")
        look = await copies.look()
        assert [line.run_id for line in look.lost] == ["r2"]
        assert look.removed == {"r1"}
        # Nor has it been lost with a home that comes after that one.
        copies.close()
        there.move()
        next_mirror = RunCopies(there.ask, CLUSTER, runs=tmp_path / "here")
        assert (await next_mirror.look()).removed == {"r1"}
        # Whoever asks for it gives it back; then it may be lost again.
        await next_mirror.give("r1")
        await next_mirror.bring("r1")
        next_mirror.close()
        (there.runs / "r1").rename(tmp_path / "lost")
        there.move()
        look = await copies.look()
        assert [line.run_id for line in look.lost] == ["r1", "r2"]

    mirrored(tmp_path, work)


def test_where_the_home_is_the_controllers_own_nothing_is_touched(tmp_path: Path) -> None:
    """One claim is mounted in a notebook's pod and in the controller's."""

    async def work(there: Elsewhere, _: RunCopies) -> None:
        there.begin(is_driven=False)
        half = there.runs / "r1/.partial-1"
        half.write_bytes(b"hal")
        new = there.runs / "r1/checkpoint"
        there.on_answer = lambda _: new.write_bytes(b"came behind the list")
        copies = RunCopies(there.ask, CLUSTER, runs=there.runs, home="home 1")
        brought = await copies.bring("r1")
        assert brought.mark.run_id == "r1"
        assert await copies.fetch("r1", "checkpoint") == new
        assert new.exists()
        assert half.exists()
        assert not (there.runs / "r1/copy.json").exists()
        assert not (there.runs / "r1/ledger.ddl.lock").exists()

    mirrored(tmp_path, work)


def test_before_its_home_is_lost_a_run_comes_with_files_of_any_size(tmp_path: Path) -> None:
    """Large checkpoints, too, if it could go on from them."""

    async def work(there: Elsewhere, copies: RunCopies) -> None:
        for run_id in ("r1", "r2"):
            there.begin(run_id)
            for path in ("values/model", "checkpoints/c"):
                there.write(path, b"x" * 5000, run_id)
            assert not (await copies.bring(run_id)).n_bytes >= 5000
        there.driven.discard("r1")
        there.end("r2")
        for run_id in ("r1", "r2"):
            await copies.bring_last(run_id)
        assert contents(tmp_path / "here/r1") == contents(there.runs / "r1")
        assert (tmp_path / "here/r2/values/model").exists()
        assert not (tmp_path / "here/r2/checkpoints/c").exists()
        await copies.bring("r1")
        assert (tmp_path / "here/r1/checkpoints/c").exists()  # it stays

    mirrored(tmp_path, work, unasked_bytes=1000, checkpoint_bytes=1000)


def test_a_run_of_a_cluster_of_that_name_in_another_place_is_not_lost(tmp_path: Path) -> None:
    """It may go on there, and would be trained twice."""

    async def work(there: Elsewhere, copies: RunCopies) -> None:
        copies.place = "namespace a"
        there.begin("r1")
        await copies.bring("r1")
        copies.close()
        there.driven.clear()
        (there.runs / "r1").rename(tmp_path / "not here")
        there.move()
        next_mirror = RunCopies(there.ask, CLUSTER, runs=tmp_path / "here")
        next_mirror.place = "namespace b"
        look = await next_mirror.look()
        assert (look.lost, look.removed) == ((), {"r1"})
        next_mirror.place = "namespace a"
        assert [line.run_id for line in (await next_mirror.look()).lost] == ["r1"]

    mirrored(tmp_path, work)
