"""What the events of ranks mean for their group, in whatever order they arrive."""

from __future__ import annotations

from itertools import permutations
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_ddl.driving.group_fold import (
    Action,
    AskToLeave,
    AwaitCause,
    GroupFold,
    Join,
    StopOthers,
)
from jupyter_ddl.driving.machine import Instruction, Now, Signal
from jupyter_ddl.driving.round_verdict import is_consequence
from jupyter_ddl.driving.rounds import Round
from jupyter_ddl.ledger.fold_group import NEVER_MET
from jupyter_ddl.protocol.assignment import Assignment, StopTrial, TrialAssignment
from jupyter_ddl.protocol.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    Failure,
    HangVerdict,
    Notice,
    RankEnded,
    RankStarted,
    RendezvousReady,
    Reported,
    ValueKept,
    WorkerLeaving,
)

Outcome = Literal["complete", "pruned", "failed", "cancelled", "evicted", "moved"]

CLOSED = (
    "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
    "[127.0.0.1]:6058. This is typically caused by a remote worker crashing."
)
CONSEQUENCES = [
    ("RuntimeError", CLOSED),
    ("RuntimeError", f"[Rank 0]: Rank 1 failed to pass monitoredBarrier in 1800000 ms\n{CLOSED}"),
    ("DistStoreError", "wait timeout after 8000ms, keys: /x/0//cpu//0/1"),
    ("DistNetworkError", "Failed to recv, got 0 bytes. Connection was likely closed."),
    ("DistNetworkError", "Connection reset by peer"),
    ("LaunchError", "rank 1 of 2 waited 120 s for the others of its group"),
]
CAUSES = [
    ("ValueError", "Connection closed by peer"),
    ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied"),
    ("RuntimeError", "[enforce fail at pair.cc:446] op.preamble.length <= op.nbytes. 8 vs 4"),
    ("KeyError", "'gloo'"),
]


def fold_of(n_ranks: int, hosts: tuple[str, ...] = ()) -> GroupFold:
    trial = TrialAssignment(0, 1, {}, 1)
    base = Assignment("r1", "a", "p", (trial,), "/run", (), "topic")
    return GroupFold([base] * n_ranks, hosts or ["127.0.0.1"] * n_ranks)


def started(rank: int) -> AttemptStarted:
    return AttemptStarted(0, 1, 10.0, f"w{rank}", 100 + rank, f"log-{rank}", 7 * rank)


def ended(
    outcome: Outcome, at_s: float = 20.0, failure: Failure | None = None, log_end: int = 0
) -> AttemptFinished:
    return AttemptFinished(0, 1, outcome, at_s, 1.0, log_end=log_end, failure=failure)


def raised(type_name: str, message: str) -> Failure:
    return Failure("exception", type_name, message, line=3)


def crash() -> Failure:
    return Failure("crash", "SIGKILL", "killed")


def of_kind(actions: list[Action], kind: type) -> list[Action]:
    return [action for action in actions if isinstance(action, kind)]


def run(fold: GroupFold, steps: list[tuple[int, AttemptStarted | AttemptFinished]]) -> list[Event]:
    events: list[Event] = []
    for rank, event in steps:
        events += fold.add(rank, event)[0]
    return events


def conclusion(events: list[Event]) -> AttemptFinished:
    (end,) = [event for event in events if isinstance(event, AttemptFinished)]
    assert events[-1] is end
    return end


@pytest.mark.parametrize(("type_name", "message"), CONSEQUENCES)
def test_what_gloo_says_of_a_lost_peer_is_a_consequence(type_name: str, message: str) -> None:
    end = RankEnded(0, 1, 0, "failed", 1.0, 1.0, failure=raised(type_name, message))
    assert is_consequence(end)


@pytest.mark.parametrize(("type_name", "message"), CAUSES)
def test_what_the_cell_itself_raises_is_none(type_name: str, message: str) -> None:
    end = RankEnded(0, 1, 0, "failed", 1.0, 1.0, failure=raised(type_name, message))
    assert not is_consequence(end)


