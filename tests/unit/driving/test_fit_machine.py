"""The machine of a run of fits: one thing at a time, then everything in random order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_ddl.driving.assignments import RunContext
from jupyter_ddl.driving.fit_events import (
    DropAll,
    FitAsked,
    ImportModules,
    LookAtClient,
    ReadPast,
    past_of_fit,
)
from jupyter_ddl.driving.fits import FitMachine
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
    IllegalTransitionError,
    Now,
    Over,
    Record,
    Refuse,
    Reply,
    Send,
    Signal,
    StopWanted,
    Told,
    TrialStopWanted,
    WaitUntil,
    Woken,
)
from jupyter_ddl.driving.make import _may_feed
from jupyter_ddl.errors import SpecError
from jupyter_ddl.ledger.audit import audit
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.placement.slots import SlotBook
from jupyter_ddl.protocol.assignment import StopRun, StopTrial
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Failure,
    FoldFinished,
    Notice,
    RunFinished,
    RunSubmitted,
)
from jupyter_ddl.protocol.fit import (
    DropOutputs,
    FeedFit,
    FinishFit,
    FitCandidate,
    FitItem,
    FitNode,
    FitUnit,
    TakeFit,
)
from jupyter_ddl.protocol.fit_results import NodeResult, TakenUnit, UnitResult
from jupyter_ddl.protocol.prices import Budget, Held, Reading
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.run import Limits, RunSpec
from jupyter_ddl.store.processes import this_process
from jupyter_ddl.testing.fit_world import fit_story
from jupyter_ddl.verbs.fit import Fit

KEY = b"0123456789abcdef"


class Run:
    """A machine whose instructions are carried out by the test, one by one."""

    def __init__(self, ledger: list[Event] | None = None, n_slots: int = 1, **limits: Any) -> None:
        verb = Fit(memory_bytes=1000)
        spec = RunSpec(
            "f1",
            verb,
            Program("", "fit"),
            7,
            "local",
            0.0,
            limits=Limits(max_own_failures=1, **limits),
        )
        self.ledger = [RunSubmitted(spec, 0.0)] if ledger is None else ledger
        self.now_s = 100.0
        self.slots = SlotBook()
        self.slots.set_workers({"w1": n_slots})
        context = RunContext(
            slots=self.slots,
            topic="t",
            run_dir=Path("/run"),
            blob_dirs=("/shm",),
            program_digest="",
            pid=1,
            host_of=lambda _: "h1",
            n_wanted=lambda: 1,
            read_meter=lambda: Reading(Held((self.now_s - 100.0) / 3600), Held(1.0)),
        )
        self.machine = FitMachine(spec, verb, fold_all(self.ledger), context, 1000)
        self.wakes_at_s: float | None = None
        self.recording: list[Event] = []
        self.sent: dict[str, Send] = {}
        """Assignments that have not ended."""
        self.asked: dict[int, Any] = {}
        self.signals: list[Any] = []
        self.replies: dict[int, Any] = {}
        self.abandoned: list[str] = []
        self.ended: list[str] = []
        self.is_over = False
        self._n_requests = 0
        self.feed(Begun())
        self.answer(ReadPast, past_of_fit(self.ledger))
        self.commit()

    def feed(self, event: Any) -> None:
        for each in self.machine.handle(event, Now(self.now_s, 1000.0 + self.now_s)):
            match each:
                case Record(events=events):
                    self.recording += events
                case Send(assignment=assignment):
                    self.sent[assignment.assignment_id] = each
                case Signal(controls=controls):
                    self.signals += controls
                case Ask(question=question, work=work):
                    self.asked[question] = work
                case Reply(request=request, result=result):
                    assert request not in self.replies
                    self.replies[request] = result
                case Refuse(request=request, error=error):
                    assert request not in self.replies
                    self.replies[request] = error
                case Abandon(assignment_id=name):
                    self.abandoned.append(name)
                case EndWorker(worker=worker):
                    self.ended.append(worker)
                case WaitUntil(at_s=at_s):
                    self.wakes_at_s = at_s
                case Over():
                    self.is_over = True

    def commit(self) -> None:
        events, self.recording = tuple(self.recording), []
        if events:
            self.ledger += events
            self.feed(Committed(events))

    def answer(self, kind: type, answer: Any = None) -> None:
        for question, work in tuple(self.asked.items()):
            if isinstance(work, kind):
                del self.asked[question]
                self.feed(Answered(question, answer))

    def wait(self) -> None:
        """Until the next deadline of the machine."""
        assert self.wakes_at_s is not None
        self.now_s = max(self.now_s, self.wakes_at_s)
        self.feed(Woken())

    def ask(self, body: Any) -> int:
        self._n_requests += 1
        self.feed(FitAsked(self._n_requests, body))
        return self._n_requests

    def feed_batch(self, *units: FitUnit, number: int = 1, **fields: Any) -> None:
        n_candidates = max(unit.candidate for unit in units) + 1
        candidates = fields.pop("candidates", None) or tuple(
            FitCandidate({"c": c}, sum(unit.candidate == c for unit in units))
            for c in range(n_candidates)
        )
        request = self.ask(FeedFit("f1", number, 0, "t", candidates, units=units, **fields))
        self.commit()
        assert self.replies[request] is None, self.replies[request]

    def take(self, number: int = 1, n_taken: int = 0) -> list[TakenUnit] | None:
        """What a request for outcomes is answered with; None while it waits."""
        request = self.ask(TakeFit("f1", number, n_taken, 0.25))
        result = self.replies.get(request)
        return None if result is None else list(result.units)

    def begin(self, name: str) -> None:
        now_s = self.now_s
        for trial in self.sent[name].assignment.trials:
            self.feed(Arrived(name, (AttemptStarted(trial.trial, 1, now_s, "w1", 7, "a", 0),)))

    def finish(self, name: str, *results: Any) -> None:
        """End an assignment; a result, or a failure, for each of its pieces."""
        send = self.sent[name]
        for trial, result in zip(send.assignment.trials, results, strict=True):
            is_failure = isinstance(result, Failure)
            event = AttemptFinished(
                trial.trial,
                1,
                "failed" if is_failure else "complete",
                self.now_s,
                1.0,
                failure=result if is_failure else None,
                result=b"" if is_failure else msgspec.msgpack.encode(result),
            )
            self.feed(Arrived(name, (event,)))
        self.end(name)

    def end(self, name: str, lost: str = "") -> None:
        del self.sent[name]
        self.feed(Ended(name, lost))

    def finish_all(self, score: float = 0.5) -> None:
        """Have everything computed and recorded."""
        while self.sent:
            for name in tuple(self.sent):
                self.begin(name)
                outcomes = [
                    UnitResult(f"{item.candidate}.{item.fold}".encode(), score=score)
                    if item.prefix is None
                    else NodeResult("memory", 100, 1.0)
                    for item in self.items(name)
                ]
                self.finish(name, *outcomes)
        self.commit()

    @property
    def first(self) -> str:
        """The assignment that was sent first, of those that have not ended."""
        return next(iter(self.sent))

    def items(self, name: str) -> tuple[FitItem, ...]:
        work = self.sent[name].assignment.fit
        assert work is not None
        return work.items


def unit(candidate: int, fold: int = 0, *nodes: int, key: bytes = b"") -> FitUnit:
    return FitUnit(candidate, fold, nodes, key or bytes([candidate, fold]).ljust(16, b"."))


def test_units_with_equal_parameters_and_fold_have_an_outcome_each() -> None:
    run = Run(n_slots=2)
    run.feed_batch(unit(0), unit(0), unit(0))
    run.finish_all()
    assert sorted(taken.unit for taken in run.take() or ()) == [0, 1, 2]
    folds = [event.fold for event in run.ledger if isinstance(event, FoldFinished)]
    assert sorted(folds) == [0, 1, 2]
    assert fold_all(run.ledger).trials[0].state == "complete"


def test_an_outcome_is_fetched_when_it_is_on_record_and_not_before() -> None:
    run = Run()
    run.feed_batch(unit(0))
    run.begin(run.first)
    run.finish(run.first, UnitResult(b"x", score=1.0))
    request = run.ask(TakeFit("f1", 1, 0, 9.0))
    assert request not in run.replies
    run.commit()
    assert [taken.outcome for taken in run.replies[request].units] == [b"x"]


def test_a_persistent_group_that_keeps_every_slot_is_named() -> None:
    run = Run()
    now = Now(100.0, 1000.0)
    run.slots.take_group("g1", 1)
    run.feed_batch(unit(0))
    assert "every slot is kept by `%%distribute run` (g1); `%runs stop g1`" in run.machine.paused(
        now
    )
    run.slots.leave("g1")
    assert run.machine.paused(now) == ""


def test_a_request_for_outcomes_is_answered_at_its_deadline() -> None:
    run = Run()
    run.feed_batch(unit(0))
    request = run.ask(TakeFit("f1", 1, 0, 0.25))
    assert run.wakes_at_s == pytest.approx(100.25)
    run.wait()
    assert run.replies[request].units == ()


def test_what_a_lost_worker_had_is_done_again_but_not_for_ever() -> None:
    run = Run(max_evictions=2)
    run.feed_batch(unit(0))
    for _ in range(3):
        run.begin(run.first)
        run.end(run.first, "worker w1 is gone")
    assert not run.sent
    run.commit()
    (taken,) = run.take() or ()
    assert taken.lost is not None
    assert "was lost 3 times" in taken.lost.message
    assert run.machine.demand_slots == 0


def test_a_lost_worker_is_held_against_what_had_begun_there() -> None:
    run = Run(max_evictions=0)
    run.feed_batch(*(unit(0, fold) for fold in range(16)))
    while len(run.sent[run.first].assignment.trials) < 2:
        run.begin(run.first)
        run.finish(run.first, UnitResult(b"x"))
    name = run.first
    begun = run.sent[name].assignment.trials[0].trial
    run.feed(Arrived(name, (AttemptStarted(begun, 1, 1.0, "w1", 7, "a", 0),)))
    run.end(name, "worker w1 is gone")
    assert len([e for e in run.recording if isinstance(e, FoldFinished) and e.is_lost]) == 1


def test_late_and_doubled_messages_mean_nothing_and_two_ends_are_a_bug() -> None:
    run = Run()
    run.feed_batch(unit(0))
    name = run.first
    trial = run.sent[name].assignment.trials[0].trial
    run.begin(name)
    run.end(name, "worker w1 is gone")
    result = msgspec.msgpack.encode(UnitResult(b"late"))
    late = AttemptFinished(trial, 1, "complete", 1.0, 1.0, result=result)
    run.feed(Arrived(name, (late, late)))
    assert not any(isinstance(event, FoldFinished) for event in run.recording)
    run.finish_all()
    assert [taken.outcome for taken in run.take() or ()] == [b"0.0"]
    with pytest.raises(IllegalTransitionError, match="is not on its way") as caught:
        run.feed(Ended(name))
    assert any(f"Send({name}" in line for line in caught.value.story)


def wait_with(run: Run, answer: object, n_leases: int = 20) -> None:
    """Until something is given up, or for so many leases; ``answer`` is the worker's."""
    until_s = run.now_s + n_leases * RunContext.attempt_lease_s
    while run.now_s < until_s and not run.abandoned:
        run.wait()
        run.answer(LookAtClient, True)
        run.answer(AskHeld, answer)


