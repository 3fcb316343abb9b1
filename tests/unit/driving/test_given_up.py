"""What does not end when it is told to: it is waited for no longer, and its worker is ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jupyter_ddl.driving.dispatcher import _CONTROL_TRIES, Dispatcher
from jupyter_ddl.driving.machine import (
    Abandon,
    Arrived,
    Begun,
    Committed,
    Ended,
    EndWorker,
    Instruction,
    Now,
    Record,
    Send,
    StopWanted,
    WaitUntil,
    Woken,
)
from jupyter_ddl.driving.trials import TrialMachine
from jupyter_ddl.protocol.assignment import Control, StopRun, StopTrial
from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted, Failure
from jupyter_ddl.protocol.group import JoinGroup
from jupyter_ddl.verbs.ddp import Ddp
from tests.unit.driving.test_machine import machine_of


class Driven:
    """A machine, and what it has had done."""

    def __init__(self, machine: TrialMachine) -> None:
        self.machine = machine
        self.now_s = 1.0
        self.done: list[Instruction] = []
        self.feed(Begun())

    def feed(self, event: Any) -> None:
        made = self.machine.handle(event, Now(self.now_s, 1000.0 + self.now_s))
        self.done += made
        for record in [each for each in made if isinstance(each, Record)]:
            self.feed(Committed(record.events))

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.done if isinstance(each, kind)]

    def wait_for(self, kind: type) -> None:
        for _ in range(100):
            if self.of(kind):
                return
            self.now_s = self.of(WaitUntil)[-1].at_s
            self.feed(Woken())
        raise AssertionError(f"no {kind}")


def test_a_rank_that_does_not_end_with_its_round_ends_with_its_worker() -> None:
    run = Driven(machine_of(verb=Ddp(2, gpus_per_rank=0), workers={"w1": 1, "w2": 1}))
    first, other = run.of(Send)
    for rank, send in enumerate((first, other)):
        began = AttemptStarted(0, 1, 1.0, send.worker, 1 + rank, "log", 0)
        run.feed(Arrived(send.assignment.assignment_id, (began,)))
    failed = AttemptFinished(0, 1, "failed", 2.0, 1.0, failure=Failure("exception", "E", "no"))
    run.feed(Arrived(other.assignment.assignment_id, (failed,)))
    run.feed(Ended(other.assignment.assignment_id))
    assert not run.of(Abandon)
    run.wait_for(Abandon)
    assert run.of(Abandon) == [Abandon(first.assignment.assignment_id)]
    assert run.of(EndWorker) == [EndWorker(first.worker)]
    slots = run.machine._slots
    assert slots.is_leaving(first.worker), "what were sent there would wait for ever"
    assert not slots.is_leaving(other.worker)
    run.feed(Ended(first.assignment.assignment_id, "it was given up"))
    assert run.machine.state.trial(0).own_failures == 1


def test_what_outlives_the_stop_of_its_run_ends_with_its_worker() -> None:
    run = Driven(machine_of(workers={"w1": 1, "w2": 1}))
    first, other = run.of(Send)
    run.feed(StopWanted("now", "user"))
    run.feed(Ended(other.assignment.assignment_id))
    run.wait_for(Abandon)
    assert run.of(Abandon) == [Abandon(first.assignment.assignment_id)]
    assert run.of(EndWorker) == [EndWorker(first.worker)]
    assert run.machine._slots.is_leaving(first.worker)


class Deaf:
    """A client whose worker does not hear the first calls; in the end it hears none."""

    scheduler = object()

    def __init__(self, n_unheard: int) -> None:
        self.n_unheard = n_unheard
        self.n_calls = 0

    async def run(self, _call: Any, payload: bytes, *, workers: Any, on_error: str) -> Any:
        self.n_calls += 1
        if self.n_calls <= self.n_unheard:
            await asyncio.Event().wait()
        return {workers[0]: None}


STOP = StopRun("r1", "now")
RELEASE = StopRun("r1", is_over=True)


@pytest.mark.parametrize(
    ("control", "n_unheard", "there", "n_calls"),
    [
        (STOP, 0, "a", 1),
        (STOP, 2, "a", 3),
        (StopTrial("r1", 0, 1, "cancelled", "now"), 1, "a", 2),
        (JoinGroup("r1", 0, 1, ("h:1",)), 1, "a", 2),
        (STOP, 99, "a", _CONTROL_TRIES),
        (STOP, 99, "b", 1),
        (RELEASE, 99, "a", 1),
    ],
)
def test_a_stop_that_is_not_heard_is_sent_again_while_its_worker_is_there(
    control: Control,
    n_unheard: int,
    there: str,
    n_calls: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jupyter_ddl.driving.dispatcher._CONTROL_TIMEOUT_S", 0.04)
    monkeypatch.setattr("jupyter_ddl.driving.dispatcher._CONTROL_AGAIN_S", 0.0)
    client = Deaf(n_unheard)
    dispatcher = Dispatcher(client, "events", is_there={there}.__contains__)
    asyncio.run(dispatcher.control("a", control))
    assert client.n_calls == n_calls


def test_a_worker_is_ended_once_however_many_have_given_it_up() -> None:
    asked = []

    class Scheduler:
        async def restart_workers(self, workers: list[str], **_options: Any) -> None:
            asked.append((*workers, "begun"))
            await asyncio.sleep(0)
            asked.append((*workers, "done"))

    class Client:
        scheduler = Scheduler()

    dispatcher = Dispatcher(Client(), "events")

    async def run() -> None:
        first = asyncio.create_task(dispatcher.end_worker("a"))
        await asyncio.sleep(0)
        first.cancel()  # its run is over
        await dispatcher.end_worker("a")
        await dispatcher.end_worker("b")

    asyncio.run(run())
    assert asked == [("a", "begun"), ("a", "done"), ("b", "begun"), ("b", "done")]