def test_the_attempt_begins_with_rank_0_whichever_rank_comes_first() -> None:
    for order in permutations(range(3)):
        events = run(fold_of(3), [(rank, started(rank)) for rank in order])
        assert isinstance(events[0], AttemptStarted)
        assert events[0].log == "log-0"
        assert {e.rank for e in events[1:] if isinstance(e, RankStarted)} == {0, 1, 2}


def test_ranks_join_once_all_have_told_their_addresses() -> None:
    fold = fold_of(2)
    assert fold.add(1, RendezvousReady(0, 1, "h", 2))[1] == []
    assert fold.add(0, RendezvousReady(0, 1, "h", 1))[1] == [Join(("h:1", "h:2"))]


def test_the_others_are_told_to_end_when_a_rank_has_failed() -> None:
    fold = fold_of(3)
    run(fold, [(rank, started(rank)) for rank in range(3)])
    _, actions = fold.add(1, ended("failed", failure=crash()))
    (stop,) = of_kind(actions, StopOthers)
    assert isinstance(stop, StopOthers)
    assert stop.ranks == (0, 2)
    assert stop.grace_s < 1.0


def test_values_that_cannot_be_sent_are_told_once_with_their_ranks() -> None:
    fold = fold_of(4)
    run(fold, [(rank, started(rank)) for rank in range(4)])
    for rank in (3, 1, 2):
        assert fold.add(rank, ValueKept(0, 1, f"a lock at 0x{rank}")) == ([], [])
    events = run(fold, [(rank, ended("complete")) for rank in range(4)])
    assert conclusion(events).outcome == "complete"
    (notice,) = [event for event in events if isinstance(event, Notice)]
    assert notice.text == "the cell's value on ranks 1-3 did not come back: a lock at 0x1"


def test_a_round_that_fails_has_no_values_to_tell_of() -> None:
    fold = fold_of(2)
    run(fold, [(rank, started(rank)) for rank in range(2)])
    fold.add(0, ValueKept(0, 1, "a lock"))
    events = run(fold, [(0, ended("complete")), (1, ended("failed", failure=crash()))])
    assert conclusion(events).outcome == "failed"
    assert not [event for event in events if isinstance(event, Notice)]


def test_a_mere_consequence_waits_for_its_cause_and_not_for_ever() -> None:
    fold = fold_of(2)
    run(fold, [(0, started(0)), (1, started(1))])
    _, actions = fold.add(0, ended("failed", failure=raised("RuntimeError", CLOSED)))
    assert actions == [AwaitCause()]
    assert of_kind(fold.cause_is_late(), StopOthers) == [StopOthers((1,))]
    assert fold.cause_is_late() == []


def test_a_lost_worker_is_told_as_such_even_behind_its_consequences() -> None:
    fold = fold_of(2)
    run(fold, [(0, started(0)), (1, started(1))])
    fold.add(0, ended("failed", failure=raised("RuntimeError", CLOSED)))
    fold.cause_is_late()
    assert conclusion(fold.lost(1, 21.0)[0]).outcome == "evicted"


def test_a_worker_that_is_lost_while_the_round_is_ended_hides_no_failure() -> None:
    fold = fold_of(2)
    run(fold, [(0, started(0)), (1, started(1))])
    fold.add(0, ended("failed", failure=raised("ValueError", "boom")))
    end = conclusion(fold.lost(1, 21.0)[0])
    assert (end.outcome, end.failure and end.failure.rank) == ("failed", 0)