def test_fits_that_their_worker_denies_are_done_again_elsewhere_and_it_is_ended() -> None:
    run = Run()
    run.feed_batch(unit(0))
    name, began_s = run.first, run.now_s
    run.begin(name)
    wait_with(run, False)
    assert run.now_s == began_s + RunContext.attempt_lease_s
    assert (run.abandoned, run.ended) == ([name], ["w1"])
    run.end(name, "it was given up")
    run.commit()
    (told,) = [event.text for event in run.ledger if isinstance(event, Notice)]
    assert "worker w1 lives, and has not said for 1 min that it runs 1 fit: repeated" in told
    assert not run.sent, "not to a worker that does not do its work"
    run.slots.set_workers({"w1": 1, "w2": 1})
    run.feed(Woken())
    assert [send.worker for send in run.sent.values()] == ["w2"]
    run.finish_all()
    assert len(run.take() or ()) == 1


def test_while_a_worker_denies_its_fits_the_run_says_so() -> None:
    run = Run()
    run.feed_batch(unit(0))
    wait_with(run, False, n_leases=0)
    assert run.machine.paused(Now(run.now_s, 0.0)) == ""
    while not run.machine.paused(Now(run.now_s, 0.0)):
        wait_with(run, False, n_leases=0)
        run.wait()
        run.answer(AskHeld, False)
    assert not run.abandoned
    doubt = run.machine.paused(Now(run.now_s, 0.0))
    assert "worker w1 lives, and does not say that it runs 1 fit" in doubt


