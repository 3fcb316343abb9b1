"""The newest snapshot only, once, from one thread to another."""

from __future__ import annotations

import threading

from jupyter_ddl.client.link import Mailbox
from jupyter_ddl.protocol.snapshot import EncodedSnapshot, RunStateName


def snapshot(seq: int, state: RunStateName = "running") -> EncodedSnapshot:
    return EncodedSnapshot("r1", seq, state, b"{}")


def test_only_the_newest_is_kept_and_taken_once() -> None:
    mailbox = Mailbox()
    for seq in (1, 3, 2):
        mailbox.put(snapshot(seq))
    taken = mailbox.take(0.0)
    assert taken is not None
    assert taken.seq == 3
    assert mailbox.take(0.01) is None


def test_an_end_is_taken_though_its_record_is_shorter_than_what_was_shown() -> None:
    """Who waits for it would wait for ever: a run goes on from a copy when a disk is lost."""
    mailbox = Mailbox()
    mailbox.put(snapshot(100))
    assert mailbox.take(0.0) is not None
    mailbox.put(snapshot(60, "cancelled"))
    taken = mailbox.take(0.0)
    assert taken is not None
    assert taken.is_final


def test_what_came_before_the_end_of_the_link_is_still_taken() -> None:
    mailbox = Mailbox()
    mailbox.put(snapshot(1))
    mailbox.break_off()
    assert mailbox.take(0.0) is not None
    assert mailbox.take(3600.0) is None
    assert mailbox.is_broken


def test_a_waiting_thread_is_woken() -> None:
    mailbox = Mailbox()
    thread = threading.Timer(0.05, mailbox.put, [snapshot(7)])
    thread.start()
    taken = mailbox.take(30.0)
    thread.join()
    assert taken is not None
    assert taken.seq == 7