def test_a_hang_ends_all_ranks_at_once_and_is_the_cause() -> None:
    fold = fold_of(2)
    run(fold, [(0, started(0)), (1, started(1))])
    events, actions = fold.hang(HangVerdict(0, 1, 1, 20.0, "rank 1 is stopped", 4))
    assert [type(event) for event in events] == [HangVerdict]
    assert actions == [StopOthers((0, 1), 0.0)]
    end = conclusion(run(fold, [(0, ended("cancelled")), (1, ended("cancelled"))]))
    assert end.failure == Failure("hang", "Hang", "rank 1 is stopped", line=4, rank=1)


def test_a_rank_that_its_worker_never_began_is_lost_and_no_failure_of_the_code() -> None:
    fold = fold_of(2)
    run(fold, [(0, started(0))])
    fold.hang(HangVerdict(0, 1, 1, 20.0, "rank 1 does not answer, nor does its worker"))
    run(fold, [(0, ended("cancelled"))])
    end = conclusion(fold.lost(1, 40.0, "it did not end when told to")[0])
    assert end.outcome == "evicted"
    assert end.failure is not None
    assert (end.failure.type_name, end.failure.rank) == (NEVER_MET, 1)
    assert "nor does its worker" in end.failure.message


def test_a_hang_that_no_rank_has_caused_is_no_failure_of_the_code() -> None:
    fold = fold_of(2)
    run(fold, [(0, started(0)), (1, started(1))])
    fold.hang(HangVerdict(0, 1, 1, 20.0, "the network is cut", 4, is_outside=True))
    end = conclusion(run(fold, [(0, ended("cancelled")), (1, ended("cancelled"))]))
    assert (end.outcome, end.failure and end.failure.message) == ("evicted", "the network is cut")


@pytest.mark.parametrize(
    ("hosts", "said", "other", "outcome"),
    [
        (("a", "b"), "Connection reset by peer", "cancelled", "evicted"),
        (("a", "b"), "Connection timed out", "failed", "evicted"),
        (("a", "a"), "Connection reset by peer", "cancelled", "failed"),
        (("a", "b"), "Connection closed by peer", "cancelled", "failed"),
        (("a", "b"), "Connection reset by peer", "complete", "failed"),
    ],
    ids=["reset", "both", "on one host", "closed", "by one that was through"],
)
def test_a_connection_between_hosts_that_breaks_is_no_failure_of_the_code(
    hosts: tuple[str, str], said: str, other: Outcome, outcome: Outcome
) -> None:
    fold = fold_of(2, hosts)
    failure = raised("RuntimeError", said)
    run(fold, [(0, started(0)), (1, started(1)), (0, ended("failed", failure=failure))])
    if other == "cancelled":
        fold.cause_is_late()
    last = ended(other, failure=failure if other == "failed" else None)
    end = conclusion(run(fold, [(1, last)]))
    assert end.outcome == outcome
    told = "" if end.failure is None else end.failure.message
    assert ("the network between hosts broke" in told) == (outcome == "evicted")


def test_a_crash_is_no_less_one_when_it_breaks_connections_between_hosts() -> None:
    fold = fold_of(2, ("a", "b"))
    run(fold, [(0, started(0)), (1, started(1))])
    reset = ended("failed", failure=raised("RuntimeError", "Connection reset by peer"))
    end = conclusion(run(fold, [(0, reset), (1, ended("failed", failure=crash()))]))
    assert (end.outcome, end.failure and end.failure.kind) == ("failed", "crash")


def test_a_rank_that_leaves_pruned_makes_the_group_pruned() -> None:
    fold = fold_of(2)
    run(fold, [(0, started(0)), (1, started(1))])
    assert fold.add(0, ended("pruned"))[1] == [StopOthers((1,))]
    assert conclusion(fold.add(1, ended("cancelled"))[0]).outcome == "pruned"


def test_a_leaving_worker_makes_the_group_leave_at_its_checkpoint() -> None:
    fold = fold_of(2)
    assert fold.add(1, WorkerLeaving(0, 1, 20.0)) == ([], [AskToLeave()])