@pytest.mark.parametrize("has_begun", [True, False])
def test_fits_that_are_held_are_waited_for_unless_they_wait_where_nothing_begins(
    has_begun: bool,
) -> None:
    run = Run()
    run.feed_batch(unit(0))
    if has_begun:
        run.begin(run.first)
    wait_with(run, True)
    assert not run.abandoned
    run.slots.retire("w1")
    wait_with(run, True)
    assert bool(run.abandoned) == (not has_begun)


def test_a_prefix_whose_process_dies_twice_is_fitted_by_its_users() -> None:
    run = Run()
    run.feed_batch(unit(0, 0, 0), unit(1, 0, 0), nodes=(FitNode(0, 0, ()),))
    crash = Failure("crash", "SIGSEGV", "died")
    for _ in range(2):
        run.begin(run.first)
        run.finish(run.first, crash)
    assert [item.prefix for name in run.sent for item in run.items(name)] == [None, None]
    run.finish_all()
    assert len(run.take() or ()) == 2


def test_outputs_are_dropped_with_their_last_user() -> None:
    run = Run()
    run.feed_batch(unit(0, 0, 0), unit(1, 0, 0), nodes=(FitNode(0, 0, ()),))
    run.begin(run.first)
    run.finish(run.first, NodeResult("memory", 100, 1.0))
    assert all(item.have == (0,) for name in run.sent for item in run.items(name))
    run.begin(run.first)
    run.finish(run.first, UnitResult(b"x"))
    assert not [each for each in run.signals if isinstance(each, DropOutputs)]
    run.begin(run.first)
    run.finish(run.first, UnitResult(b"x"))
    (drop,) = (each for each in run.signals if isinstance(each, DropOutputs))
    assert drop.names == ("fit-f1-1-0-0",)


