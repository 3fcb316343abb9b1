"""Ranks that join their round: which slots they take, and what is sent there."""

from __future__ import annotations

from typing import Any

from jupyter_ddl.driving.machine import Arrived, Ended, Send, Woken
from jupyter_ddl.protocol.events import AttemptStarted, GroupSettled, RendezvousReady
from jupyter_ddl.verbs.ddp import Ddp
from tests.unit.driving.test_given_up import Driven
from tests.unit.driving.test_machine import machine_of


def _training(n_ranks: int, workers: dict[str, int], **options: Any) -> Driven:
    """All ranks that are sent have met, and are ready for steps."""
    verb = Ddp(n_ranks, strategy="ps-async", gpus_per_rank=0, resize_after_s=0.0, **options)
    run = Driven(machine_of(verb=verb, workers=workers))
    for send in run.of(Send):
        begun = AttemptStarted(0, 1, 1.0, send.worker, 1, "log", 0)
        ready = RendezvousReady(0, 1, "h", 1, "")
        run.feed(Arrived(send.assignment.assignment_id, (begun, ready)))
    run.feed(Arrived(run.of(Send)[0].assignment.assignment_id, (GroupSettled(0, 1),)))
    return run


def _seats(run: Driven) -> list[tuple[int, int, str]]:
    """Rank, life and worker of all that was sent."""
    sent = ((send.assignment.place, send.worker) for send in run.of(Send))
    return [(place.rank, place.life, worker) for place, worker in sent if place is not None]


def test_a_rank_whose_worker_is_lost_is_sent_to_a_free_slot_and_holds_one() -> None:
    run = _training(3, {"w1": 1, "w2": 1, "w3": 1, "w4": 1})
    before = run.of(Send)[1]
    run.feed(Ended(before.assignment.assignment_id, "it no longer has the events"))
    (seat,) = [each for each in _seats(run) if each[1] == 2]
    (free,) = {"w1", "w2", "w3", "w4"} - {send.worker for send in run.of(Send)[:3]}
    assert seat == (1, 2, free)
    slots = run.machine._slots
    assert (sum(slots.holders().values()), slots.n_busy(before.worker)) == (3, 0)
    again = run.of(Send)[-1].assignment
    assert again.assignment_id != before.assignment.assignment_id
    assert again.place is not None
    assert again.place.hosts[again.place.group_rank] == free


def test_ranks_of_a_smaller_round_are_sent_as_slots_become_free() -> None:
    run = _training(4, {"w1": 1, "w2": 1}, min_ranks=2)
    assert _seats(run) == [(0, 1, "w1"), (3, 1, "w2")]
    slots = run.machine._slots
    slots.set_workers({"w1": 1, "w2": 1, "w5": 1})
    run.feed(Woken())
    assert _seats(run)[2:] == [(1, 2, "w5")]
    slots.set_workers({"w1": 1, "w2": 1, "w5": 2})
    run.feed(Woken())
    assert _seats(run)[3:] == [(2, 2, "w5")]
    slots.set_workers({"w1": 1, "w2": 1, "w5": 2, "w6": 4})
    run.feed(Woken())
    assert len(run.of(Send)) == 4
    state = run.machine.state
    assert state.trial(0).attempt == 1
    assert [notice for notice in state.notices if "rank" in notice] == [
        "started with 2 of 4 ranks: no more slots are free; the others join when some are",
        "a slot is free: rank 1 is started, and joins the others",
        "a slot is free: rank 2 is started, and joins the others",
    ]