def test_the_log_that_the_attempt_names_is_the_one_whose_end_it_tells() -> None:
    fold = fold_of(2)
    run(fold, [(1, started(1))])
    events = fold.add(1, ended("failed", failure=crash(), log_end=55))[0]
    events += fold.lost(0, 22.0)[0]
    begun = next(event for event in events if isinstance(event, AttemptStarted))
    assert begun.log == "log-1"
    assert conclusion(events).log_end == 55


def test_reports_that_come_before_rank_0_are_recorded_behind_its_start() -> None:
    fold = fold_of(2)
    run(fold, [(1, started(1))])
    assert fold.add(1, Reported(0, 1, 0, {}, 11.0, 1))[0] == []
    events = fold.add(0, started(0))[0]
    assert [type(event) for event in events] == [AttemptStarted, RankStarted, Reported, RankStarted]


ENDS = st.sampled_from(
    [
        ended("complete"),
        ended("pruned", 20.1),
        ended("cancelled", 20.2),
        ended("moved", 20.3),
        ended("evicted", 20.4),
        ended("failed", 20.5, crash()),
        ended("failed", 20.6, raised("ValueError", "boom")),
        ended("failed", 20.4, raised("RuntimeError", CLOSED)),
    ]
)


@given(st.lists(ENDS, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_every_order_of_ends_gives_one_conclusion_and_no_event_twice(
    ends: list[AttemptFinished], chance: object
) -> None:
    order = list(range(len(ends)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    fold = fold_of(len(ends))
    steps: list[tuple[int, AttemptStarted | AttemptFinished]]
    steps = [(rank, started(rank)) for rank in order]
    steps += [(rank, ends[rank]) for rank in order]
    events = run(fold, steps)
    end = conclusion(events)
    assert fold.over
    assert fold.running == ()
    assert sorted(e.rank for e in events if isinstance(e, RankEnded)) == sorted(order)
    if any(each.outcome == "evicted" for each in ends) and end.outcome != "evicted":
        pytest.fail(f"a lost worker was charged to the code: {end}")
    assert (end.outcome == "complete") == all(each.outcome == "complete" for each in ends)


@given(st.permutations(range(4)), st.integers(0, 3))
def test_the_cause_is_found_whenever_it_comes(order: list[int], culprit: int) -> None:
    fold = fold_of(4)
    run(fold, [(rank, started(rank)) for rank in range(4)])
    events: list[Event] = []
    for rank in order:
        failure = crash() if rank == culprit else raised("RuntimeError", CLOSED)
        # The death of a process is noticed later than what it does to the others.
        events += fold.add(rank, ended("failed", 21.0 if rank == culprit else 20.5, failure))[0]
    end = conclusion(events)
    assert end.outcome == "failed"
    assert end.failure is not None
    assert (end.failure.rank, end.failure.type_name) == (culprit, "SIGKILL")
    assert end.failure.message == f"rank {culprit}: killed (3 more ranks failed)"


def test_a_rank_that_begins_behind_the_end_of_its_round_is_told_to_end_again() -> None:
    trial = TrialAssignment(0, 1, {}, 1)
    assignments = [Assignment("r1", f"a{rank}", "p", (trial,), "/r", (), "t") for rank in range(2)]
    done: list[Instruction] = []
    now = Now(1.0, 1000.0)
    group = Round(
        assignments,
        ["w0", "w1"],
        ["h", "h"],
        now,
        do=done.append,
        write_stacks=lambda _: None,
        give_up=lambda _: None,
    )
    group.arrived(0, [started(0)], now)
    group.rank_ended(0, "its worker is gone", now)
    group.arrived(1, [started(1)], now)
    stop = StopTrial("r1", 0, 1, "cancelled", "now", 1, 0.2)
    assert done == [Signal("w1", (stop,))] * 2
    (*_, end) = group.arrived(1, [ended("cancelled")], now)
    assert isinstance(end, AttemptFinished)
    assert end.outcome == "evicted"