def test_a_batch_that_is_given_up_keeps_no_memory_and_no_slot() -> None:
    run = Run()
    run.feed_batch(unit(0, 0, 0), unit(1, 0, 0), nodes=(FitNode(0, 0, ()),))
    run.begin(run.first)
    run.finish(run.first, NodeResult("memory", 900, 1.0))
    run.begin(run.first)
    run.ask(FinishFit("f1", batch=1))
    assert StopRun("f1", "now") in run.signals
    run.feed_batch(unit(0), number=2, first_candidate=2)
    assert StopRun("f1", is_over=True) not in run.signals
    while run.items(run.first)[0].number <= 3:  # workers begin nothing of a run that they stop
        run.end(run.first)
    assert StopRun("f1", is_over=True) in run.signals
    work = run.sent[run.first].assignment.fit
    assert work is not None
    assert (work.batch, work.memory_left_bytes) == (2, 1000)
    assert any("fit-f1-1-0-0" in e.names for e in run.signals if isinstance(e, DropOutputs))
    run.finish_all()
    assert len(run.take(2) or ()) == 1


def test_a_worker_that_does_not_stop_a_batch_holds_up_nobody() -> None:
    run = Run(n_slots=2)
    run.feed_batch(unit(0))
    name = run.first
    run.begin(name)
    run.ask(FinishFit("f1", batch=1))
    run.feed_batch(unit(0), number=2, first_candidate=1)
    assert run.first == name
    while run.now_s < 130.0 and not run.abandoned:
        run.answer(LookAtClient, True)
        run.wait()
    assert run.abandoned == [name]
    assert run.ended == ["w1"]
    assert len(run.sent) == 1, "behind it nothing would begin"
    run.slots.set_workers({"w1": 2, "w2": 1})
    run.feed(Woken())
    assert [send.worker for send in run.sent.values()] == ["w1", "w2"]


