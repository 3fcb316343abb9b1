"""When a silent assignment is asked for, and when nobody waits for it any more."""

from __future__ import annotations

from jupyter_ddl.driving.assignments import RunContext
from jupyter_ddl.driving.leases import AttemptLease
from jupyter_ddl.driving.machine import (
    Abandon,
    Answered,
    Arrived,
    Ask,
    AskHeld,
    Begun,
    Committed,
    Ended,
    EndWorker,
    Instruction,
    NotAnswered,
    Now,
    Record,
    Send,
    WaitUntil,
    Woken,
)
from jupyter_ddl.driving.trials import TrialMachine
from jupyter_ddl.errors import LaunchError
from jupyter_ddl.protocol.events import AttemptFinished, AttemptStarted, Notice
from tests.unit.driving.test_machine import machine_of

LEASE_S = RunContext.attempt_lease_s


def lease() -> AttemptLease:
    return AttemptLease(80.0, 0.0)


def test_nobody_is_asked_while_something_is_heard() -> None:
    one = lease()
    for now_s in range(0, 1000, 30):
        one.heard(now_s)
        assert one.poll(now_s + 1.0) is None
    assert one.state == "held"


def test_a_silent_one_is_asked_for_once_and_goes_on_when_it_is_held() -> None:
    one = lease()
    assert one.poll(39.0) is None
    assert one.poll(40.0) == "ask"
    assert one.poll(41.0) is None
    assert one.state == "asked"
    one.answered(42.0, is_held=True)
    assert (one.state, one.due_s) == ("held", 82.0)
    assert one.poll(82.0) == "ask"


def test_one_that_is_denied_is_asked_for_again_and_is_over_with_its_lease_once() -> None:
    one = lease()
    assert one.poll(40.0) == "ask"
    one.answered(41.0, is_held=False)
    assert one.is_doubted
    assert (one.state, one.due_s) == ("unconfirmed", 51.0)
    assert one.poll(51.0) == "ask"
    one.answered(75.0, is_held=False)
    assert one.due_s == 80.0
    assert one.poll(80.0) == "end"
    assert one.poll(81.0) is None
    assert (one.state, one.due_s) == ("over", None)


def test_a_question_that_nobody_answers_holds_up_nothing() -> None:
    one = lease()
    assert one.poll(40.0) == "ask"
    assert one.poll(80.0) == "end"
    one.answered(81.0, is_held=True)
    one.heard(82.0)
    assert one.is_over


def test_what_is_heard_while_the_question_is_on_its_way_counts() -> None:
    one = lease()
    assert one.poll(40.0) == "ask"
    one.heard(60.0)
    one.answered(61.0, is_held=False)
    assert one.poll(80.0) is None
    assert one.poll(100.0) == "ask"
    one.heard(101.0)
    assert not one.is_doubted


# -- the machine of a run --------------------------------------------------------------------------


class Silent:
    """A run of two trials whose worker has got the first one, and says nothing."""

    def __init__(self) -> None:
        self.machine: TrialMachine = machine_of()
        self.now_s = 1.0
        self.done: list[Instruction] = []
        self.feed(Begun())
        self.commit()
        self.name = self.last(Send).assignment.assignment_id  # type: ignore[attr-defined]

    def feed(self, event: object) -> None:
        now = Now(self.now_s, 1000.0 + self.now_s)
        self.done += self.machine.handle(event, now)  # type: ignore[arg-type]

    def commit(self) -> None:
        records = [each for each in self.done if isinstance(each, Record)]
        self.done = [each for each in self.done if not isinstance(each, Record)]
        for record in records:
            self.recorded += record.events
            self.feed(Committed(record.events))

    def last(self, kind: type) -> Instruction:
        return [each for each in self.done if isinstance(each, kind)][-1]

    def of(self, kind: type) -> list[Instruction]:
        return [each for each in self.done if isinstance(each, kind)]

    def wait(self) -> None:
        wait = self.last(WaitUntil)
        assert isinstance(wait, WaitUntil)
        assert wait.at_s is not None
        self.now_s = wait.at_s
        self.feed(Woken())

    recorded: tuple[object, ...] = ()


