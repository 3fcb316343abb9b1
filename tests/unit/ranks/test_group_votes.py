"""What the ranks of a group decide alike, by a real store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from random import Random
from typing import Any

import pytest
from torch.distributed import TCPStore

from jupyter_ddl.ranks.group_votes import GroupVotes

_TIMEOUT = timedelta(seconds=10)


@pytest.fixture
def ranks() -> list[GroupVotes]:
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, timeout=_TIMEOUT)
    client = TCPStore("127.0.0.1", server.port, None, False, timeout=_TIMEOUT)
    return [GroupVotes(store, rank, 2) for rank, store in enumerate((server, client))]


def _at_once(ranks: list[GroupVotes], call: Callable[[int, GroupVotes], Any]) -> list[Any]:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(call, range(2), ranks, timeout=20))


def test_all_ranks_read_the_newest_file_that_each_of_them_can_read(ranks: Any) -> None:
    readable = [{"b": 1, "c": 0}, {"c": 0, "a": 2}]  # a is broken for rank 0, b for rank 1
    tried: list[list[str]] = [[], []]

    def choose(rank: int, votes: GroupVotes) -> Any:
        def read(name: str) -> int | None:
            tried[rank].append(name)
            return readable[rank].get(name)

        return votes.first_readable(("a", "b", "c") if rank == 0 else (), read)

    assert _at_once(ranks, choose) == [0, 0]
    assert tried == [["a", "b", "c"]] * 2


def test_no_readable_file_is_none_for_all_and_a_second_choice_is_another_one(ranks: Any) -> None:
    for names, expected in ((("a",), None), ((), None), (("z",), "content of z")):

        def choose(rank: int, votes: GroupVotes, names: Any = names) -> Any:
            return votes.first_readable(
                names if rank == 0 else (),
                lambda name: f"content of {name}" if name == "z" else None,
            )

        assert _at_once(ranks, choose) == [expected] * 2


def test_all_ranks_stop_at_the_same_report_one_ahead_of_rank_0(ranks: Any) -> None:
    first, second = ranks
    assert second.stop_after(3, "pruned") is None, "only rank 0 decides"
    assert first.stop_after(3, None) is None
    assert first.stop_after(4, "pruned") == (5, "pruned")
    assert second.stop_after(5, None) == (5, "pruned")


@pytest.mark.parametrize("seed", range(20))
def test_ranks_one_report_apart_at_most_never_pass_the_stop_unknowing(
    ranks: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    now_s = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    pace_s, wanted_at = random.choice((0.001, 0.02, 0.1, 1.0)), random.randrange(1, 60)
    n_reports, stops = [0, 0], [None, None]
    while None in stops:
        rank = random.choice([r for r in (0, 1) if n_reports[r] <= n_reports[1 - r]])
        now_s += pace_s
        n_reports[rank] += 1
        reason = "pruned" if rank == 0 and n_reports[0] >= wanted_at else None
        if stops[rank] is None:
            stops[rank] = ranks[rank].stop_after(n_reports[rank], reason)
        if stops[rank] is not None:
            assert n_reports[rank] <= stops[rank][0]
    assert stops[0] == stops[1]
    assert wanted_at < stops[0][0] <= wanted_at + 12


def test_reports_that_come_fast_are_decided_upon_several_at_a_time(
    ranks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = ranks
    clock = iter(count(0.0, 0.02))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    before = first.store.num_keys()
    assert [first.stop_after(number, None) for number in range(1, 51)] == [None] * 50
    assert first.store.num_keys() == before + 1  # one word, told anew
    n_looks = round(next(clock) / 0.02)
    assert n_looks < 10


def test_a_rank_whose_store_has_gone_reports_on() -> None:
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, timeout=_TIMEOUT)
    client = TCPStore("127.0.0.1", server.port, None, False, timeout=_TIMEOUT)
    votes = GroupVotes(client, 1, 2)
    assert votes.stop_after(1, None) is None
    del server
    assert votes.stop_after(2, None) is None
    assert votes.stop_after(3, None) is None