def test_a_stop_is_told_once_it_is_on_record_and_all_is_quiet() -> None:
    run = Run()
    run.feed_batch(unit(0), unit(1))
    run.begin(run.first)
    run.feed(StopWanted("now", "user"))
    request = run.ask(TakeFit("f1", 1, 0, 60.0))
    late = run.ask(FeedFit("f1", 2, 0, "t"))
    assert not {request, late} & run.replies.keys()
    while run.sent:
        run.end(run.first)
    run.commit()
    assert run.replies[request].is_stopped
    run.commit()
    run.answer(DropAll)
    assert isinstance(run.replies[late], SpecError)
    assert run.is_over
    assert isinstance(run.ledger[-1], RunFinished)
    assert run.ledger[-1].state == "cancelled"
    assert not run.slots.holders()


def test_what_is_told_of_the_cluster_is_on_record() -> None:
    run = Run()
    run.feed(Told("its lid was closed"))
    run.commit()
    told = [event.text for event in run.ledger if isinstance(event, Notice)]
    assert told == ["its lid was closed"]


def test_a_stop_gives_up_workers_that_do_not_answer() -> None:
    run = Run()
    run.feed_batch(unit(0))
    run.feed(StopWanted("now", "user"))
    while not run.abandoned:
        run.answer(LookAtClient, True)
        run.wait()
    run.end(run.first, "it was given up")
    run.commit()
    run.commit()
    assert run.is_over


def test_a_stop_that_the_controller_has_not_lived_to_see_through_is_seen_through() -> None:
    run = Run()
    run.feed_batch(unit(0))
    run.feed(StopWanted("now", "user"))
    run.commit()
    second = Run(run.ledger)
    second.commit()
    second.commit()
    second.answer(DropAll)
    assert second.is_over
    assert audit(second.ledger) == []


def test_the_end_is_told_when_it_is_on_record() -> None:
    run = Run()
    run.feed_batch(unit(0))
    run.finish_all()
    run.take()
    run.ask(FinishFit("f1", batch=1))
    request = run.ask(FinishFit("f1"))
    assert request not in run.replies
    run.commit()
    assert run.replies[request] is None
    assert run.is_over
    assert audit(run.ledger) == []


def test_a_batch_is_closed_when_all_of_it_is_on_record() -> None:
    """Who is told so asks no later session for it, and its candidates would have no outcome."""
    run = Run()
    run.feed_batch(unit(0))
    run.finish_all()
    killed = [event for event in run.ledger if not isinstance(event, AttemptFinished)]
    second = Run(killed)
    second.ask(FeedFit("f1", 1, 0, "t", (FitCandidate({"c": 0}, 1),), units=(unit(0),)))
    request = second.ask(FinishFit("f1", batch=1))
    assert request not in second.replies
    second.commit()
    assert second.replies[request] is None
    assert fold_all(second.ledger).trials[0].state == "complete"


def test_a_client_that_is_gone_ends_the_run_after_what_it_had_fed() -> None:
    run = Run()
    run.feed_batch(unit(0))
    run.wait()
    run.answer(LookAtClient, False)
    assert not run.recording
    run.finish_all()
    run.commit()
    assert run.is_over
    assert run.ledger[-1].reason == "the notebook's kernel ended before the cell did"  # type: ignore[union-attr]


def test_a_client_is_asked_for_with_the_time_since_it_was_heard() -> None:
    run = Run()
    run.feed_batch(unit(0))
    silent_s = []
    for _ in range(3):
        run.wait()
        silent_s += [work.silent_s for work in run.asked.values() if isinstance(work, LookAtClient)]
        run.answer(LookAtClient, True)
    run.ask(FinishFit("f1", batch=1))
    run.wait()
    silent_s += [work.silent_s for work in run.asked.values() if isinstance(work, LookAtClient)]
    assert silent_s == pytest.approx([5.0, 10.0, 15.0, 5.0])


@pytest.mark.parametrize(
    ("changed", "silent_s", "expected"),
    [
        ({}, 1e6, True),
        ({"start_ticks": 1}, 5.0, False),
        ({"boot_id": "another"}, 5.0, False),
        ({"namespaces": "another"}, 5.0, True),
        ({"namespaces": "another"}, 601.0, False),
    ],
)
def test_a_client_that_is_not_seen_is_believed_gone_after_a_long_silence(
    changed: dict[str, Any], silent_s: float, expected: bool
) -> None:
    client = msgspec.structs.replace(this_process(), **changed)
    assert _may_feed(client, silent_s) is expected