def test_an_attempt_that_its_worker_denies_is_fenced_and_repeated_as_an_eviction() -> None:
    run = Silent()
    began = AttemptStarted(0, 1, 1.0, "w1", 1, "log", 0)
    run.feed(Arrived(run.name, (began,)))
    run.commit()
    while not run.of(Abandon):
        run.wait()
        asked = [each for each in run.of(Ask) if isinstance(each.work, AskHeld)]  # type: ignore[attr-defined]
        run.done = [each for each in run.done if not isinstance(each, Ask)]
        for each in asked:
            run.feed(Answered(each.question, False))  # type: ignore[attr-defined]
            doubt = run.machine.paused(Now(run.now_s, 0.0))
            assert "worker w1 lives, and does not say that it runs trial 0" in doubt
    assert run.now_s == 1.0 + LEASE_S
    assert run.of(EndWorker) == [EndWorker("w1")]
    run.feed(Ended(run.name, "it was given up"))
    run.commit()
    (evicted,) = [each for each in run.recorded if isinstance(each, AttemptFinished)]
    assert (evicted.trial, evicted.attempt, evicted.outcome) == (0, 1, "evicted")
    assert evicted.failure is not None
    assert evicted.failure.type_name == "LeaseOver"
    (told,) = [each.text for each in run.recorded if isinstance(each, Notice)]
    assert "repeated elsewhere" in told
    assert len(run.of(Send)) == 1, "not to a worker that does not do its work"
    late = AttemptFinished(0, 1, "complete", 2.0, 1.0)
    run.feed(Arrived(run.name, (late,)))
    run.commit()
    assert late not in run.recorded
    run.machine._slots.set_workers({"w1": 1, "w2": 1})
    run.wait()
    again = run.last(Send)
    assert isinstance(again, Send)
    assert again.worker == "w2"
    assert [(t.trial, t.attempt) for t in again.assignment.trials] == [(0, 2)]


def test_one_that_was_never_begun_uses_up_an_eviction_or_it_would_be_sent_for_ever() -> None:
    run = Silent()
    while not run.of(Abandon):
        run.wait()
        for each in run.of(Ask):
            run.feed(NotAnswered(each.question, LaunchError("no answer")))  # type: ignore[attr-defined]
        run.done = [each for each in run.done if not isinstance(each, Ask)]
    run.feed(Ended(run.name, "it was given up"))
    run.commit()
    assert run.machine.state.trial(0).evictions == 1
    assert run.machine.state.trial(0).state == "waiting"


def test_one_that_is_held_is_waited_for_as_long_as_it_takes() -> None:
    run = Silent()
    while run.now_s < 100 * LEASE_S:
        run.wait()
        for each in run.of(Ask):
            run.feed(Answered(each.question, True))  # type: ignore[attr-defined]
        run.done = [each for each in run.done if not isinstance(each, Ask)]
    assert not run.of(Abandon)
    assert run.machine.paused(Now(run.now_s, 0.0)) == ""


def answered_as_held_by_a_leaving_worker(run: Silent) -> bool:
    """Whether the assignment is given up within a hundred leases."""
    run.machine._slots.retire("w1")
    while run.now_s < 100 * LEASE_S and not run.of(Abandon):
        run.wait()
        for each in run.of(Ask):
            run.feed(Answered(each.question, True))  # type: ignore[attr-defined]
        run.done = [each for each in run.done if not isinstance(each, Ask)]
    return bool(run.of(Abandon))


def test_what_waits_behind_lost_work_of_a_leaving_worker_is_repeated_elsewhere() -> None:
    assert answered_as_held_by_a_leaving_worker(Silent())


def test_what_a_leaving_worker_has_begun_may_end_there() -> None:
    run = Silent()
    run.feed(Arrived(run.name, (AttemptStarted(0, 1, 1.0, "w1", 1, "log", 0),)))
    run.commit()
    assert not answered_as_held_by_a_leaving_worker(run)
