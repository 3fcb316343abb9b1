"""Rounds whose ranks go on without one that is lost, and take it back."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_ddl.driving.machine import Instruction, Now, Signal
from jupyter_ddl.driving.rounds import Round
from jupyter_ddl.ledger.reducer import fold_all
from jupyter_ddl.protocol.assignment import Assignment, StopTrial, TrialAssignment
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Failure,
    GroupSettled,
    Notice,
    RankEnded,
    RankStarted,
    RendezvousReady,
    WorkerLeaving,
)
from jupyter_ddl.protocol.group import JoinGroup, MembersChanged, RankPlace
from jupyter_ddl.testing.interleave import random_world

KILLED = Failure("crash", "SIGKILL", "killed")
RAISED = Failure("exception", "ValueError", "boom", line=3)
CUT = Failure("exception", "RuntimeError", "Connection closed by peer [127.0.0.1]:6058")
NOW = Now(1.0, 1000.0)


class Group:
    """Two workers that train, a third, and a server; each at a Dask worker of its own."""

    def __init__(self, absent: tuple[int, ...] = (), **place: Any) -> None:
        base = {"strategy": "ps-async", "world_size": 4, "absent": absent, **place}
        trial = TrialAssignment(0, 1, {}, 1)
        self.assignments = [
            Assignment(
                "r1", f"a-r{n}", "p", (trial,), "/r", (), "t", place=RankPlace("g", n, **base)
            )
            for n in range(4)
        ]
        self.done: list[Instruction] = []
        self.again: list[tuple[int, int]] = []
        self.recorded: list[Event] = []
        self.round = Round(
            self.assignments,
            ["" if n in absent else f"w{n}" for n in range(4)],
            ["" if n in absent else "h" for n in range(4)],
            NOW,
            do=self.done.append,
            write_stacks=lambda _: None,
            give_up=lambda _: None,
            start_again=lambda rank, life: self.again.append((rank, life)),
        )

    def met(self) -> Group:
        for rank, assignment in enumerate(self.assignments):
            if assignment.place is not None and rank not in assignment.place.absent:
                self.begin(rank)
        self.tell(0, GroupSettled(0, 1))
        self.done.clear()
        self.recorded.clear()
        return self

    def begin(self, rank: int) -> None:
        started = AttemptStarted(0, 1, 10.0, f"w{rank}", 100 + rank, f"log-{rank}", 0)
        self.tell(rank, started, RendezvousReady(0, 1, "h", rank + 1, "store"))

    def tell(self, rank: int, *events: Any) -> None:
        self.recorded += self.round.arrived(rank, events, NOW)

    def end(self, rank: int, outcome: Any, failure: Failure | None = None, lost: str = "") -> None:
        self.tell(rank, AttemptFinished(0, 1, outcome, 20.0, 1.0, failure=failure))
        self.recorded += self.round.rank_ended(rank, lost, NOW)

    @property
    def members(self) -> list[dict[int, int]]:
        """What the ranks were told of each other, each once."""
        told = [
            control
            for each in self.done
            if isinstance(each, Signal)
            for control in each.controls
            if isinstance(control, MembersChanged)
        ]
        return [lives for _, lives in sorted({each.number: each.lives for each in told}.items())]

    @property
    def stopped(self) -> list[int | None]:
        return [
            control.rank
            for each in self.done
            if isinstance(each, Signal)
            for control in each.controls
            if isinstance(control, StopTrial)
        ]

    def conclusion(self) -> AttemptFinished:
        (end,) = [event for event in self.recorded if isinstance(event, AttemptFinished)]
        return end


def test_the_others_go_on_without_a_worker_that_is_lost_and_are_told_so() -> None:
    group = Group().met()
    group.end(1, "failed", KILLED)
    assert group.stopped == []
    assert group.members == [{0: 1, 2: 1, 3: 1}]
    lost, told = group.recorded
    assert isinstance(lost, RankEnded)
    assert lost.others_go_on
    assert isinstance(told, Notice)
    assert told.text == "rank 1 died by SIGKILL; the others go on without it"


def test_a_rank_that_is_lost_while_others_wait_to_meet_it_ends_the_round() -> None:
    group = Group()
    for rank in range(4):
        group.begin(rank)
    group.end(1, "failed", KILLED)
    assert group.again == []
    assert group.members == []
    assert sorted(rank for rank in group.stopped if rank is not None) == [0, 2, 3]


def test_a_lost_worker_is_started_again_and_told_where_the_others_are() -> None:
    group = Group().met()
    group.end(1, "failed", KILLED)
    assert group.again == [(1, 2)]
    group.done.clear()
    group.begin(1)
    join = Signal("w1", (JoinGroup("r1", 0, 1, ("h:1", "h:2", "h:3", "h:4"), "store"),))
    assert group.done[0] == join
    assert group.members == [{0: 1, 1: 2, 2: 1, 3: 1}]
    started = group.recorded[-1]
    assert isinstance(started, RankStarted)
    assert (started.rank, started.life) == (1, 2)
    for rank in range(4):
        group.end(rank, "complete")
    assert group.conclusion().outcome == "complete"


def test_a_round_ends_when_all_are_through_that_were_never_lost() -> None:
    group = Group().met()
    group.end(1, "failed", KILLED)
    group.begin(1)
    group.end(0, "complete")
    assert group.stopped == []
    group.end(2, "complete")
    assert group.stopped == [1]
    group.end(1, "cancelled")
    group.end(3, "complete")
    assert group.conclusion().outcome == "complete"
    assert len([event for event in group.recorded if isinstance(event, Notice)]) == 1


def test_a_rank_whose_worker_is_gone_is_not_waited_for() -> None:
    group = Group().met()
    group.recorded += group.round.rank_ended(2, "its worker is gone", NOW)
    assert group.again == []
    assert group.members == [{0: 1, 1: 1, 3: 1}]
    for rank in (0, 1, 3):
        group.end(rank, "complete")
    assert group.conclusion().outcome == "complete"


def test_a_rank_that_dies_again_and_again_is_left_out_at_last() -> None:
    group = Group().met()
    for _ in range(10):
        if len(group.again) > 4 or not group.round._fold.running:
            break
        group.end(1, "failed", KILLED)
        if 1 not in group.round._fold.running:
            break
        group.begin(1)
    assert [life for _, life in group.again] == [2, 3, 4, 5]
    assert group.stopped == []


def test_a_rank_that_comes_back_too_late_is_told_of() -> None:
    group = Group(strategy="diloco").met()
    group.end(1, "failed", KILLED)
    group.begin(1)
    group.end(1, "cancelled")
    assert group.again == [(1, 2), (1, 3)]
    assert group.stopped == []
    told = group.recorded[-1]
    assert isinstance(told, Notice)
    assert told.text == "rank 1 was not back before the others were through"


def test_a_rank_that_is_back_has_a_moment_to_come_from_the_last_meeting() -> None:
    group = Group(strategy="diloco").met()
    group.end(3, "failed", KILLED)
    group.begin(3)
    for rank in (0, 1, 2):
        group.end(rank, "complete")
    assert group.stopped == []
    assert group.round.due_s == 1.0 + 5.0
    group.round.woken(Now(7.0, 1006.0))
    assert group.stopped == [3]
    group.end(3, "cancelled")
    assert group.conclusion().outcome == "complete"


def test_what_fails_in_a_rank_that_was_started_again_costs_the_others_nothing() -> None:
    group = Group().met()
    group.end(1, "failed", KILLED)
    group.begin(1)
    group.end(1, "failed", RAISED)
    assert group.stopped == []
    told = group.recorded[-1]
    assert isinstance(told, Notice)
    assert "rank 1 raised ValueError" in told.text


@pytest.mark.parametrize(
    ("rank", "failure", "place"),
    [
        (0, KILLED, {}),
        (3, RAISED, {}),
        (3, KILLED, {"strategy": "ps-sync", "strategy_options": {"servers": 2}}),
        (1, RAISED, {}),
        (1, KILLED, {"strategy": "ddp"}),
        (1, KILLED, {"initialize": False}),
        (1, KILLED, {"gpus": ("u1",)}),
        (1, KILLED, {"backend": "nccl"}),
    ],
    ids=[
        "rank 0",
        "a server's code",
        "one of two servers",
        "its code",
        "ddp",
        "no init",
        "on GPUs",
        "nccl",
    ],
)
def test_a_round_ends_with_a_rank_that_it_needs(
    rank: int, failure: Failure, place: dict[str, Any]
) -> None:
    group = Group(**place).met()
    group.end(rank, "failed", failure)
    assert sorted(map(str, group.stopped)) == [str(n) for n in range(4) if n != rank]
    assert group.again == []


def test_the_others_wait_for_a_server_that_is_killed_and_end_with_it() -> None:
    group = Group().met()
    group.end(3, "failed", KILLED)
    assert (group.stopped, group.again) == ([], [(3, 2)])
    told = group.recorded[-1]
    assert isinstance(told, Notice)
    assert told.text == "rank 3, a server, died by SIGKILL; the others wait until it is back"
    group.begin(3)
    assert group.members == [{0: 1, 1: 1, 2: 1}, {0: 1, 1: 1, 2: 1, 3: 2}]
    for rank in (0, 1, 2):
        group.end(rank, "complete")
    assert group.stopped == [], "it ends with the last one whom it serves"
    group.end(3, "complete")
    assert group.conclusion().outcome == "complete"


def test_a_server_that_dies_again_and_again_ends_the_round() -> None:
    group = Group().met()
    for life in range(2, 6):
        group.end(3, "failed", KILLED)
        assert group.again[-1] == (3, life)
        group.begin(3)
    group.end(3, "failed", KILLED)
    assert len(group.again) == 4
    assert group.stopped == [0, 1, 2]
    told = [event for event in group.recorded if isinstance(event, Notice)]
    assert len(told) == 4, "of the last one it is not told that the others wait for it"


def test_a_server_that_comes_back_and_fails_by_its_code_ends_the_round() -> None:
    group = Group().met()
    group.end(3, "failed", KILLED)
    group.begin(3)
    group.end(3, "failed", RAISED)
    assert group.stopped == [0, 1, 2]
    for rank in (0, 1, 2):
        group.end(rank, "cancelled")
    failure = group.conclusion().failure
    assert failure is not None
    assert (failure.rank, failure.type_name) == (3, "ValueError")


def test_a_round_ends_with_a_server_whose_worker_is_gone() -> None:
    group = Group().met()
    group.recorded += group.round.rank_ended(3, "its worker is gone", NOW)
    assert group.again == []
    assert group.stopped == [0, 1, 2]


def test_a_round_ends_with_a_server_that_is_killed_while_no_rank_is_started_any_more() -> None:
    """As where its worker goes with it, or a stop is on its way: nobody would come back."""
    for lost, may_start in (("its worker is gone", True), ("", False)):
        group = Group().met()
        group.round.may_start_again = may_start
        group.end(3, "failed", KILLED, lost)
        assert (group.stopped, group.again) == ([0, 1, 2], [])
        for rank in (0, 1, 2):
            group.end(rank, "cancelled")
        failure = group.conclusion().failure
        assert failure is not None
        assert (failure.rank, failure.type_name) == (3, "SIGKILL")


def test_a_rank_that_is_lost_before_all_have_met_ends_the_round() -> None:
    group = Group()
    group.begin(0)
    group.begin(1)
    group.end(1, "failed", KILLED)
    assert group.stopped == [0, 2, 3]


def test_where_the_others_fail_of_a_loss_after_all_it_is_the_cause() -> None:
    group = Group().met()
    group.round.may_start_again = False
    group.end(1, "failed", KILLED)
    for rank in (0, 2, 3):
        group.end(rank, "failed", CUT)
    failure = group.conclusion().failure
    assert failure is not None
    assert (failure.rank, failure.type_name) == (1, "SIGKILL")


def test_a_loss_of_before_is_not_the_cause_of_what_fails_later() -> None:
    group = Group().met()
    group.round.may_start_again = False
    group.end(1, "failed", KILLED)
    group.end(0, "failed", RAISED)
    for rank in (2, 3):
        group.end(rank, "cancelled")
    failure = group.conclusion().failure
    assert failure is not None
    assert (failure.rank, failure.type_name) == (0, "ValueError")


def test_a_round_begins_without_ranks_for_which_there_is_no_slot() -> None:
    group = Group(absent=(2,))
    group.begin(0)
    group.begin(1)
    assert group.done == []
    group.begin(3)
    joins = [
        (each.worker, control.addresses)
        for each in group.done
        if isinstance(each, Signal)
        for control in each.controls
        if isinstance(control, JoinGroup)
    ]
    addresses = ("h:1", "h:2", "", "h:4")
    assert joins == [("w0", addresses), ("w1", addresses), ("w3", addresses)]
    assert group.round.vacant == ()  # nobody joins while the others still meet
    group.tell(0, GroupSettled(0, 1))
    assert group.round.vacant == (2,)


def test_a_rank_that_was_absent_joins_where_there_is_a_slot() -> None:
    group = Group(absent=(2,)).met()
    life, (notice,) = group.round.give_worker(2, "w9", "h9", NOW)
    assert (life, group.round.vacant, group.again) == (2, (), [])
    assert isinstance(notice, Notice)
    assert notice.text == "a slot is free: rank 2 is started, and joins the others"
    group.begin(2)
    (started,) = [event for event in group.recorded if isinstance(event, RankStarted)]
    assert (started.rank, started.life, started.host, started.world_size) == (2, 2, "h9", 4)
    assert group.members == [{0: 1, 1: 1, 2: 2, 3: 1}]
    assert {each.worker for each in group.done if isinstance(each, Signal)} == {
        "w0",
        "w1",
        "w9",
        "w3",
    }


def test_a_round_in_which_nobody_joined_ends_with_those_that_began() -> None:
    group = Group(absent=(1, 2)).met()
    group.end(0, "complete")
    group.end(3, "complete")
    assert group.conclusion().outcome == "complete"
    assert [event.rank for event in group.recorded if isinstance(event, RankEnded)] == [0, 3]
    assert group.round.vacant == ()


def test_a_rank_whose_worker_is_lost_may_have_another_one() -> None:
    group = Group().met()
    group.recorded += group.round.rank_ended(1, "worker w1 is gone", NOW)
    assert (group.again, group.round.vacant) == ([], (1,))
    life, (notice,) = group.round.give_worker(1, "w7", "h7", NOW)
    assert isinstance(notice, Notice)
    assert (life, notice.text) == (
        2,
        "there is another worker: rank 1 is started, and joins the others",
    )
    # Its process dies there: it is started once more at the same place.
    group.begin(1)
    group.end(1, "failed", KILLED)
    assert group.again == [(1, 3)]


@pytest.mark.parametrize(("lived_s", "n_lives"), [(10.0, 5), (3600.0, 30)])
def test_a_rank_that_loses_its_worker_at_once_again_and_again_does_so_by_itself(
    lived_s: float, n_lives: int
) -> None:
    group = Group().met()
    at_s, life = NOW.wall_s, 1
    for _ in range(29):
        started = AttemptStarted(0, 1, at_s, "w", 100, "log", 0)
        group.tell(1, started)
        at_s += lived_s
        group.round.rank_ended(1, "its worker is gone", Now(at_s - 999.0, at_s))
        if not group.round.vacant:
            break
        life, _ = group.round.give_worker(1, "w9", "h", NOW)
    assert life == n_lives


def test_nobody_joins_a_round_that_is_being_ended() -> None:
    group = Group(absent=(2,)).met()
    group.round.may_start_again = False
    assert group.round.vacant == ()
    group = Group(absent=(2,)).met()
    group.end(0, "failed", RAISED)
    assert group.round.vacant == ()


def test_where_the_others_go_on_without_a_rank_its_worker_may_go() -> None:
    group = Group().met()
    group.tell(1, WorkerLeaving(0, 1, 30.0))
    assert group.stopped == []
    group.tell(0, WorkerLeaving(0, 1, 30.0))
    assert group.stopped == [0]


def test_promises_hold_in_random_orders_with_ranks_that_come_back() -> None:
    n_back = n_outlived = n_servers_back = n_joined = 0
    for seed in range(500):
        world = random_world(seed, "outliving")
        world.run()
        for run in world.runs:
            outlived = [e for e in run.ledger if isinstance(e, RankEnded) and e.others_go_on]
            back = [e for e in run.ledger if isinstance(e, RankStarted) and e.life > 1]
            n_back += len(back)
            n_servers_back += any(event.rank == event.world_size - 1 for event in back)
            n_joined += sum(
                isinstance(e, Notice) and e.text.endswith("is started, and joins the others")
                for e in run.ledger
            )
            state = fold_all(run.ledger)
            n_outlived += bool(outlived) and state.trials[0].state == "complete"
    counted = (n_back, n_outlived, n_servers_back, n_joined)
    assert min(counted) > 10, counted
