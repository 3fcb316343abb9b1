"""The shell over a real ledger, with hands that reach no cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from jupyter_ddl.driving.assignments import RunContext
from jupyter_ddl.driving.calls import WorkerLostError
from jupyter_ddl.driving.file_sync import OnEvents
from jupyter_ddl.driving.machine import IllegalTransitionError, Replay, Work
from jupyter_ddl.driving.pruning import NoPruning
from jupyter_ddl.driving.shell import Deadline, RunDriver
from jupyter_ddl.driving.sources import MapSource
from jupyter_ddl.driving.trials import TrialMachine
from jupyter_ddl.errors import LedgerError
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.ledger.reader import read_ledger
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.assignment import Assignment, Control, StopRun
from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted, RunSubmitted
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import Limits, RunSpec
from jupyter_ddl.verbs.map import Map

N_ITEMS = 5
Execute = Callable[[Assignment, OnEvents], Awaitable[None]]


async def complete(assignment: Assignment, on_events: OnEvents) -> None:
    """What a worker sends of an assignment that goes well."""
    for trial in assignment.trials:
        await asyncio.sleep(0)
        on_events(
            [
                AttemptStarted(trial.trial, trial.attempt, 1.0, "w1", 1, "log", 0),
                AttemptFinished(trial.trial, trial.attempt, "complete", 2.0, 1.0),
            ]
        )


async def for_ever(assignment: Assignment, on_events: OnEvents) -> None:
    await asyncio.get_running_loop().create_future()


class Hands:
    def __init__(self, execute: Execute) -> None:
        self._execute = execute
        self.sent: list[str] = []
        self.told: list[Control] = []
        self.ended: list[str] = []

    async def execute(self, assignment: Assignment, worker: str, on_events: OnEvents) -> None:
        self.sent.append(assignment.assignment_id)
        await self._execute(assignment, on_events)

    async def control(self, worker: str, control: Control) -> None:
        self.told.append(control)

    async def end_worker(self, worker: str) -> None:
        self.ended.append(worker)


def driver_of(
    directory: Path, hands: Hands, limits: Limits | None = None, slots: SlotBook | None = None
) -> RunDriver:
    verb = Map("items", "item", N_ITEMS)
    spec = RunSpec("r1", verb, Program("", "In [1]"), 1, "c", 0.0, limits=limits or Limits())
    path = directory / "ledger.ddl"
    is_new = not path.exists()
    ledger = LedgerWriter.open(path, create=is_new)
    if is_new:
        ledger.append([RunSubmitted(spec, 0.0)])
    state = fold_all(read_ledger(path))
    slots = slots or SlotBook()
    slots.set_workers({"w1": 1, "w2": 1})
    context = RunContext(
        slots=slots,
        topic="events",
        run_dir=directory,
        blob_dirs=(),
        program_digest="p",
        pid=1,
        host_of=str,
        n_wanted=lambda: 2,
    )
    source = MapSource(N_ITEMS)

    async def answer(work: Work) -> object:
        return source.replay(work.records) if isinstance(work, Replay) else None

    machine = TrialMachine(spec, source, NoPruning(2), state, context)
    return RunDriver(
        machine,
        ledger,
        hands,
        answer,
        run_dir=directory,
        slots=slots,
        wake_all=lambda: None,
    )


def play(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(main())


def test_a_run_goes_from_its_first_record_to_its_last(tmp_path: Path) -> None:
    async def work() -> None:
        hands = Hands(complete)
        driver = driver_of(tmp_path, hands)
        await driver.run()
        assert driver.begun.is_set()
        assert driver.is_ending
        assert [type(each) for each in hands.told] == [StopRun, StopRun], "both workers served it"

    play(work)
    events = list(read_ledger(tmp_path / "ledger.ddl"))
    assert audit(events) == []
    state = fold_all(events)
    assert state.end is not None
    assert (state.end.state, state.counts.complete) == ("complete", N_ITEMS)


def test_a_run_that_is_cancelled_gives_its_slots_back_and_can_be_resumed(tmp_path: Path) -> None:
    async def work() -> None:
        hands, slots = Hands(for_ever), SlotBook()
        driver = driver_of(tmp_path, hands, slots=slots)
        running = asyncio.create_task(driver.run())
        while len(hands.sent) < 2:  # noqa: ASYNC110 - there is nothing to wait on
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert slots.holders() == {}
        await driver_of(tmp_path, Hands(complete)).run()

    play(work)
    events = list(read_ledger(tmp_path / "ledger.ddl"))
    assert audit(events) == []
    assert fold_all(events).counts.complete == N_ITEMS


def test_what_a_lost_worker_had_is_sent_again(tmp_path: Path) -> None:
    async def lose_first(assignment: Assignment, on_events: OnEvents) -> None:
        if assignment.assignment_id.endswith("-1"):
            raise WorkerLostError("worker w1 is gone")
        if assignment.assignment_id.endswith("-2"):
            raise RuntimeError("something else")
        await complete(assignment, on_events)

    hands = Hands(lose_first)

    async def work() -> None:
        await driver_of(tmp_path, hands).run()

    play(work)
    assert fold_all(read_ledger(tmp_path / "ledger.ddl")).counts.complete == N_ITEMS
    assert len(hands.sent) == N_ITEMS + 2


def test_a_worker_that_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_ddl.driving.ending._STOP_MARGIN_S", 0.0)

    async def work() -> None:
        hands = Hands(for_ever)
        driver = driver_of(tmp_path, hands, Limits(stop_grace_s=0.05))
        running = asyncio.create_task(driver.run())
        while not hands.sent:  # noqa: ASYNC110 - there is nothing to wait on
            await asyncio.sleep(0)
        driver.stop("now", by="user")
        await running
        assert sorted(set(hands.ended)) == ["w1", "w2"]

    play(work)
    state = fold_all(read_ledger(tmp_path / "ledger.ddl"))
    assert state.end is not None
    assert (state.end.state, state.end.reason) == ("cancelled", "stopped by user")


def test_what_fails_for_good_is_raised_to_whoever_runs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise LedgerError("the ledger is damaged")

    async def no_record() -> None:
        driver = driver_of(tmp_path, Hands(complete))
        monkeypatch.setattr(LedgerWriter, "append", refuse)
        with pytest.raises(LedgerError, match="damaged"):
            await driver.run()
        assert driver.is_ending

    play(no_record)


def test_a_story_comes_with_what_cannot_have_happened(tmp_path: Path) -> None:
    async def work() -> None:
        driver = driver_of(tmp_path, Hands(complete))
        queue = driver._machine._queue  # type: ignore[attr-defined]
        queue.ended = lambda number: queue._move(number, "again")
        with pytest.raises(IllegalTransitionError, match="trial 0 goes from recording to again"):
            await driver.run()

    play(work)


def test_a_new_deadline_takes_the_place_of_the_former_one() -> None:
    async def work() -> int:
        calls: list[None] = []
        reached = asyncio.Event()

        def call() -> None:
            calls.append(None)
            reached.set()

        deadline = Deadline(call)
        now = time.monotonic()
        deadline.set(now)
        deadline.set(now)
        await asyncio.wait_for(reached.wait(), 120)
        deadline.set(now)
        deadline.set(None)
        for _ in range(3):
            await asyncio.sleep(0)
        return len(calls)

    assert asyncio.run(work()) == 1
