"""The stop flag, and SIGTERM as a rank takes it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from jupyter_ddl.ranks.channel import TerminationHandler
from jupyter_ddl.ranks.stopping import StopFlag, TrialStopped


@pytest.fixture
def flag() -> StopFlag:
    return StopFlag()


@pytest.fixture
def handler(flag: StopFlag) -> Iterator[TerminationHandler]:
    before = signal.getsignal(signal.SIGTERM)
    made = TerminationHandler(flag)
    made.install()
    yield made
    signal.signal(signal.SIGTERM, before)


def send_sigterm() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_the_first_reason_given_stays(flag: StopFlag) -> None:
    flag.request(1, 1, "pruned")
    flag.request(1, 1, "cancelled")
    assert flag.pending(1, 1) == "pruned"


def test_a_request_is_for_its_own_attempt_only(flag: StopFlag) -> None:
    flag.request(1, 2, "pruned")
    assert flag.pending(1, 1) is None
    flag.request_all("cancelled")
    assert (flag.pending(1, 1), flag.pending(1, 2)) == ("cancelled", "pruned")
    flag.clear()
    assert flag.pending(1, 2) is None


def test_sigterm_raises_in_the_attempt_that_was_asked_to_end(
    flag: StopFlag, handler: TerminationHandler
) -> None:
    def attempt() -> None:
        with handler.during(3, 1):
            flag.request(3, 1, "pruned")
            send_sigterm()

    with pytest.raises(TrialStopped) as caught:
        attempt()
    assert caught.value.reason == "pruned"


def test_sigterm_for_an_attempt_that_has_ended_spares_the_next_one(
    flag: StopFlag, handler: TerminationHandler
) -> None:
    flag.request(3, 1, "pruned")
    with handler.during(4, 1):
        handler.interrupt()
        send_sigterm()
    assert flag.pending(4, 1) is None


def test_an_attempt_that_was_asked_before_it_began_does_not_begin(
    flag: StopFlag, handler: TerminationHandler
) -> None:
    flag.request(3, 1, "cancelled")
    begun = False
    with pytest.raises(TrialStopped), handler.during(3, 1):
        begun = True
    assert not begun


def test_sigterm_waits_until_an_event_has_been_sent_whole(
    flag: StopFlag, handler: TerminationHandler
) -> None:
    seen: list[str] = []

    def attempt() -> None:
        with handler.during(3, 1):
            handler.hold_back()
            flag.request(3, 1, "pruned")
            send_sigterm()
            seen.append("sent")
            handler.let_through()
            seen.append("went on")

    with pytest.raises(TrialStopped):
        attempt()
    assert seen == ["sent"]


def test_a_second_sigterm_does_not_cut_cleaning_up_short(
    flag: StopFlag, handler: TerminationHandler
) -> None:
    seen: list[str] = []

    def attempt() -> None:
        with handler.during(3, 1):
            try:
                flag.request(3, 1, "pruned")
                send_sigterm()
            finally:
                handler.interrupt()
                seen.append("tidied up")

    with pytest.raises(TrialStopped):
        attempt()
    assert seen == ["tidied up"]


def test_a_request_that_comes_behind_its_signal_interrupts(
    flag: StopFlag, handler: TerminationHandler
) -> None:
    def explain() -> None:
        flag.request(3, 1, "pruned")
        handler.interrupt()

    def attempt() -> None:
        with handler.during(3, 1):
            send_sigterm()
            threading.Timer(0.05, explain).start()
            signal.sigtimedwait([signal.SIGUSR2], 5)
            pytest.fail("the stop was lost")

    with pytest.raises(TrialStopped):
        attempt()


def test_user_code_can_not_take_the_signal_away_for_good(
    flag: StopFlag, handler: TerminationHandler
) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    handler.install()

    def attempt() -> None:
        with handler.during(3, 1):
            flag.request(3, 1, "pruned")
            send_sigterm()

    with pytest.raises(TrialStopped):
        attempt()
