"""Waiting in the foreground: what interrupts, lost pushes and lost controllers do to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from jupyter_ddl.client import waiting
from jupyter_ddl.client.link import Mailbox
from jupyter_ddl.client.waiting import PauseTeller, wait_for_run
from jupyter_ddl.errors import (
    ControllerError,
    LedgerBusyError,
    LedgerError,
    RunNotFoundError,
)
from jupyter_ddl.ledger.writer import LedgerWriter
from jupyter_ddl.protocol.events import RunStarted, RunSubmitted
from jupyter_ddl.protocol.program import Program
from jupyter_ddl.protocol.requests import ResumeRun, StopRunRequest
from jupyter_ddl.protocol.run import RunSpec
from jupyter_ddl.protocol.snapshot import Counts, EncodedSnapshot, RunSnapshot
from jupyter_ddl.protocol.verb import load_verb
from jupyter_ddl.store.paths import ledger_path, private_dir, run_dir
from jupyter_ddl.verbs.map import Map
from tests.leaks import Home
from tests.unit.views.view_samples import encoded


def snapshot(seq: int, state: str = "running") -> RunSnapshot:
    finished_at_s = 1.0 if state == "complete" else None
    return RunSnapshot(
        seq,
        "r1",
        "",
        "map",
        load_verb("map").can,
        load_verb("map").nouns,
        state,  # type: ignore[arg-type]
        "test",
        0.0,
        1,
        Counts(),
        finished_at_s=finished_at_s,
    )


class Session:
    """Our own interface: hands out mailboxes that the test has prepared, and notes requests."""

    def __init__(self, *watches: Callable[[Mailbox], None]) -> None:
        self._watches = list(watches)
        self.asked: list[Any] = []
        self.n_unwatched = 0

    def watch(self, name: str, run_id: str) -> Mailbox:
        mailbox = Mailbox()
        self._watches.pop(0)(mailbox)
        return mailbox

    def unwatch(self, name: str, run_id: str, mailbox: Mailbox) -> None:
        self.n_unwatched += 1

    def ask(self, name: str, body: Any) -> None:
        self.asked.append(body)

    ask_controller_of = ask


@pytest.fixture
def ledger(home: Home) -> Iterator[LedgerWriter]:
    private_dir(run_dir("r1"))
    verb = Map(over="items", element="item", n_items=1)
    spec = RunSpec("r1", verb, Program("", "In [1]"), 1, "test", 0.0)
    with LedgerWriter.open(ledger_path("r1"), create=True) as writer:
        writer.append([RunSubmitted(spec, 0.0), RunStarted(0.0, 1, 1, 1, 7)])
        yield writer


def wait(session: Session, **options: Any) -> EncodedSnapshot:
    return wait_for_run(session, "r1", options.pop("timeout_s", 20.0), **options)  # type: ignore[arg-type]


def ends(mailbox: Mailbox) -> None:
    mailbox.put(encoded(snapshot(9, "complete")))


def test_the_last_snapshot_is_returned_even_if_an_interrupt_hits_while_it_is_shown(
    ledger: LedgerWriter,
) -> None:
    def interrupted(_: EncodedSnapshot) -> None:
        raise KeyboardInterrupt

    session = Session(ends)
    assert wait(session, on_snapshot=interrupted).state == "complete"
    assert session.asked == [StopRunRequest("r1", "next_report")]
    assert session.n_unwatched == 1


def test_interrupts_escalate_and_the_third_leaves(ledger: LedgerWriter) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    session = Session(lambda mailbox: None)
    with pytest.raises(KeyboardInterrupt):
        wait(session, on_snapshot=None, on_tick=interrupted)
    assert [body.when for body in session.asked] == ["next_report", "now"]


def test_an_interrupt_before_the_controller_has_answered_counts(ledger: LedgerWriter) -> None:
    def interrupted(_: Mailbox) -> None:
        raise KeyboardInterrupt

    session = Session(interrupted, ends)
    assert wait(session, on_snapshot=None).state == "complete"
    assert session.asked == [StopRunRequest("r1", "next_report")]


def test_an_interrupt_between_the_last_push_and_its_showing_loses_nothing(
    ledger: LedgerWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Mailbox.take

    def interrupted(self: Mailbox, timeout_s: float | None) -> None:
        take(self, timeout_s)
        raise KeyboardInterrupt

    monkeypatch.setattr(Mailbox, "take", interrupted)
    assert wait(Session(ends), on_snapshot=None).state == "complete"


def test_a_killed_controller_that_holds_its_name_for_a_second_is_waited_for(
    ledger: LedgerWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(waiting.time, "sleep", slept.append)

    def dying(mailbox: Mailbox) -> None:
        if sum(slept) < 1.0:
            raise ControllerError("gone")
        ends(mailbox)

    session = Session(*[dying] * 5)
    assert wait(session, on_snapshot=None).state == "complete"


def test_a_controller_that_dies_again_and_again_is_given_up(ledger: LedgerWriter) -> None:
    def gone(_: Mailbox) -> None:
        raise ControllerError("gone")

    session = Session(gone, Mailbox.break_off, gone, Mailbox.break_off)
    with pytest.raises(ControllerError, match=r"ended 4 times during run r1 \(gone\)"):
        wait(session, on_snapshot=None)


def test_deaths_between_which_the_run_gets_on_are_no_reason_to_leave(
    ledger: LedgerWriter,
) -> None:
    def die_after(n_complete: int) -> Callable[[Mailbox], None]:
        def work(mailbox: Mailbox) -> None:
            counts = Counts(complete=n_complete)
            mailbox.put(encoded(msgspec.structs.replace(snapshot(n_complete), counts=counts)))
            mailbox.break_off()

        return work

    session = Session(*map(die_after, (1, 1, 2, 2, 2, 3, 3)), ends)
    assert wait(session, on_snapshot=None).state == "complete"


def test_nor_are_those_between_which_a_training_gets_to_its_next_checkpoint(
    ledger: LedgerWriter,
) -> None:
    def die_at(step: int) -> Callable[[Mailbox], None]:
        def work(mailbox: Mailbox) -> None:
            seen = msgspec.structs.replace(snapshot(1), checkpoint_step=step)
            mailbox.put(encoded(seen))
            mailbox.break_off()

        return work

    session = Session(*map(die_at, (0, 5, 5, 9, 9, 9)), ends)
    assert wait(session, on_snapshot=None).state == "complete"


def test_a_controller_that_dies_when_it_is_asked_to_go_on_is_tried_again(
    ledger: LedgerWriter,
) -> None:
    class Dying(Session):
        def ask(self, name: str, body: Any) -> None:
            super().ask(name, body)
            raise ControllerError("gone")

    def unknown(_: Mailbox) -> None:
        raise RunNotFoundError("not active")

    assert wait(Dying(unknown, ends), on_snapshot=None).state == "complete"


def test_a_controller_that_does_not_drive_the_run_is_asked_to_or_says_why_not(
    ledger: LedgerWriter,
) -> None:
    def unknown(_: Mailbox) -> None:
        raise RunNotFoundError("not active")

    session = Session(unknown, ends)
    assert wait(session, on_snapshot=None).state == "complete"
    assert session.asked == [ResumeRun("r1")]

    class Refusing(Session):
        def ask(self, name: str, body: Any) -> None:
            raise LedgerError("its ledger is damaged")

    with pytest.raises(LedgerError, match="damaged"):
        wait(Refusing(unknown), on_snapshot=None)


def test_a_run_that_has_begun_before_it_is_asked_for_is_followed_and_one_of_others_is_not(
    ledger: LedgerWriter,
) -> None:
    def unknown(_: Mailbox) -> None:
        raise RunNotFoundError("not active")

    class Driven(Session):
        def ask(self, name: str, body: Any) -> None:
            raise LedgerBusyError("it drives the run already")

    assert wait(Driven(unknown, ends), on_snapshot=None).state == "complete"
    with pytest.raises(LedgerBusyError, match="drives the run already"):
        wait(Driven(unknown, unknown), on_snapshot=None)


def test_the_time_to_wait_is_kept(ledger: LedgerWriter) -> None:
    with pytest.raises(TimeoutError, match="run r1 has not ended"):
        wait(Session(lambda mailbox: None), on_snapshot=None, timeout_s=0.2)


def test_without_a_view_the_log_says_why_a_run_waits_once_and_only_if_it_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 0.0
    pauses = PauseTeller("r1", lambda: now_s)
    short, long = (
        msgspec.structs.replace(snapshot(seq), paused=text)
        for seq, text in enumerate(("soon", "kept"))
    )
    pauses.snapshot(encoded(short))
    now_s = 1.9
    pauses.snapshot(encoded(long))
    now_s = 3.8
    pauses.tick()
    assert caplog.messages == []
    now_s = 3.9
    pauses.tick()
    pauses.tick()
    pauses.snapshot(encoded(snapshot(5)))
    now_s = 9.0
    pauses.snapshot(encoded(long))
    pauses.tick()
    assert caplog.messages == ["run r1 waits: kept"]
