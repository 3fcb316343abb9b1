"""Ledger first: in order, together where possible, and no failure goes unheard."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from jupyter_ddl.driving.committer import Committer
from jupyter_ddl.errors import CapacityError, LedgerError
from jupyter_ddl.ledger.reader import read_ledger
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import Event, Notice, RunSubmitted
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.verbs.map import Map


def note(number: int) -> Notice:
    return Notice(at_s=0.0, text=str(number))


def submitted() -> RunSubmitted:
    verb = Map(over="items", element="item", n_items=1)
    return RunSubmitted(RunSpec("r1", verb, Program("", "In [1]"), 1, "test", 0.0), 0.0)


class Bench:
    """A committer over a real ledger, and what it told."""

    def __init__(self, path: Path) -> None:
        self.ledger = LedgerWriter.open(path, create=True)
        self.told: list[Event] = []
        self.pauses: list[str] = []
        self.committer = Committer(self.ledger, self._on_committed, self.pauses.append)
        self.fails = ""

    def _on_committed(self, events: Sequence[Event]) -> None:
        if self.fails and events:
            raise LedgerError(self.fails)
        self.told.extend(events)


def run_bench(path: Path, work: Callable[[Bench], Awaitable[None]]) -> Bench:
    async def main() -> Bench:
        bench = Bench(path)
        task = asyncio.create_task(bench.committer.run())
        try:
            bench.committer.put([submitted()])
            async with asyncio.timeout(10):
                await work(bench)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            bench.ledger.close()
        return bench

    return asyncio.run(main())


def test_events_are_on_disk_before_anybody_is_told(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        for number in range(5):
            bench.committer.put([note(number)])
        assert bench.told == []
        await bench.committer.drain()

    bench = run_bench(tmp_path / "ledger.ddl", work)
    assert list(read_ledger(tmp_path / "ledger.ddl")) == bench.told
    assert [event.text for event in bench.told[1:]] == list("01234")  # type: ignore[union-attr]


def test_a_full_disk_pauses_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = LedgerWriter.append
    refusals = [CapacityError("no room: 10 bytes needed, 0 bytes free")]

    def full_once(self: LedgerWriter, events: Sequence[Event]) -> None:
        if refusals:
            raise refusals.pop()
        append(self, events)

    monkeypatch.setattr(LedgerWriter, "append", full_once)
    monkeypatch.setattr("jupyter_ddl.driving.committer._RETRY_S", 0.05)

    async def work(bench: Bench) -> None:
        bench.committer.put([note(1)])
        await bench.committer.drain()

    bench = run_bench(tmp_path / "ledger.ddl", work)
    assert bench.pauses == ["no room: 10 bytes needed, 0 bytes free", ""]
    assert bench.committer.paused == ""
    assert len(bench.told) == 2


def test_a_failure_for_good_is_told_to_whoever_waits(tmp_path: Path) -> None:
    async def work(bench: Bench) -> None:
        await bench.committer.drain()
        bench.fails = "the study refuses"
        bench.committer.put([note(1)])
        with pytest.raises(LedgerError, match="the study refuses"):
            await bench.committer.drain()
        bench.committer.put([note(2)])
        with pytest.raises(LedgerError, match="the study refuses"):
            await bench.committer.drain()

    bench = run_bench(tmp_path / "ledger.ddl", work)
    assert isinstance(bench.committer.error, LedgerError)
    assert len(bench.told) == 1
