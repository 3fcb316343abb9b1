"""What every machine does: it refuses what cannot have happened, and tells its story."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from jupyter_ddl.driving.assignments import RunContext
from jupyter_ddl.driving.machine import (
    Answered,
    Begun,
    Committed,
    Ended,
    Happening,
    IllegalTransitionError,
    Instruction,
    Now,
    Record,
    Send,
    Told,
    WaitUntil,
    Woken,
    earliest,
)
from jupyter_ddl.driving.pruning import NoPruning
from jupyter_ddl.driving.sources import make_source
from jupyter_ddl.driving.trials import TrialMachine
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.events import Notice, RunSubmitted
from jupyter_ddl.protocol.prices import Prices, Reading
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import Limits, RunSpec
from jupyter_ddl.protocol.verb import VerbSpec
from jupyter_ddl.verbs.map import Map

NOW = Now(1.0, 1000.0)


def machine_of(
    n_items: int = 2,
    limits: Limits | None = None,
    verb: VerbSpec | None = None,
    workers: dict[str, int] | None = None,
    prices: Prices | None = None,
    read_meter: Callable[[], Reading | None] = lambda: None,
) -> TrialMachine:
    verb = verb or Map("items", "item", n_items)
    spec = RunSpec("r1", verb, Program("", "In [1]"), 1, "c", 0.0, limits=limits or Limits())
    if prices is not None:
        spec = msgspec.structs.replace(spec, prices=prices)
    slots = SlotBook()
    slots.set_workers(workers or {"w1": 1})
    context = RunContext(
        slots=slots,
        topic="events",
        run_dir=Path("run"),
        blob_dirs=(),
        program_digest="p",
        pid=1,
        host_of=str,
        n_wanted=lambda: 1,
        read_meter=read_meter,
    )
    state = fold_all([RunSubmitted(spec, 0.0)])
    return TrialMachine(spec, make_source(spec, 2), NoPruning(1), state, context)


def begun() -> tuple[TrialMachine, list[Instruction]]:
    """A machine that has sent its first trial, and what it had done for it."""
    machine = machine_of()
    (record, _) = machine.handle(Begun(), NOW)
    assert isinstance(record, Record)
    return machine, machine.handle(Committed(record.events), NOW)


def sent(instructions: list[Instruction]) -> list[str]:
    return [each.assignment.assignment_id for each in instructions if isinstance(each, Send)]


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (Begun(), "begun twice"),
        (Ended("r1-1-9"), "an assignment ended that is not under way"),
        (Answered(3), "an answer to no question"),
        (Committed((RunSubmitted(machine_of().spec, 0.0),)), "RunSubmitted was committed"),
    ],
)
def test_what_cannot_have_happened_is_refused(event: Happening, why: str) -> None:
    machine, _ = begun()
    with pytest.raises(IllegalTransitionError, match=why):
        machine.handle(event, NOW)


def test_an_assignment_that_ends_twice_is_refused_with_its_story() -> None:
    machine, instructions = begun()
    (name,) = sent(instructions)
    machine.handle(Woken(), NOW)
    machine.handle(Ended(name, "worker w1 is gone"), NOW)
    with pytest.raises(IllegalTransitionError) as refused:
        machine.handle(Ended(name), NOW)
    story = refused.value.story
    assert [line.split(" -> ")[0].split("(")[0] for line in story] == [
        "1.000 Committed",
        "1.000 Ended",
        "1.000 Ended",
    ]
    assert f"Send({name} [0.1] to w1)" in story[0]
    assert "is gone" in story[1]
    assert refused.value.fields["about"] == name


def test_what_came_back_unbegun_goes_out_again_and_after_a_while_not_at_once() -> None:
    machine, instructions = begun()
    n_at_once = 0
    while names := sent(instructions):
        n_at_once += 1
        instructions = machine.handle(Ended(names[0], "lost"), NOW)
    assert n_at_once == 3
    (wait,) = [each for each in instructions if isinstance(each, WaitUntil)]
    assert wait.at_s is not None
    later = Now(wait.at_s, 1000.0)
    assert sent(machine.handle(Woken(), later)) == ["r1-1-4"]


def test_a_timeout_is_waited_for_by_its_time_and_not_by_looking() -> None:
    machine = machine_of(limits=Limits(timeout_s=60.0))
    waits = [each for each in machine.handle(Begun(), NOW) if isinstance(each, WaitUntil)]
    assert waits == [WaitUntil(61.0)]


def test_what_is_told_of_the_cluster_is_recorded_and_changes_nothing_else() -> None:
    machine, _ = begun()
    (record,) = machine.handle(Told("its lid was closed"), NOW)
    assert isinstance(record, Record)
    (notice,) = record.events
    assert isinstance(notice, Notice)
    assert notice.text == "its lid was closed"


def test_before_its_first_record_nothing_is_told() -> None:
    machine = machine_of()
    told = machine.handle(Told("its lid was closed"), NOW)
    assert not [each for each in told if isinstance(each, Record)]


def test_the_earliest_of_no_deadlines_is_none() -> None:
    assert earliest(None, None) is None
    assert earliest(3.0, None, 2.0) == 2.0
