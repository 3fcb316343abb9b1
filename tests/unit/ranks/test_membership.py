"""Who is there, and what the ranks tell each other when one of them is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

from jupyter_ddl.protocol.group import MembersChanged, RankPlace
from jupyter_ddl.ranks.group_votes import GroupVotes
from jupyter_ddl.ranks.membership import Membership
from jupyter_ddl.ranks.metrics import ReportError, combined


def _told(*lives: dict[int, int]) -> Membership:
    members = Membership()
    for number, each in enumerate(lives, 1):
        members.take(MembersChanged("r", 0, 1, number, each))
    return members


def test_an_older_word_that_comes_later_says_nothing() -> None:
    members = _told({0: 1})
    assert Membership().lives(2) == {0: 1, 1: 1}
    members.take(MembersChanged("r", 0, 1, 3, {0: 1, 1: 2}))
    members.take(MembersChanged("r", 0, 1, 2, {0: 1}))
    assert members.lives(2) == {0: 1, 1: 2}
    assert members.wait_beyond(2, 0.0)
    assert not members.wait_beyond(3, 0.0)


def test_who_was_absent_at_the_beginning_is_there_when_the_driver_tells_so() -> None:
    members = Membership()
    members.begin((1,))
    assert (members.first(3), members.lives(3)) == ([0, 2], {0: 1, 2: 1})
    members.take(MembersChanged("r", 0, 1, 1, {0: 1, 1: 2, 2: 1}))
    assert (members.first(3), members.lives(3)) == ([0, 2], {0: 1, 1: 2, 2: 1})


def _side_by_side(*calls: Callable[[], Any]) -> list[Any]:
    found: list[Any] = [None] * len(calls)

    def keep(number: int) -> None:
        found[number] = calls[number]()

    threads = [threading.Thread(target=keep, args=(n,)) for n in range(len(calls))]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60.0)
    return found


def test_ranks_gather_without_one_that_is_lost() -> None:
    store = dist.HashStore()
    members = [Membership() for _ in range(3)]
    votes = [GroupVotes(store, rank, 3, members[rank]) for rank in range(3)]

    def last() -> list[Any]:
        # The others wait for it until they are told that it is gone.
        for rank in (0, 1):
            members[rank].take(MembersChanged("r", 0, 1, 1, {0: 1, 1: 1}))
        return []

    found = _side_by_side(lambda: votes[0].gather("a"), lambda: votes[1].gather("b"), last)
    assert [sorted(each) for each in found[:2]] == [["a", "b"]] * 2


def test_one_that_comes_back_is_heard_and_not_waited_for() -> None:
    store = dist.HashStore()
    lives = {0: 1, 1: 2}
    first, second = (GroupVotes(store, rank, 2, _told(lives)) for rank in range(2))
    assert first.gather(1) == [1]
    second.n_gathered = 1  # it has passed over that
    found = _side_by_side(lambda: second.gather(5), lambda: first.gather(2))
    assert found[0] == [5, 2]
    assert found[1] in ([2], [2, 5])
    # One that lags behind waits for nobody who has gone on.
    assert first.gather(3) == [3]
    assert second.gather(6)[0] == 6
    assert first.gather(4)[0] == 4
    assert second.n_gathered == 3


def test_a_rank_that_does_not_come_is_named() -> None:
    store = dist.HashStore()
    store.set_timeout(timedelta(seconds=0.01))
    with pytest.raises(TimeoutError, match="rank 0 timed out waiting for ranks 1-2"):
        GroupVotes(store, 0, 3, Membership()).gather(1)


@pytest.mark.parametrize(
    ("how", "expected"), [("mean", 2.5), ("sum", 5.0), ("max", 4.0), ("min", 1.0)]
)
def test_what_is_gathered_is_reduced(how: str, expected: float) -> None:
    assert combined([{"loss": 1.0}, {"loss": 4.0}], how) == {"loss": expected}


def test_other_names_on_another_rank_are_refused() -> None:
    with pytest.raises(ReportError, match="every rank must report the same names"):
        combined([{"loss": 1.0}, {"accuracy": 4.0}], "mean")


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (RankPlace("g", 0, 3, strategy="ps-async"), {1}),
        (RankPlace("g", 0, 3, strategy="ps-sync", backend="gloo"), {1}),
        (RankPlace("g", 0, 3, strategy="ps-async", gpus=("u",)), set()),
        (RankPlace("g", 0, 3, strategy="ps-async", initialize=False), set()),
        (RankPlace("g", 0, 3), set()),
    ],
)
def test_the_first_rank_and_servers_are_never_dispensable(
    place: RankPlace, expected: set[int]
) -> None:
    assert {rank for rank in range(3) if place.is_dispensable(rank)} == expected
