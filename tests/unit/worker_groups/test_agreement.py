"""What the ranks of a group decide alike, by a real store."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from torch.distributed import TCPStore

from jupyter_ddl.worker.agreement import Agreement

_TIMEOUT = timedelta(seconds=10)


@pytest.fixture
def ranks() -> list[Agreement]:
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, timeout=_TIMEOUT)
    client = TCPStore("127.0.0.1", server.port, None, False, timeout=_TIMEOUT)
    return [Agreement(store, rank, 2) for rank, store in enumerate((server, client))]


def _at_once(ranks: list[Agreement], call: Callable[[int, Agreement], Any]) -> list[Any]:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(call, range(2), ranks, timeout=20))


def test_all_ranks_read_the_newest_file_that_each_of_them_can_read(ranks: Any) -> None:
    readable = [{"b": 1, "c": 0}, {"c": 0, "a": 2}]  # a is broken for rank 0, b for rank 1
    tried: list[list[str]] = [[], []]

    def choose(rank: int, agreement: Agreement) -> Any:
        def read(name: str) -> int | None:
            tried[rank].append(name)
            return readable[rank].get(name)

        return agreement.first_readable(("a", "b", "c") if rank == 0 else (), read)

    assert _at_once(ranks, choose) == [0, 0]
    assert tried == [["a", "b", "c"]] * 2


def test_no_readable_file_is_none_for_all_and_a_second_choice_is_another_one(ranks: Any) -> None:
    for names, expected in ((("a",), None), ((), None), (("z",), "content of z")):

        def choose(rank: int, agreement: Agreement, names: Any = names) -> Any:
            return agreement.first_readable(
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


def test_a_rank_whose_store_has_gone_reports_on() -> None:
    server = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, timeout=_TIMEOUT)
    client = TCPStore("127.0.0.1", server.port, None, False, timeout=_TIMEOUT)
    agreement = Agreement(client, 1, 2)
    assert agreement.stop_after(1, None) is None
    del server
    assert agreement.stop_after(2, None) is None
    assert agreement.stop_after(3, None) is None