def test_modules_that_are_never_imported_are_waited_for_only_so_long() -> None:
    run = Run()
    run.feed_batch(unit(0), imports=("sklearn",))
    assert not run.sent
    assert isinstance(next(iter(run.asked.values())), ImportModules)
    while not run.sent:
        run.answer(LookAtClient, True)
        run.wait()
    assert run.now_s == pytest.approx(160.0)


def test_units_of_a_stopped_candidate_that_come_later_are_left_out() -> None:
    run = Run()
    candidates = (FitCandidate({"c": 0}, 2), FitCandidate({"c": 1}, 2))
    run.feed_batch(unit(0), unit(1), candidates=candidates, is_last=False)
    assert run.machine.is_running(0)
    run.feed(TrialStopWanted(0, "now", "user"))
    run.ask(FeedFit("f1", 1, 1, "t", units=(unit(0, 1), unit(1, 1))))
    run.commit()
    run.finish_all()
    taken = {each.unit: each.is_stopped for each in run.take() or ()}
    assert taken == {0: True, 1: False, 2: True, 3: False}
    assert not run.machine.is_running(0)
    assert audit(run.ledger) == []


def test_a_candidate_that_is_stopped_ends_what_runs_of_it() -> None:
    run = Run(n_slots=2)
    run.feed_batch(unit(0), unit(1))
    for name in run.sent:
        run.begin(name)
    run.feed(TrialStopWanted(1, "now", "user"))
    (stop,) = (each for each in run.signals if isinstance(each, StopTrial))
    numbers = {t.trial for s in run.sent.values() for t in s.assignment.trials}
    assert stop.trial in numbers


def test_what_is_needed_as_a_whole_can_not_be_stopped_in_part() -> None:
    run = Run()
    run.feed_batch(unit(0), candidates=(FitCandidate({"c": 0}, 1, is_whole=True),))
    with pytest.raises(SpecError, match="is not a candidate"):
        run.machine.is_running(0)


def test_another_session_computes_only_what_is_not_on_record() -> None:
    first = Run(n_slots=2)
    first.feed_batch(unit(0), unit(1))
    names = list(first.sent)
    first.begin(names[0])
    first.finish(names[0], UnitResult(b"0.0", score=1.0))
    first.commit()
    second = Run(first.ledger)
    second.feed_batch(unit(0), unit(1))
    assert [i.candidate for name in second.sent for i in second.items(name)] == [1]
    second.finish_all()
    assert sorted(t.outcome for t in second.take() or ()) == [b"0.0", b"1.0"]
    assert audit(second.ledger) == []


def test_outcomes_of_before_are_told_when_their_candidate_is_recorded() -> None:
    first = Run()
    first.feed_batch(unit(0))
    first.begin(first.first)
    first.finish(first.first, UnitResult(b"x", score=1.0))
    fold = next(e for e in first.recording if isinstance(e, FoldFinished))
    first.ledger.append(fold)  # the controller died before it had written the rest
    second = Run(first.ledger)
    second.ask(FeedFit("f1", 1, 0, "t", (FitCandidate({"c": 0}, 1),), units=(unit(0),)))
    request = second.ask(TakeFit("f1", 1, 0, 60.0))
    assert request not in second.replies
    second.commit()
    assert len(second.replies[request].units) == 1
    assert fold_all(second.ledger).trials[0].state == "complete"


# The last one: a batch that is given up while the run's end is on its way to the disk.
@pytest.mark.parametrize("seed", [*range(300), 2_006_277])
def test_nothing_is_lost_doubled_or_waited_for_without_end(seed: int) -> None:
    fit_story(seed)


def test_a_budget_that_is_spent_ends_a_run_of_fits_with_what_is_done() -> None:
    run = Run(budget=Budget(60.0 / 3600, "cpuh"))
    run.feed_batch(unit(0), unit(1))
    while run.now_s < 160.0:
        run.wait()
    run.commit()
    assert [type(each).__name__ for each in run.ledger[-2:]] == ["Spent", "StopRequested"]
    run.finish_all()
    run.commit()
    end = run.ledger[-1]
    assert isinstance(end, RunFinished)
    assert (end.state, end.reason) == (
        "cancelled",
        "stopped by its budget of 60 CPU-seconds, which is spent",
    )
    assert isinstance(end.spent, Held)
    assert end.spent.cpu_hours >= 60.0 / 3600
    assert audit(run.ledger) == []
